// SPDX-License-Identifier: Apache-2.0
// Tensor's operators, indexing and methods: NumPy does them on the tensor's memory, and the results are its arrays.
#include <nanobind/nanobind.h>
#include <nanobind/stl/string.h>

#include <cstring>

#include "arrays.h"
#include "paoding/error.h"

namespace paoding::python {

nb::object elements_of(nb::handle object) {
  if (!nb::isinstance<Tensor>(object)) return nb::borrow(object);
  const bool is_numpys = nb::cast<Tensor&>(object).dtype() != DType::bf16;
  return is_numpys ? object.attr("numpy")() : object.attr("astype")(DType::f32).attr("numpy")();
}

namespace {

nb::object key_of(nb::handle key) {
  if (PyTuple_Check(key.ptr()) == 0) return elements_of(key);
  nb::list keys;
  for (nb::handle each : key) keys.append(elements_of(each));
  return nb::tuple(keys);
}

void set_elements(nb::handle self, nb::handle key, nb::handle value) {
  if (nb::isinstance<ParameterValue>(self)) throw Error(ErrorKind::argument, kCopyOfParameter);
  const nb::object elements = elements_of(self);
  elements.attr("__setitem__")(key_of(key), elements_of(value));
  Tensor& tensor = nb::cast<Tensor&>(self);
  if (tensor.dtype() != DType::bf16) return;
  const Tensor made =
      nb::cast<Tensor>(nb::cast(tensor_of(elements, std::nullopt, {"value"})).attr("astype")(DType::bf16));
  if (made.size_bytes() > 0) std::memcpy(tensor.bytes(), made.bytes(), static_cast<std::size_t>(made.size_bytes()));
}

nb::object formatted(nb::handle self, const nb::str& spec) {
  if (nb::cast<Tensor&>(self).shape().rank() == 0) return self.attr("item")().attr("__format__")(spec);
  if (nb::len(spec) == 0) return nb::str(self);
  return elements_of(self).attr("__format__")(spec);
}

nb::object rounded(nb::handle self, nb::object digits) {
  if (nb::cast<Tensor&>(self).shape().rank() == 0) return self.attr("item")().attr("__round__")(digits);
  return elements_of(self).attr("round")(digits.is_none() ? nb::object(nb::int_(0)) : digits);
}

void bind_array_operators(nb::class_<Tensor>& type) {
  const auto bind = [&type](const std::string& name) {
    type.def(
        name.c_str(),
        [name](nb::handle self, nb::handle other) {
          return elements_of(self).attr(name.c_str())(elements_of(other));  // NotImplemented too
        },
        nb::arg("other").none(), nb::sig(("def " + name + "(self, other: typing.Any) -> typing.Any").c_str()));
  };
  for (const char* name : {"add", "sub", "mul", "truediv", "floordiv", "mod", "pow", "matmul", "and", "or", "xor",
                           "lshift", "rshift", "divmod"}) {
    bind(std::string("__") + name + "__");
    bind(std::string("__r") + name + "__");
  }
  for (const char* name : {"__lt__", "__le__", "__gt__", "__ge__", "__eq__", "__ne__"}) bind(name);
  for (const char* name : {"__neg__", "__pos__", "__abs__", "__invert__"}) {
    type.def(
        name, [name](nb::handle self) { return elements_of(self).attr(name)(); },
        nb::sig((std::string("def ") + name + "(self) -> typing.Any").c_str()));
  }
  type.def(
          "__getitem__", [](nb::handle self, nb::handle key) { return nb::object(elements_of(self)[key_of(key)]); },
          nb::arg("key").none(), nb::sig("def __getitem__(self, key: typing.Any) -> typing.Any"))
      .def("__setitem__", &set_elements, nb::arg("key").none(), nb::arg("value"),
           nb::sig("def __setitem__(self, key: typing.Any, value: typing.Any) -> None"))
      .def(
          "__iter__", [](nb::handle self) { return elements_of(self).attr("__iter__")(); },
          nb::sig("def __iter__(self) -> collections.abc.Iterator[typing.Any]"))
      .def(
          "__contains__",
          [](nb::handle self, nb::handle value) { return elements_of(self).attr("__contains__")(elements_of(value)); },
          nb::arg("value").none(), nb::sig("def __contains__(self, value: typing.Any) -> bool"))
      .def(
          "__index__", [](nb::handle self) { return elements_of(self).attr("__index__")(); },
          nb::sig("def __index__(self) -> int"))
      .def("__format__", &formatted, nb::arg("spec"), nb::sig("def __format__(self, spec: str) -> str"))
      .def("__round__", &rounded, nb::arg("digits") = nb::none(),
           nb::sig("def __round__(self, digits: int | None = None) -> typing.Any"))
      .def("__hash__",
           [](nb::handle self) { return static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(self.ptr()) / 16); });
}

void bind_array_methods(nb::class_<Tensor>& type) {
  for (const char* name :
       {"all",     "any",     "argmax", "argmin", "argsort",  "clip", "cumprod",   "cumsum", "dot",
        "flatten", "max",     "mean",   "min",    "nonzero",  "prod", "ravel",     "repeat", "reshape",
        "round",   "squeeze", "std",    "sum",    "swapaxes", "take", "transpose", "var"}) {
    type.def(
        name,
        [name](nb::handle self, const nb::args& given, const nb::kwargs& options) {
          nb::list arguments;
          for (nb::handle each : given) arguments.append(elements_of(each));
          return elements_of(self).attr(name)(*nb::tuple(arguments), **options);
        },
        nb::sig(
            (std::string("def ") + name + "(self, *args: typing.Any, **options: typing.Any) -> typing.Any").c_str()));
  }
  type.def_prop_ro(
      "T", [](nb::handle self) { return nb::object(elements_of(self).attr("T")); },
      nb::sig("def T(self) -> NDArray[typing.Any]"));
}

}  // namespace

void bind_tensor_arrays(nb::class_<Tensor>& type) {
  bind_array_operators(type);
  bind_array_methods(type);
}

}  // namespace paoding::python
