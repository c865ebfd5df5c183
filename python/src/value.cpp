// SPDX-License-Identifier: Apache-2.0
// Value: operators and NumPy's methods, all of them calls of ops.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>
#include <nanobind/stl/string.h>
#include <nanobind/stl/vector.h>

#include "arrays.h"
#include "calls.h"
#include "paoding/error.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding::python {
namespace {

using Ints = std::vector<std::int64_t>;

ValueHandle one(const char* op, nb::handle inputs, nb::handle attrs = nb::none()) {
  return call_op(op, inputs, attrs, nullptr).at(0);
}

using Class = nb::class_<ValueHandle>;

// __add__ and __radd__, of the op "add".
bool is_whole(nb::handle self) { return is_integer(Value(nb::cast<ValueHandle&>(self)).dtype()); }

// `of_integers`: another op where the value has integers, as NumPy's & has.
void bind_operator(Class& type, const char* name, const char* op, const char* of_integers = nullptr) {
  const auto bound = [op, of_integers](bool is_reflected) {
    return [op, of_integers, is_reflected](nb::handle self, nb::handle other) -> nb::object {
      if (!is_operand(other)) return nb::borrow(Py_NotImplemented);
      const char* chosen = of_integers != nullptr && is_whole(self) ? of_integers : op;
      return nb::cast(one(chosen, is_reflected ? nb::make_tuple(other, self) : nb::make_tuple(self, other)));
    };
  };
  const std::string plain = std::string("__") + name + "__", reflected = std::string("__r") + name + "__";
  const std::string sig = "(self, other: ValueLike) -> Value";
  type.def(plain.c_str(), bound(false), nb::arg("other"), nb::sig(("def " + plain + sig).c_str()));
  type.def(reflected.c_str(), bound(true), nb::arg("other"), nb::sig(("def " + reflected + sig).c_str()));
}

void bind_comparison(Class& type, const char* name, const char* op) {
  type.def(
      name,
      [op](nb::handle self, nb::handle other) -> nb::object {
        if (!is_operand(other)) return nb::borrow(Py_NotImplemented);
        return nb::cast(one(op, nb::make_tuple(self, other)));
      },
      nb::arg("other"), nb::sig((std::string("def ") + name + "(self, other: ValueLike) -> Value").c_str()));
}

ValueHandle power(nb::handle self, nb::handle other) {
  if (is_number(other)) return wrap(pow(Value(nb::cast<ValueHandle&>(self)), number_of(other).real()));
  return one("pow", nb::make_tuple(self, other));
}

// The integers of one list, or those given one by one.
Ints ints_of(const nb::args& given, const char* what) {
  return given.size() == 1 ? integers_of(given[0], what) : integers_of(given, what);
}

ValueHandle transposed(const ValueHandle& self, Ints axes) {
  const Value value = self;
  if (axes.empty()) {
    for (int axis = value.shape().rank() - 1; axis >= 0; --axis) axes.push_back(axis);
  }
  return wrap(transpose(value, axes));
}

// ---- self[...] ----

// The part of each axis that a key takes, as slice() wants it, and the axes of the result.
struct Selection {
  Ints start, end, step;
  Ints shape;  // after the slice: without axes that a number picked, with new ones
};

void take_slice(nb::handle key, std::int64_t extent, Selection* into) {
  Py_ssize_t start = 0, stop = 0, step = 0;
  if (PySlice_Unpack(key.ptr(), &start, &stop, &step) != 0) throw nb::python_error();
  const Py_ssize_t count = PySlice_AdjustIndices(extent, &start, &stop, step);
  into->start.push_back(count == 0 ? 0 : start);
  into->step.push_back(count == 0 ? 1 : step);
  // Just after the last, which -1 is in front of the first.
  into->end.push_back(count == 0 ? 0 : start + (count - 1) * step + (step > 0 ? 1 : -1));
  into->shape.push_back(count);
}

// A number that is negative counts from the end.
std::int64_t index_within(std::int64_t given, std::int64_t extent, int axis) {
  const std::int64_t index = given < 0 ? given + extent : given;
  if (index >= 0 && index < extent) return index;
  throw nb::index_error(("index " + std::to_string(given) + " is out of range for axis " + std::to_string(axis) +
                         " with " + std::to_string(extent) + " elements")
                            .c_str());
}

void take_number(nb::handle key, std::int64_t extent, int axis, Selection* into) {
  const nb::object whole = nb::steal(PyNumber_Index(key.ptr()));
  if (!whole.is_valid()) throw nb::python_error();
  const Py_ssize_t given = PyNumber_AsSsize_t(whole.ptr(), PyExc_IndexError);
  if (given == -1 && PyErr_Occurred() != nullptr) throw nb::python_error();
  const std::int64_t index = index_within(given, extent, axis);
  into->start.push_back(index);
  into->end.push_back(index + 1);
  into->step.push_back(1);
}

// Lists, arrays and Values, rather than an object that __index__ makes a number; bools too.
bool is_array_key(nb::handle key) {
  if (PyList_Check(key.ptr()) != 0 || PyBool_Check(key.ptr()) != 0 || nb::isinstance<ValueHandle>(key)) return true;
  if (PyIndex_Check(key.ptr()) == 0) return nb::hasattr(key, "shape");
  return nb::hasattr(key, "shape") && !nb::tuple(nb::object(key.attr("shape"))).empty();
}

bool has_array_key(nb::handle key) {
  if (PyTuple_Check(key.ptr()) == 0) return is_array_key(key);
  for (nb::handle each : key) {
    if (is_array_key(each)) return true;
  }
  return false;
}

ValueHandle selected(const ValueHandle& self, nb::handle key) {
  const Value value = self;
  if (has_array_key(key)) {
    const nb::object made = nb::module_::import_("paoding.indexing").attr("selected")(self, key);
    return nb::cast<ValueHandle>(made);
  }
  const nb::tuple keys = PyTuple_Check(key.ptr()) != 0 ? nb::borrow<nb::tuple>(key) : nb::make_tuple(key);
  int used = 0;  // axes that keys speak of
  bool has_ellipsis = false;
  for (nb::handle each : keys) {
    if (each.ptr() == Py_Ellipsis) has_ellipsis = true;
    used += each.ptr() != Py_Ellipsis && !each.is_none();
  }
  const int rank = value.shape().rank();
  if (used > rank) {
    throw nb::index_error(
        ("a value of shape " + to_string(value.shape()) + " has no " + std::to_string(used) + " axes").c_str());
  }
  Selection all;
  int axis = 0;
  const nb::object everything = nb::steal(PySlice_New(nullptr, nullptr, nullptr));
  const auto skip = [&](int count) {
    for (; count > 0; --count, ++axis) take_slice(everything, value.shape()[axis], &all);
  };
  for (nb::handle each : keys) {
    if (each.is_none()) {
      all.shape.push_back(1);
    } else if (each.ptr() == Py_Ellipsis) {
      skip(rank - used);
      used = rank;  // a second one stands for nothing
    } else if (PySlice_Check(each.ptr())) {
      take_slice(each, value.shape()[axis], &all);
      ++axis;
    } else if (PyIndex_Check(each.ptr()) != 0 && PyBool_Check(each.ptr()) == 0) {
      take_number(each, value.shape()[axis], axis, &all);
      ++axis;
    } else {
      throw nb::type_error(
          ("an index is of type " + type_name_of(each) +
           "; needed are numbers, slices, None, ..., integers or bools in a list or array, or Values of "
           "integers")
              .c_str());
    }
  }
  if (!has_ellipsis || axis < rank) skip(rank - axis);
  const Value part = rank == 0 ? value : slice(value, all.start, all.end, all.step);
  const Shape shape{std::span<const std::int64_t>(all.shape)};
  return wrap(part.shape() == shape ? part : reshape(part, shape));
}

}  // namespace

