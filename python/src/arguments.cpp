// SPDX-License-Identifier: Apache-2.0
// Arguments of Python's that may be written in several ways: dtypes, shapes, numbers, names, paths and devices.
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "paoding/error.h"

namespace paoding::python {

std::string printed(const nb::object& object) { return text_of(nb::str(nb::handle(object))); }

namespace {

[[noreturn]] void refuse_argument(ErrorKind kind, const std::string& message) { throw Error(kind, message); }

// float32, of numpy.float32; nothing of a class that is not NumPy's.
std::string type_name_of_class(nb::handle type) {
  if (printed(type.attr("__module__")) != "numpy") return "";
  const std::string name = printed(type.attr("__name__"));
  return name == "bool_" ? "bool" : name;
}

}  // namespace

DType dtype_of(nb::handle object) {
  if (nb::isinstance<DType>(object)) return nb::cast<DType>(object);
  const std::string text = text_of(nb::str(object));
  DType dtype{};
  if (parse_dtype(text, &dtype)) return dtype;
  // NumPy's and PyTorch's: numpy.float32, numpy.dtype('float32'), torch.float32, 'float32'.
  const bool is_class = PyType_Check(object.ptr()) != 0;
  const std::string name = is_class ? type_name_of_class(object) : text.substr(text.rfind('.') + 1);
  constexpr const char* names[] = {"float64", "float32", "float16", "bfloat16", "int64", "int32", "uint8", "bool"};
  for (std::size_t i = 0; i < std::size(names); ++i) {
    if (name == names[i]) return static_cast<DType>(i);
  }
  refuse_argument(ErrorKind::dtype, "'" + text + "' is no dtype: f64, f32, f16, bf16, i64, i32, u8 and bool are");
}

std::vector<std::int64_t> integers_of(nb::handle object, const std::string& name) {
  std::vector<std::int64_t> list(1);
  if (PyLong_Check(object.ptr()) != 0 ? nb::try_cast(object, list[0]) : nb::try_cast(object, list)) return list;
  refuse_argument(ErrorKind::argument,
                  name + " is " + text_of(nb::repr(object)) + ", needed is an integer of 64 bits or a list of such");
}

Shape shape_of(nb::handle object) {
  const auto extents = integers_of(object, "the shape");
  return Shape(std::span<const std::int64_t>(extents));
}

std::string text_of(nb::handle object) {
  const nb::object bytes = nb::steal(PyUnicode_AsEncodedString(object.ptr(), "utf-8", "backslashreplace"));
  if (!bytes.is_valid()) throw nb::python_error();
  return {PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr()))};
}

std::string type_name_of(nb::handle object) { return text_of(nb::str(object.type().attr("__name__"))); }

std::string name_of(nb::handle object, const std::string& role) {
  if (PyUnicode_Check(object.ptr()) == 0) {
    throw nb::type_error((role + " is " + text_of(nb::repr(object)) + ", needed is a str").c_str());
  }
  std::string name;
  if (nb::try_cast(object, name)) return name;
  throw nb::value_error((role + " is " + text_of(nb::repr(object)) + ", which is no Unicode text").c_str());
}

nb::dict dict_of(nb::handle object, const std::string& what, const char* needed) {
  if (PyDict_Check(object.ptr()) != 0) return nb::borrow<nb::dict>(object);
  throw nb::type_error((what + " is of type " + type_name_of(object) + ", needed is " + needed).c_str());
}

std::filesystem::path path_of(nb::handle object) {
  const nb::object bytes = [&] {
    PyObject* made = nullptr;  // as open() takes it: str, bytes or os.PathLike, without a NUL
    if (PyUnicode_FSConverter(object.ptr(), &made) == 0) throw nb::python_error();
    return nb::steal(made);
  }();
  return std::string(PyBytes_AsString(bytes.ptr()), static_cast<std::size_t>(PyBytes_Size(bytes.ptr())));
}

bool is_number(nb::handle object) {
  return PyBool_Check(object.ptr()) != 0 || PyLong_Check(object.ptr()) != 0 || PyFloat_Check(object.ptr()) != 0;
}

Number number_of(nb::handle object) {
  if (PyBool_Check(object.ptr()) != 0) return std::int64_t{object.ptr() == Py_True};
  if (PyLong_Check(object.ptr()) == 0) return nb::cast<double>(object);
  std::int64_t whole = 0;
  if (nb::try_cast(object, whole)) return whole;
  return nb::cast<double>(nb::float_(object));  // beyond the range of an i64
}

Device device_of(const std::string& text) {
  if (text == "cpu") return Device::cpu();
  if (text == "best") return Device::best();
  if (text == "cuda") return Device::cuda();
  if (text.starts_with("cuda:") && text.size() > 5 && text.size() < 9 &&
      text.find_first_not_of("0123456789", 5) == std::string::npos) {
    return Device::cuda(std::stoi(text.substr(5)));
  }
  refuse_argument(ErrorKind::argument, "'" + text + "' is no device: 'cpu', 'cuda', 'cuda:1' and 'best' are");
}

}  // namespace paoding::python
