// SPDX-License-Identifier: Apache-2.0
// The buffer protocol and DLPack, in and out.
#include "arrays.h"

#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <string_view>

#include "paoding/error.h"

namespace paoding::python {
namespace {

[[noreturn]] void refuse(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

struct Element {
  DType dtype;
  nb::dlpack::dtype_code code;
  const char* format;  // of the buffer protocol; none for bf16
};
constexpr Element kElements[] = {
    {DType::f64, nb::dlpack::dtype_code::Float, "d"}, {DType::f32, nb::dlpack::dtype_code::Float, "f"},
    {DType::f16, nb::dlpack::dtype_code::Float, "e"}, {DType::bf16, nb::dlpack::dtype_code::Bfloat, nullptr},
    {DType::i64, nb::dlpack::dtype_code::Int, "q"},   {DType::i32, nb::dlpack::dtype_code::Int, "i"},
    {DType::u8, nb::dlpack::dtype_code::UInt, "B"},   {DType::boolean, nb::dlpack::dtype_code::Bool, "?"},
};
const Element& element_of(DType dtype) { return kElements[static_cast<std::size_t>(dtype)]; }

nb::dlpack::dtype dlpack_type(DType dtype) {
  return {static_cast<std::uint8_t>(element_of(dtype).code), static_cast<std::uint8_t>(8 * size_bytes(dtype)), 1};
}

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

std::optional<Tensor> from_dlpack(nb::handle object, const ArrayName& name) {
  if (!nb::hasattr(object, "__dlpack__")) return std::nullopt;
  nb::ndarray<nb::ro> array;
  if (!nb::try_cast(object, array)) {
    nb::object reason = object.attr("__dlpack__")();  // says itself what is wrong
    refuse(ErrorKind::argument, name.text() + ": gives no DLPack of version 1 or 0");
  }
  if (array.device_type() != nb::device::cpu::value) {
    refuse(ErrorKind::argument, name.text() + ": it is not in the host's memory\nhint: tensor.cpu()");
  }
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

// In the memory of `self`, which it keeps.
template <class Framework>
nb::object shared_array(nb::handle self) {
  Tensor& tensor = nb::cast<Tensor&>(self);
  std::size_t extents[Shape::kMaxRank] = {};
  for (int axis = 0; axis < tensor.shape().rank(); ++axis) {
    extents[axis] = static_cast<std::size_t>(tensor.shape()[axis]);
  }
  return nb::cast(nb::ndarray<Framework>(tensor.bytes(), static_cast<std::size_t>(tensor.shape().rank()), extents, self,
                                         nullptr, dlpack_type(tensor.dtype())));
}

nb::object numpy_array(nb::handle self) {
  if (nb::cast<Tensor&>(self).dtype() != DType::bf16) return shared_array<nb::numpy>(self);
  refuse(ErrorKind::dtype, "numpy: it has no bf16\nhint: tensor.astype(pd.f32).numpy(), or torch.from_dlpack(tensor)");
}

struct Exported {  // what a buffer's consumer reads
  Py_ssize_t shape[Shape::kMaxRank], strides[Shape::kMaxRank];
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Tensor& tensor = *nb::inst_ptr<Tensor>(self);
  if (tensor.dtype() == DType::bf16) {
    PyErr_SetString(PyExc_BufferError, "the buffer protocol has no bf16; tensor.astype(pd.f32), or DLPack");
    return -1;
  }
  auto made = std::make_unique<Exported>();
  const auto strides = dense_strides(tensor.shape());
  const std::int64_t unit = size_bytes(tensor.dtype());
  for (int axis = 0; axis < tensor.shape().rank(); ++axis) {
    made->shape[axis] = tensor.shape()[axis];
    made->strides[axis] = strides[static_cast<std::size_t>(axis)] * unit;
  }
  view->obj = self;
  Py_IncRef(self);
  view->buf = tensor.bytes();
  view->len = tensor.size_bytes();
  view->readonly = 0;
  view->itemsize = unit;
  view->format = (flags & PyBUF_FORMAT) != 0 ? const_cast<char*>(element_of(tensor.dtype()).format) : nullptr;
  view->ndim = tensor.shape().rank();
  view->shape = made->shape;
  view->strides = made->strides;
  view->suboffsets = nullptr;
  view->internal = made.release();
  return 0;
}

void release_buffer(PyObject* /*self*/, Py_buffer* view) { delete static_cast<Exported*>(view->internal); }

PyType_Slot tensor_slots[] = {{Py_bf_getbuffer, reinterpret_cast<void*>(get_buffer)},
                              {Py_bf_releasebuffer, reinterpret_cast<void*>(release_buffer)},
                              {0, nullptr}};

nb::object item(nb::handle self) {
  const Tensor& tensor = nb::cast<Tensor&>(self);
  if (tensor.shape().elements() != 1) {
    refuse(ErrorKind::shape, "item: the tensor is " + to_string(tensor.type()) + ", one element is needed");
  }
  switch (tensor.dtype()) {
    case DType::i64: return nb::int_(*tensor.data<std::int64_t>());
    case DType::i32: return nb::int_(*tensor.data<std::int32_t>());
    case DType::u8: return nb::int_(*tensor.data<std::uint8_t>());
    case DType::boolean: return nb::bool_(*tensor.data<std::uint8_t>() != 0);
    default: return nb::float_(tensor.to_doubles()[0]);
  }
}

Tensor converted(const Tensor& tensor, DType dtype) {
  if (dtype == tensor.dtype()) return tensor;
  return Tensor::from(dtype, tensor.shape(), tensor.to_doubles());
}

nb::object as_array(nb::handle self, nb::object dtype, nb::object copy) {
  nb::object array = numpy_array(self);
  if (!dtype.is_none()) array = array.attr("astype")(dtype, nb::arg("copy") = false);
  return copy.is_none() || !nb::cast<bool>(copy) ? array : array.attr("copy")();
}

}  // namespace

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

Shape shape_of(nb::handle object) {
  if (PyLong_Check(object.ptr())) return Shape{nb::cast<std::int64_t>(object)};
  const auto extents = nb::cast<std::vector<std::int64_t>>(object);
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

void bind_tensor(nb::module_& module) {
  nb::class_<Tensor>(module, "Tensor", nb::type_slots(tensor_slots),
                     "A dense array in the host's memory. NumPy, PyTorch and others read and write it where it is.")
      .def(
          "__init__",
          [](Tensor* self, nb::object array, nb::object dtype) {
            const bool any = dtype.is_none();
            const std::optional<DType> wanted = any ? std::nullopt : std::optional(dtype_of(dtype));
            const Tensor made = tensor_of(array, wanted, {"Tensor"});
            new (self) Tensor(wanted ? converted(made, *wanted) : made);
          },
          nb::arg("array"), nb::arg("dtype") = nb::none(),
          nb::sig("def __init__(self, array: object, dtype: DType | str | None = None) -> None"),
          "On the memory of `array` (the buffer protocol, DLPack), or with memory of its own (lists, numbers).")
      .def_static(
          "empty", [](nb::object shape, nb::object dtype) { return Tensor(dtype_of(dtype), shape_of(shape)); },
          nb::arg("shape"), nb::arg("dtype") = DType::f32,
          nb::sig("def empty(shape: int | collections.abc.Sequence[int], dtype: DType | str = 'f32') -> Tensor"),
          "Elements that are whatever they are.")
      .def_prop_ro("dtype", [](const Tensor& self) { return self.dtype(); })
      .def_prop_ro(
          "shape",
          [](const Tensor& self) {
            return nb::tuple(nb::cast(std::vector<std::int64_t>(self.shape().begin(), self.shape().end())));
          },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("ndim", [](const Tensor& self) { return self.shape().rank(); })
      .def_prop_ro("size", [](const Tensor& self) { return self.shape().elements(); })
      .def_prop_ro("nbytes", [](const Tensor& self) { return self.size_bytes(); })
      .def("item", &item, nb::sig("def item(self) -> int | float | bool"),
           "Its one element. ShapeError when it has not one.")
      .def("numpy", &numpy_array, nb::sig("def numpy(self) -> NDArray[typing.Any]"),
           "A NumPy array in the same memory. DtypeError of bf16, which NumPy has not.")
      .def(
          "astype", [](const Tensor& self, nb::object dtype) { return converted(self, dtype_of(dtype)); },
          nb::arg("dtype"), nb::sig("def astype(self, dtype: DType | str) -> Tensor"),
          "Every element converted, in memory of its own.")
      .def(
          "tolist",
          [](nb::handle self) {
            const Tensor& tensor = nb::cast<Tensor&>(self);
            if (tensor.dtype() != DType::bf16) return numpy_array(self).attr("tolist")();
            return numpy_array(nb::cast(converted(tensor, DType::f32))).attr("tolist")();
          },
          nb::sig("def tolist(self) -> typing.Any"))
      .def("__array__", &as_array, nb::arg("dtype") = nb::none(), nb::arg("copy") = nb::none(),
           nb::sig("def __array__(self, dtype: typing.Any = None, copy: bool | None = None) -> "
                   "NDArray[typing.Any]"))
      .def(
          "__dlpack__",
          [](nb::handle self, nb::kwargs options) {
            return shared_array<nb::array_api>(self).attr("__dlpack__")(**options);
          },
          nb::sig("def __dlpack__(self, **options: typing.Any) -> typing.Any"))
      .def(
          "__dlpack_device__", [](const Tensor&) { return nb::make_tuple(nb::device::cpu::value, 0); },
          nb::sig("def __dlpack_device__(self) -> tuple[int, int]"))
      .def("__float__", [](nb::handle self) { return nb::float_(item(self)); })
      .def("__int__", [](nb::handle self) { return nb::int_(item(self)); })
      .def("__bool__", [](nb::handle self) { return nb::cast<bool>(nb::bool_(item(self))); })
      .def("__len__",
           [](const Tensor& self) {
             if (self.shape().rank() == 0) refuse(ErrorKind::shape, "len: the tensor is a scalar");
             return self.shape()[0];
           })
      .def("__repr__", [](nb::handle self) {
        const Tensor& tensor = nb::cast<Tensor&>(self);
        const std::string type = to_string(tensor.type());
        if (tensor.shape().elements() > 8) return "Tensor(" + type + ")";
        return "Tensor(" + type + ": " + nb::cast<std::string>(nb::repr(self.attr("tolist")())) + ")";
      });
}

}  // namespace paoding::python