bool is_operand(nb::handle other) {
  return nb::isinstance<ValueHandle>(other) || is_number(other) || PyObject_CheckBuffer(other.ptr()) != 0 ||
         nb::hasattr(other, "__dlpack__") || PyList_Check(other.ptr()) != 0;
}

void bind_value(nb::module_& module) {
  Class type(module, "Value", "A value of a graph: its dtype and shape are known, its elements when a program runs.");
  type.def_prop_ro("dtype", [](const ValueHandle& self) { return Value(self).dtype(); })
      .def_prop_ro(
          "shape",
          [](const ValueHandle& self) {
            const Shape& shape = Value(self).shape();
            return nb::tuple(nb::cast(Ints(shape.begin(), shape.end())));
          },
          nb::sig("def shape(self) -> tuple[int, ...]"))
      .def_prop_ro("ndim", [](const ValueHandle& self) { return Value(self).shape().rank(); })
      .def_prop_ro("size", [](const ValueHandle& self) { return Value(self).shape().elements(); })
      .def_prop_ro("graph",
                   [](const ValueHandle& self) {
                     self.owner->get();
                     return GraphHandle{self.owner};
                   })
      .def("__repr__", [](const ValueHandle& self) { return "Value(" + to_string(Value(self).type()) + ")"; })
      .def("__len__",
           [](const ValueHandle& self) {
             const Shape& shape = Value(self).shape();
             if (shape.rank() == 0) throw nb::type_error("len() of a scalar");
             return shape[0];
           })
      .def("__bool__",
           [](const ValueHandle&) -> bool {
             throw nb::type_error("a Value has elements only when a program runs: use pd.where or pd.cond");
           })
      .def("__hash__", [](const ValueHandle& self) {
        return static_cast<Py_hash_t>(reinterpret_cast<std::uintptr_t>(self.owner.get()) / 64) +
               1000003 * self.ref.node + self.ref.output;
      });
  bind_operator(type, "add", "add");
  bind_operator(type, "sub", "sub");
  bind_operator(type, "mul", "mul");
  bind_operator(type, "truediv", "div");
  bind_operator(type, "floordiv", "floor_divide");
  bind_operator(type, "mod", "remainder");
  bind_operator(type, "and", "logical_and", "bitwise_and");
  bind_operator(type, "or", "logical_or", "bitwise_or");
  bind_operator(type, "xor", "logical_xor", "bitwise_xor");
  bind_comparison(type, "__lt__", "less");
  bind_comparison(type, "__le__", "less_equal");
  bind_comparison(type, "__gt__", "greater");
  bind_comparison(type, "__ge__", "greater_equal");
  bind_comparison(type, "__eq__", "equal");
  bind_comparison(type, "__ne__", "not_equal");
  type.def("__pow__", &power, nb::arg("other"), nb::sig("def __pow__(self, other: ValueLike) -> Value"))
      .def(
          "__rpow__", [](nb::handle self, nb::handle other) { return one("pow", nb::make_tuple(other, self)); },
          nb::arg("other"), nb::sig("def __rpow__(self, other: ValueLike) -> Value"))
      .def("__neg__", [](nb::handle self) { return one("neg", nb::make_tuple(self)); })
      .def(
          "__pos__", [](nb::object self) { return self; }, nb::sig("def __pos__(self) -> Value"))
      .def("__abs__", [](nb::handle self) { return one("abs", nb::make_tuple(self)); })
      .def("__invert__",
           [](nb::handle self) { return one(is_whole(self) ? "bitwise_not" : "logical_not", nb::make_tuple(self)); })
      .def("__getitem__", &selected, nb::arg("key").none(), nb::sig("def __getitem__(self, key: typing.Any) -> Value"));
  bind_value_methods(type);
  type.def(
          "astype", [](const ValueHandle& self, nb::object dtype) { return wrap(cast(self, dtype_of(dtype))); },
          nb::arg("dtype"), nb::sig("def astype(self, dtype: DType | str) -> Value"))
      .def(
          "reshape",
          [](const ValueHandle& self, const nb::args& shape) {
            return wrap(reshape(self, ints_of(shape, "the shape")));
          },
          nb::sig("def reshape(self, *shape: int | collections.abc.Sequence[int]) -> Value"))
      .def(
          "transpose",
          [](const ValueHandle& self, const nb::args& axes) { return transposed(self, ints_of(axes, "axes")); },
          nb::sig("def transpose(self, *axes: int | collections.abc.Sequence[int]) -> Value"))
      .def_prop_ro("T", [](const ValueHandle& self) { return transposed(self, {}); });
  // NumPy's arrays leave operators with a Value to the Value.
  type.attr("__array_ufunc__") = nb::none();
}

}  // namespace paoding::python
