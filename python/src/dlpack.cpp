// SPDX-License-Identifier: Apache-2.0
// The consumer's side of DLPack: https://dmlc.github.io/dlpack/latest/python_spec.html. (nb::ndarray as an argument
// would drop exceptions of __dlpack__, an interrupt too, and reads a capsule's content without checks.)
#include "dlpack.h"

#include <algorithm>
#include <optional>
#include <utility>

#include "elements.h"
#include "gil.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

// DLManagedTensor and, from version 1 on, DLManagedTensorVersioned.
struct Managed {
  nb::dlpack::dltensor tensor;
  void* owner;
  void (*deleter)(Managed*);
};
struct ManagedVersioned {
  std::uint32_t major, minor;
  void* owner;
  void (*deleter)(ManagedVersioned*);
  std::uint64_t flags;
  nb::dlpack::dltensor tensor;
};
constexpr std::uint64_t kReadOnly = 1;
constexpr std::uint32_t kMajor = 1;

[[noreturn]] void refuse(ErrorKind kind, const ArrayName& name, const std::string& what) {
  throw Error(kind, name.text() + ": " + what);
}

// A managed tensor; where it says no way to let go of it, the object that it is of.
template <class Kind>
class Taken {
 public:
  Taken(Kind* managed, nb::handle object) : managed_(managed), object_(managed->deleter ? nullptr : object.ptr()) {
    if (object_ != nullptr) Py_IncRef(object_);
  }
  void operator()(void* /*memory*/) const {
    const WithGil gil;
    if (!gil.is_held()) return;
    const nb::error_scope ours;  // a deleter written in Python has errors of its own
    if (object_ != nullptr) {
      Py_DecRef(object_);
    } else {
      managed_->deleter(managed_);
    }
  }

 private:
  Kind* managed_;
  PyObject* object_;
};

template <class Kind>
std::shared_ptr<void> taken(nb::handle capsule, const char* name, const char* used, nb::handle object) {
  auto* managed = static_cast<Kind*>(PyCapsule_GetPointer(capsule.ptr(), name));
  if (managed == nullptr || PyCapsule_SetName(capsule.ptr(), used) != 0) throw nb::python_error();
  return {static_cast<void*>(managed),
          Taken<Kind>(managed, object)};  // the capsule's own end does nothing from here on
}

// The managed tensor, and the array in it.
struct Content {
  std::shared_ptr<void> owner;
  const nb::dlpack::dltensor* tensor;
  bool is_read_only;
};

Content content_of(nb::handle capsule, nb::handle object, const ArrayName& name) {
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor_versioned") != 0) {
    auto owner = taken<ManagedVersioned>(capsule, "dltensor_versioned", "used_dltensor_versioned", object);
    const auto* managed = static_cast<const ManagedVersioned*>(owner.get());
    if (managed->major != kMajor) {
      refuse(ErrorKind::argument, name,
             "gives DLPack of version " + std::to_string(managed->major) + ", needed is 1 or 0");
    }
    return {owner, &managed->tensor, (managed->flags & kReadOnly) != 0};
  }
  if (PyCapsule_IsValid(capsule.ptr(), "dltensor") != 0) {
    auto owner = taken<Managed>(capsule, "dltensor", "used_dltensor", object);
    return {owner, &static_cast<const Managed*>(owner.get())->tensor, false};
  }
  const bool is_used = PyCapsule_IsValid(capsule.ptr(), "used_dltensor") != 0 ||
                       PyCapsule_IsValid(capsule.ptr(), "used_dltensor_versioned") != 0;
  refuse(ErrorKind::argument, name,
         is_used ? "its __dlpack__ gives a capsule that was taken before" : "gives no DLPack of version 1 or 0");
}

Type type_of(const nb::dlpack::dltensor& tensor, const ArrayName& name) {
  std::optional<DType> dtype;
  for (const Element& element : kElements) {
    if (dlpack_type(element.dtype) == tensor.dtype) dtype = element.dtype;
  }
  if (!dtype) {
    refuse(ErrorKind::dtype, name,
           "elements of DLPack's code " + std::to_string(tensor.dtype.code) + " with " +
               std::to_string(tensor.dtype.bits) + " bits are of no dtype");
  }
  if (tensor.ndim > Shape::kMaxRank) refuse(ErrorKind::shape, name, "has more than 8 axes");
  if (tensor.ndim < 0) refuse(ErrorKind::argument, name, "its DLPack says " + std::to_string(tensor.ndim) + " axes");
  if (tensor.ndim > 0 && tensor.shape == nullptr) {
    refuse(ErrorKind::argument, name, "its DLPack says " + std::to_string(tensor.ndim) + " axes and has no shape");
  }
  const Shape shape(std::span<const std::int64_t>(tensor.shape, static_cast<std::size_t>(tensor.ndim)));
  const Type type{*dtype, shape};
  if (tensor.data == nullptr && size_bytes(type) > 0) refuse(ErrorKind::argument, name, "its memory was freed");
  return type;
}

}  // namespace

DlpackArray take_dlpack(nb::handle object, std::optional<void*> stream, const ArrayName& name) {
  static const auto* newest = new nb::tuple(nb::make_tuple(kMajor, 0));  // as long as the process
  const nb::object method = object.attr("__dlpack__");
  nb::object capsule;
  try {
    capsule =
        stream ? method(nb::arg("stream") = reinterpret_cast<std::uintptr_t>(*stream), nb::arg("max_version") = *newest)
               : method(nb::arg("max_version") = *newest);
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_TypeError)) throw;
  }
  if (!capsule.is_valid()) {  // one from before version 1
    capsule = stream ? method(nb::arg("stream") = reinterpret_cast<std::uintptr_t>(*stream)) : method();
  }
  const Content content = content_of(capsule, object, name);
  const nb::dlpack::dltensor& tensor = *content.tensor;
  const Type type = type_of(tensor, name);
  auto* bytes = tensor.data == nullptr ? nullptr : static_cast<std::byte*>(tensor.data) + tensor.byte_offset;
  DlpackArray array{.type = type,
                    .strides = dense_strides(type.shape),
                    .device = tensor.device,
                    .is_read_only = content.is_read_only,
                    .memory = std::shared_ptr<void>(content.owner, bytes)};
  if (tensor.strides != nullptr) std::copy_n(tensor.strides, type.shape.rank(), array.strides.begin());
  return array;
}

void check_dense(const Shape& shape, const std::int64_t* strides, std::int64_t unit, const ArrayName& name) {
  if (strides == nullptr || shape.elements() == 0) return;
  std::int64_t wanted = unit;
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    if (shape[axis] != 1 && strides[axis] != wanted) {
      refuse(ErrorKind::argument, name,
             "its elements do not lie densely in the order of the last axis\n"
             "hint: numpy.ascontiguousarray(), tensor.contiguous()");
    }
    wanted *= shape[axis];
  }
}

}  // namespace paoding::python
