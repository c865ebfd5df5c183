// SPDX-License-Identifier: Apache-2.0
// Arrays of others, by the buffer protocol or DLPack, as Tensors in the same memory.
#include "arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/pair.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string_view>

#include "elements.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

[[noreturn]] void refuse(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

// Of native byte order; 'l' is i64 where a long is.
std::optional<DType> dtype_of_format(const char* format, std::int64_t size) {
  if (format == nullptr) return DType::u8;
  if (*format == '@' || *format == '=' || *format == '<') ++format;
  if (format[0] == '\0' || format[1] != '\0') return std::nullopt;
  const char letter = *format;
  const bool is_signed = std::strchr("bhilq", letter) != nullptr;
  if (is_signed && size == 8) return DType::i64;
  if (is_signed && size == 4) return DType::i32;
  for (const Element& element : kElements) {
    if (element.format != nullptr && !is_signed && *element.format == letter) return element.dtype;
  }
  return std::nullopt;
}

template <class Extent>
bool is_dense(int rank, const Extent* shape, const Extent* strides, std::int64_t unit) {
  if (strides == nullptr) return true;
  std::int64_t wanted = unit;
  bool is_empty = false, is_plain = true;
  for (int axis = rank - 1; axis >= 0; --axis) {
    is_empty |= shape[axis] == 0;
    if (shape[axis] != 1 && strides[axis] != wanted) is_plain = false;
    wanted *= shape[axis];
  }
  return is_empty || is_plain;
}

[[noreturn]] void refuse_strides(const ArrayName& name) {
  refuse(ErrorKind::argument, name.text() +
                                  ": its elements do not lie densely in the order of the last axis\n"
                                  "hint: numpy.ascontiguousarray(), tensor.contiguous()");
}

// What is a Tensor's is given back under the GIL, whichever thread is the last to have it.
struct HeldBuffer {
  Py_buffer view;
  void operator()(std::byte* /*bytes*/) {
    if (Py_IsInitialized() == 0) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    PyBuffer_Release(&view);
    PyGILState_Release(state);
  }
};

struct HeldObject {
  PyObject* object;
  void operator()(std::byte* /*bytes*/) {
    if (Py_IsInitialized() == 0) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    Py_DecRef(object);
    PyGILState_Release(state);
  }
};

struct HeldArray {
  nb::ndarray<nb::ro> array;
  void operator()(const void* /*bytes*/) {
    if (Py_IsInitialized() == 0) return;
    const PyGILState_STATE state = PyGILState_Ensure();
    array = {};
    PyGILState_Release(state);
  }
};

// Nothing where it has no buffer, or one of a format that only its other faces can tell (bf16).
std::optional<Tensor> from_buffer(nb::handle object, const ArrayName& name) {
  if (PyObject_CheckBuffer(object.ptr()) == 0) return std::nullopt;
  Py_buffer view;
  if (PyObject_GetBuffer(object.ptr(), &view, PyBUF_STRIDES | PyBUF_FORMAT) != 0) {
    PyErr_Clear();
    return std::nullopt;
  }
  const HeldBuffer held{view};
  const std::optional<DType> dtype = dtype_of_format(view.format, view.itemsize);
  const bool is_fit = dtype && size_bytes(*dtype) == view.itemsize;
  std::int64_t extents[Shape::kMaxRank] = {};
  const bool is_small = view.ndim <= Shape::kMaxRank;
  const bool has_order = is_dense(view.ndim, view.shape, view.strides, view.itemsize);
  if (!is_fit || !is_small || !has_order) {
    const std::string format = view.format == nullptr ? "B" : view.format;
    PyBuffer_Release(&view);
    if (!is_fit) refuse(ErrorKind::dtype, name.text() + ": its elements, of format '" + format + "', are of no dtype");
    if (!is_small) refuse(ErrorKind::shape, name.text() + ": has more than 8 axes");
    refuse_strides(name);
  }
  for (int axis = 0; axis < view.ndim; ++axis) extents[axis] = view.shape[axis];
  const Type type{*dtype, Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(view.ndim)))};
  return Tensor(type, std::shared_ptr<std::byte>(static_cast<std::byte*>(view.buf), held));
}

std::optional<DType> dtype_of_dlpack(nb::dlpack::dtype type) {
  for (const Element& element : kElements) {
    if (dlpack_type(element.dtype) == type) return element.dtype;
  }
  return std::nullopt;
}

