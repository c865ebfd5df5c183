// SPDX-License-Identifier: Apache-2.0
// Tensor as Python has it: an array that NumPy, PyTorch and others read and write where it is.
#include <nanobind/nanobind.h>
#include <nanobind/ndarray.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include <cstring>
#include <memory>

#include "arrays.h"
#include "elements.h"
#include "paoding/error.h"

namespace paoding::python {
namespace {

[[noreturn]] void refuse_tensor(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

// In the memory of `self`, which it keeps.
template <class... Framework>
nb::object shared_array(nb::handle self) {
  Tensor& tensor = nb::cast<Tensor&>(self);
  std::size_t extents[Shape::kMaxRank] = {};
  for (int axis = 0; axis < tensor.shape().rank(); ++axis) {
    extents[axis] = static_cast<std::size_t>(tensor.shape()[axis]);
  }
  return nb::cast(nb::ndarray<Framework...>(tensor.bytes(), static_cast<std::size_t>(tensor.shape().rank()), extents,
                                            self, nullptr, dlpack_type(tensor.dtype())));
}

nb::object numpy_array(nb::handle self) {
  if (nb::cast<Tensor&>(self).dtype() != DType::bf16) {
    return nb::isinstance<ParameterValue>(self) ? shared_array<nb::numpy, nb::ro>(self) : shared_array<nb::numpy>(self);
  }
  refuse_tensor(ErrorKind::dtype,
                "numpy: it has no bf16\nhint: tensor.astype(pd.f32).numpy(), or torch.from_dlpack(tensor)");
}

struct Exported {  // read by a buffer's consumer
  Py_ssize_t shape[Shape::kMaxRank], strides[Shape::kMaxRank];
};

int get_buffer(PyObject* self, Py_buffer* view, int flags) {
  Tensor& tensor = *nb::inst_ptr<Tensor>(self);
  if (tensor.dtype() == DType::bf16) {
    PyErr_SetString(PyExc_BufferError, "the buffer protocol has no bf16; tensor.astype(pd.f32), or DLPack");
    return -1;
  }
  const bool is_read_only = nb::isinstance<ParameterValue>(self);
  if (is_read_only && (flags & PyBUF_WRITABLE) != 0) {
    PyErr_SetString(PyExc_BufferError, kCopyOfParameter);
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
  view->readonly = is_read_only ? 1 : 0;
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
    refuse_tensor(ErrorKind::shape, "item: the tensor is " + to_string(tensor.type()) + ", one element is needed");
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

Tensor copied(const Tensor& tensor) {
  Tensor copy(tensor.type());
  if (tensor.size_bytes() > 0) {
    std::memcpy(copy.bytes(), tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
  }
  return copy;
}

// bf16 as f32, which has all of its numbers.
nb::object as_array(nb::handle self, nb::object dtype, nb::object copy) {
  nb::object array = elements_of(self);
  if (nb::cast<Tensor&>(self).dtype() == DType::bf16) {
    if (!copy.is_none() && !nb::cast<bool>(copy))
      throw nb::value_error("NumPy has no bf16: an array of it is a copy of f32");
    copy = nb::none();
  }
  if (!dtype.is_none()) array = array.attr("astype")(dtype, nb::arg("copy") = false);
  return copy.is_none() || !nb::cast<bool>(copy) ? array : array.attr("copy")();
}

}  // namespace

void bind_tensor(nb::module_& module) {
  auto type = nb::class_<Tensor>(
      module, "Tensor", nb::type_slots(tensor_slots),
      "A dense array in the host's memory. NumPy, PyTorch and others read and write it where it is. It "
      "has NumPy's operators, indexing and methods, whose results are NumPy's.");
  type.def(
          "__init__",
          [](Tensor* self, nb::object array, nb::object dtype) {
            const bool any = dtype.is_none();
            const std::optional<DType> wanted = any ? std::nullopt : std::optional(dtype_of(dtype));
            bool is_read_only = false;
            Tensor made = tensor_of(array, wanted, {"Tensor"}, &is_read_only);
            if (wanted && made.dtype() != *wanted) {
              made = converted(made, *wanted);
            } else if (is_read_only) {
              made = copied(made);
            }
            new (self) Tensor(std::move(made));
          },
          nb::arg("array"), nb::arg("dtype") = nb::none(),
          nb::sig("def __init__(self, array: object, dtype: DType | str | None = None) -> None"),
          "On the memory of `array` (the buffer protocol, DLPack); with memory of its own for lists, numbers and what "
          "is "
          "read-only.")
      .def_static(
          "empty", [](nb::object shape, nb::object dtype) { return Tensor(dtype_of(dtype), shape_of(shape)); },
          nb::arg("shape"), nb::arg("dtype") = DType::f32,
          nb::sig("def empty(shape: int | collections.abc.Sequence[int], dtype: DType | str = 'f32') -> Tensor"),
          "Elements that are whatever they are.")
      .def_prop_ro("dtype", [](const Tensor& self) { return self.dtype(); })
      .def_prop_ro(
          "shape", [](const Tensor& self) { return tuple_of(self.shape()); },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("ndim", [](const Tensor& self) { return self.shape().rank(); })
      .def_prop_ro("size", [](const Tensor& self) { return self.shape().elements(); })
      .def_prop_ro("nbytes", [](const Tensor& self) { return self.size_bytes(); })
      .def("item", &item, nb::sig("def item(self) -> int | float | bool"),
           "Its one element. ShapeError when it has not one.")
      .def("numpy", &numpy_array, nb::sig("def numpy(self) -> NDArray[typing.Any]"),
           "A NumPy array in the same memory: a write to one is a write to the other. DtypeError of bf16, which NumPy "
           "has not.")
      .def(
          "astype", [](const Tensor& self, nb::object dtype) { return converted(self, dtype_of(dtype)); },
          nb::arg("dtype"), nb::sig("def astype(self, dtype: DType | str) -> Tensor"),
          "Every element converted, in memory of its own.")
      .def(
          "copy", [](const Tensor& self) { return copied(self); }, "The same elements in memory of its own.")
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
             if (self.shape().rank() == 0) refuse_tensor(ErrorKind::shape, "len: the tensor is a scalar");
             return self.shape()[0];
           })
      .def("__repr__", [](nb::handle self) {
        const Tensor& tensor = nb::cast<Tensor&>(self);
        const std::string type = to_string(tensor.type());
        if (tensor.shape().elements() > 8) return "Tensor(" + type + ")";
        return "Tensor(" + type + ": " + nb::cast<std::string>(nb::repr(self.attr("tolist")())) + ")";
      });
  bind_tensor_arrays(type);
  nb::class_<ParameterValue, Tensor>(module, "ParameterValue", nb::type_slots(tensor_slots),
                                     "A copy of a parameter's value, which is read-only: parameters[name] = array sets "
                                     "the parameter, and copy() is a Tensor to write to.");
}

}  // namespace paoding::python