Type type_of_dlpack(const nb::ndarray<nb::ro>& array, const ArrayName& name) {
  const std::optional<DType> dtype = dtype_of_dlpack(array.dtype());
  if (!dtype) {
    refuse(ErrorKind::dtype, name.text() + ": elements of DLPack's code " + std::to_string(array.dtype().code) +
                                 " with " + std::to_string(array.dtype().bits) + " bits are of no dtype");
  }
  const int rank = static_cast<int>(array.ndim());
  if (rank > Shape::kMaxRank) refuse(ErrorKind::shape, name.text() + ": has more than 8 axes");
  std::int64_t extents[Shape::kMaxRank] = {}, strides[Shape::kMaxRank] = {};
  for (int axis = 0; axis < rank; ++axis) {
    extents[axis] = static_cast<std::int64_t>(array.shape(static_cast<std::size_t>(axis)));
    strides[axis] = array.stride(static_cast<std::size_t>(axis));
  }
  if (!is_dense(rank, extents, strides, 1)) refuse_strides(name);
  const Type type{*dtype, Shape(std::span<const std::int64_t>(extents, static_cast<std::size_t>(rank)))};
  if (array.data() == nullptr && size_bytes(type) > 0)
    refuse(ErrorKind::argument, name.text() + ": its memory was freed");
  return type;
}

std::optional<Tensor> from_dlpack(nb::handle object, const ArrayName& name) {
  if (!nb::hasattr(object, "__dlpack__")) return std::nullopt;
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(object, array)) {
    nb::object reason = object.attr("__dlpack__")();  // says itself what is wrong
    refuse(ErrorKind::argument, name.text() + ": gives no DLPack of version 1 or 0");
  }
  if (array.device_type() != nb::device::cpu::value && array.device_type() != nb::device::cuda_host::value) {
    refuse(ErrorKind::argument, name.text() + ": it is not in the host's memory\nhint: tensor.cpu()");
  }
  const Type type = type_of_dlpack(array, name);
  static std::byte nothing[1];
  auto* bytes = static_cast<std::byte*>(const_cast<void*>(array.data()));
  PyObject* held = nb::cast(array).release().ptr();
  return Tensor(type, std::shared_ptr<std::byte>(bytes == nullptr ? nothing : bytes, HeldObject{held}));
}

const char* numpy_name(DType dtype) {
  constexpr const char* names[] = {"float64", "float32", "float16", "float32", "int64", "int32", "uint8", "bool"};
  return names[static_cast<std::size_t>(dtype)];
}

Tensor as_bf16(const Tensor& tensor) { return Tensor::from(DType::bf16, tensor.shape(), tensor.to_doubles()); }

// Lists, numbers, and arrays whose bf16 is a type of their own (ml_dtypes).
Tensor by_numpy(nb::handle object, std::optional<DType> wanted, const ArrayName& name) {
  nb::module_ numpy = nb::module_::import_("numpy");
  if (nb::hasattr(object, "dtype") && nb::cast<std::string>(nb::str(object.attr("dtype"))) == "bfloat16") {
    const Tensor bits =
        *from_buffer(numpy.attr("ascontiguousarray")(object).attr("view")("int16").attr("view")("uint8"), name);
    std::vector<std::int64_t> extents = nb::cast<std::vector<std::int64_t>>(object.attr("shape"));
    auto keep = std::make_shared<Tensor>(bits);
    return {{DType::bf16, Shape(std::span<const std::int64_t>(extents))}, {keep, keep->bytes()}};
  }
  nb::object array = wanted ? numpy.attr("asarray")(object, numpy_name(*wanted)) : numpy.attr("asarray")(object);
  std::optional<Tensor> made = from_buffer(array, name);
  if (!made) refuse(ErrorKind::dtype, name.text() + ": its elements are of no dtype");
  return wanted == DType::bf16 ? as_bf16(*made) : *made;
}

// What is asked of the library that an array belongs to.
struct Library {
  bool is_torch = false;
  nb::object cuda = nb::none();  // of PyTorch, of CuPy

  static Library of(nb::handle object) {
    const auto module = nb::cast<std::string>(object.type().attr("__module__"));
    if (module.starts_with("torch")) return {true, nb::module_::import_("torch").attr("cuda")};
    if (module.starts_with("cupy")) return {false, nb::module_::import_("cupy").attr("cuda")};
    return {};
  }
  bool is_capturing() const { return is_torch && nb::cast<bool>(cuda.attr("is_current_stream_capturing")()); }
  // The legacy default stream where it is not known.
  void* stream(int index) const {
    if (cuda.is_none()) return nullptr;
    const nb::object handle = is_torch ? cuda.attr("current_stream")(index).attr("cuda_stream")
                                       : cuda.attr("get_current_stream")().attr("ptr");
    return reinterpret_cast<void*>(nb::cast<std::uintptr_t>(handle));
  }
};

// Of a library that refuses, its words.
nb::object capsule_of(nb::handle object, void* stream, const ArrayName& name) {
  try {
    return object.attr("__dlpack__")(nb::arg("stream") = reinterpret_cast<std::uintptr_t>(stream));
  } catch (nb::python_error& error) {
    if (!error.matches(PyExc_BufferError) && !error.matches(PyExc_ValueError) && !error.matches(PyExc_RuntimeError)) {
      throw;
    }
    refuse(ErrorKind::argument, name.text() + ": " + nb::cast<std::string>(nb::str(error.value())));
  }
}

}  // namespace

std::optional<DeviceArray> device_array_of(nb::handle object, const Device& device, void* stream,
                                           const ArrayName& name) {
  if (nb::isinstance<DeviceTensor>(object)) return DeviceArray{nb::cast<DeviceTensor&>(object), stream};
  // That it has the buffer protocol says nothing: JAX's and CuPy's arrays of a GPU have, and refuse.
  if (nb::isinstance<Tensor>(object) || !nb::hasattr(object, "__dlpack_device__")) return std::nullopt;
  const auto [kind, index] = nb::cast<std::pair<int, int>>(object.attr("__dlpack_device__")());
  if (kind == nb::device::cpu::value || kind == nb::device::cuda_host::value) return std::nullopt;
  if (kind != nb::device::cuda::value && kind != nb::device::cuda_managed::value) {
    refuse(ErrorKind::argument, name.text() + ": it is on a device of DLPack's kind " + std::to_string(kind) +
                                    ", the program on " + to_string(device));
  }
  const Device where = Device::cuda(index);
  if (!(where == device)) {
    refuse(ErrorKind::argument, name.text() + " is on " + to_string(where) + ", the program on " + to_string(device));
  }
  const Library library = Library::of(object);
  if (library.is_capturing()) {
    refuse(ErrorKind::argument, name.text() +
                                    ": a CUDA graph is being captured, which a Program's run cannot be part "
                                    "of\nhint: paoding.torch.function(graph) can");
  }
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(capsule_of(object, stream, name), array)) {
    refuse(ErrorKind::argument, name.text() + ": gives no DLPack of version 1 or 0");
  }
  const Type type = type_of_dlpack(array, name);
  void* at = const_cast<void*>(array.data());
  void* const goes_on = library.stream(index);
  return DeviceArray{DeviceTensor(type, where, std::shared_ptr<void>(at, HeldArray{std::move(array)})), goes_on};
}

nb::tuple tuple_of(const Shape& shape) {
  return nb::tuple(nb::cast(std::vector<std::int64_t>(shape.begin(), shape.end())));
}

Tensor tensor_of(nb::handle object, std::optional<DType> wanted, const ArrayName& name) {
  if (nb::isinstance<Tensor>(object)) return nb::cast<Tensor&>(object);
  if (auto made = from_buffer(object, name)) return *std::move(made);
  const bool has_own_bf16 = nb::hasattr(object, "__array_interface__");  // NumPy's, which DLPack does not know
  if (!has_own_bf16) {
    if (auto made = from_dlpack(object, name)) return *std::move(made);
  }
  return by_numpy(object, wanted, name);
}

DType dtype_of(nb::handle object) {
  if (nb::isinstance<DType>(object)) return nb::cast<DType>(object);
  std::string text = nb::cast<std::string>(nb::str(object));
  DType dtype{};
  if (parse_dtype(text, &dtype)) return dtype;
  refuse(ErrorKind::dtype, "'" + text + "' is no dtype: f64, f32, f16, bf16, i64, i32, u8 and bool are");
}

std::vector<std::int64_t> integers_of(nb::handle object, const std::string& what) {
  std::vector<std::int64_t> list(1);
  if (PyLong_Check(object.ptr()) != 0 ? nb::try_cast(object, list[0]) : nb::try_cast(object, list)) return list;
  refuse(ErrorKind::argument, what + " is " + nb::cast<std::string>(nb::repr(object)) +
                                  ", needed is an integer of 64 bits or a list of such");
}

Shape shape_of(nb::handle object) {
  const auto extents = integers_of(object, "the shape");
  return Shape(std::span<const std::int64_t>(extents));
}

bool is_number(nb::handle object) {
  return PyBool_Check(object.ptr()) != 0 || PyLong_Check(object.ptr()) != 0 || PyFloat_Check(object.ptr()) != 0;
}

Number number_of(nb::handle object) {
  if (PyBool_Check(object.ptr()) != 0) return std::int64_t{object.ptr() == Py_True};
  if (PyLong_Check(object.ptr()) == 0) return nb::cast<double>(object);
  std::int64_t whole = 0;
  if (nb::try_cast(object, whole)) return whole;
  return nb::cast<double>(nb::float_(object));  // beyond what an i64 holds
}

Device device_of(const std::string& text) {
  if (text == "cpu") return Device::cpu();
  if (text == "best") return Device::best();
  if (text == "cuda") return Device::cuda();
  if (text.starts_with("cuda:") && text.size() > 5 && text.size() < 9 &&
      text.find_first_not_of("0123456789", 5) == std::string::npos) {
    return Device::cuda(std::stoi(text.substr(5)));
  }
  refuse(ErrorKind::argument, "'" + text + "' is no device: 'cpu', 'cuda', 'cuda:1' and 'best' are");
}

}  // namespace paoding::python
