// SPDX-License-Identifier: Apache-2.0
// Value's reductions and methods with NumPy's names, arguments and defaults. Integers and bools are taken where NumPy
// takes them; a mean of theirs is an f32, the dtype that numbers without one have here.
#include <nanobind/nanobind.h>
#include <nanobind/stl/optional.h>

#include <initializer_list>
#include <string>
#include <utility>

#include "arrays.h"
#include "calls.h"
#include "paoding/ops.h"

namespace paoding::python {
namespace {

using ValueClass = nb::class_<ValueHandle>;
using MaybeAxis = nb::object;  // None: all, of the value as one row

nb::object called_op(const char* op, nb::handle value,
                     std::initializer_list<std::pair<const char*, nb::object>> given) {
  nb::dict attrs;
  for (const auto& [name, each] : given) attrs[name] = each;
  return nb::cast(call_op(op, nb::make_tuple(value), attrs, nullptr).at(0));
}

Value plain(nb::handle value) { return nb::cast<ValueHandle&>(value); }
nb::object cast_to(nb::handle value, DType dtype) { return nb::cast(wrap(cast(plain(value), dtype))); }
nb::object flat(nb::handle value) {
  return nb::cast(wrap(reshape(plain(value), Shape{plain(value).shape().elements()})));
}

// Sums of bools and of u8, which hold no sum, are counted in i64.
nb::object summable(nb::handle value) {
  const DType dtype = plain(value).dtype();
  return dtype == DType::boolean || dtype == DType::u8 ? cast_to(value, DType::i64) : nb::borrow(value);
}

nb::object mean_of(nb::handle value, MaybeAxis axis, bool keepdims) {
  if (is_float(plain(value).dtype())) {
    return called_op("mean", value, {{"axes", axis}, {"keepdims", nb::bool_(keepdims)}});
  }
  const nb::object whole = cast_to(value, DType::i64);
  const nb::object sum = called_op("sum", whole, {{"axes", axis}, {"keepdims", nb::bool_(keepdims)}});
  const std::int64_t results = plain(sum).shape().elements();
  const double count = results == 0 ? 0 : static_cast<double>(plain(whole).shape().elements() / results);
  const nb::object quotient = cast_to(sum, DType::f64).attr("__truediv__")(count);
  return cast_to(quotient, DType::f32);
}

nb::object variance_of(nb::handle value, MaybeAxis axis, bool keepdims, std::int64_t correction, nb::object ddof) {
  const nb::object attr = ddof.is_none() ? nb::object(nb::int_(correction)) : ddof;
  const auto var = [&](nb::handle of) {
    return called_op("var", of, {{"axes", axis}, {"keepdims", nb::bool_(keepdims)}, {"correction", attr}});
  };
  if (is_float(plain(value).dtype())) return var(value);
  return cast_to(var(cast_to(value, DType::f64)), DType::f32);
}

nb::object place_of(const char* op, nb::handle value, MaybeAxis axis, bool keepdims) {
  if (!axis.is_none()) return called_op(op, value, {{"axis", axis}, {"keepdims", nb::bool_(keepdims)}});
  const nb::object place = called_op(op, flat(value), {{"axis", nb::int_(0)}});
  if (!keepdims) return place;
  const std::vector<std::int64_t> ones(static_cast<std::size_t>(plain(value).shape().rank()), 1);
  return nb::cast(wrap(reshape(plain(place), Shape{std::span<const std::int64_t>(ones)})));
}

nb::object running(const char* op, nb::handle value, MaybeAxis axis) {
  const nb::object numbers = summable(value);
  if (axis.is_none()) return called_op(op, flat(numbers), {{"axis", nb::int_(0)}});
  return called_op(op, numbers, {{"axis", axis}});
}

// a @ b, of which one is a Value; a vector is a row on the left, and a column on the right.
nb::object product(nb::handle a, nb::handle b) {
  for (nb::handle each : {a, b}) {
    if (!is_operand(each)) return nb::borrow(Py_NotImplemented);
  }
  const bool a_is_value = nb::isinstance<ValueHandle>(a);
  const Value beside = plain(a_is_value ? a : b);
  Value left = input_of(a, beside, nullptr, "matmul"), right = input_of(b, beside, nullptr, "matmul");
  const bool is_row = left.shape().rank() == 1 && right.shape().rank() > 0;
  const bool is_column = right.shape().rank() == 1 && left.shape().rank() > 0;
  if (is_row) left = reshape(left, Shape{1, left.shape()[0]});
  if (is_column) right = reshape(right, Shape{right.shape()[0], 1});
  const nb::tuple inputs = nb::make_tuple(wrap(left), wrap(right));
  const Value made = plain(nb::cast(call_op("matmul", inputs, nb::none(), nullptr).at(0)));
  std::vector<std::int64_t> extents(made.shape().begin(), made.shape().end());
  if (is_column) extents.pop_back();
  if (is_row) extents.erase(extents.end() - (is_column ? 1 : 2));
  return nb::cast(wrap(is_row || is_column ? reshape(made, Shape{std::span<const std::int64_t>(extents)}) : made));
}

nb::object clipped(nb::object value, nb::object least, nb::object most) {
  const auto with = [](const char* op, nb::object a, nb::object b) {
    return nb::cast(call_op(op, nb::make_tuple(a, b), nb::none(), nullptr).at(0));
  };
  if (!least.is_none()) value = with("maximum", value, least);
  return most.is_none() ? value : with("minimum", value, most);
}

nb::object rounded_to(nb::object value, int decimals) {
  if (!is_float(plain(value).dtype())) return value;
  if (decimals == 0) return called_op("round", value, {});
  const double scale = std::pow(10.0, decimals);
  return called_op("round", value.attr("__mul__")(scale), {}).attr("__truediv__")(scale);
}

nb::object taken(nb::object value, nb::object indices, MaybeAxis axis) {
  if (axis.is_none()) return flat(value)[indices];
  const int rank = plain(value).shape().rank();
  const int given = nb::cast<int>(axis), at = given < 0 ? given + rank : given;
  if (at < 0 || at >= rank) {
    throw nb::index_error(
        ("take: a value of " + std::to_string(rank) + " axes has no axis " + std::to_string(given)).c_str());
  }
  nb::list key;
  for (int i = 0; i < at; ++i) key.append(nb::steal(PySlice_New(nullptr, nullptr, nullptr)));
  key.append(indices);
  return value[nb::tuple(key)];
}

#define PD_AXIS "axis: int | collections.abc.Sequence[int] | None = None, keepdims: bool = False"

void bind_sums(ValueClass& type) {
  for (const char* name : {"sum", "prod", "max", "min", "any", "all"}) {
    type.def(
        name,
        [name, is_sum = name == std::string("sum") || name == std::string("prod")](nb::handle self, nb::object axis,
                                                                                   bool keepdims) {
          return called_op(name, is_sum ? summable(self) : nb::borrow(self),
                           {{"axes", axis}, {"keepdims", nb::bool_(keepdims)}});
        },
        nb::arg("axis") = nb::none(), nb::arg("keepdims") = false,
        nb::sig((std::string("def ") + name + "(self, " PD_AXIS ") -> Value").c_str()));
  }
  type.def("mean", &mean_of, nb::arg("axis") = nb::none(), nb::arg("keepdims") = false,
           nb::sig("def mean(self, " PD_AXIS ") -> Value"), "Of integers and bools an f32.");
  const auto bind_spread = [&type](const char* name, bool is_root, const char* doc) {
    type.def(
        name,
        [is_root](nb::handle self, nb::object axis, bool keepdims, std::int64_t correction, nb::object ddof) {
          const nb::object variance = variance_of(self, axis, keepdims, correction, ddof);
          return is_root ? called_op("sqrt", variance, {}) : variance;
        },
        nb::arg("axis") = nb::none(), nb::arg("keepdims") = false, nb::kw_only(), nb::arg("correction") = 0,
        nb::arg("ddof") = nb::none(),
        nb::sig((std::string("def ") + name +
                 "(self, " PD_AXIS ", *, correction: int = 0, ddof: int | None = None) -> Value")
                    .c_str()),
        doc);
  };
  bind_spread("var", false, "sum((a - mean)^2) / (count - correction); ddof is NumPy's name of correction.");
  bind_spread("std", true, "The square root of var().");
}

void bind_places(ValueClass& type) {
  for (const char* name : {"argmax", "argmin"}) {
    type.def(
        name, [name](nb::handle self, nb::object axis, bool keepdims) { return place_of(name, self, axis, keepdims); },
        nb::arg("axis") = nb::none(), nb::arg("keepdims") = false,
        nb::sig(
            (std::string("def ") + name + "(self, axis: int | None = None, keepdims: bool = False) -> Value").c_str()),
        "Along an axis, or in the value as one row.");
  }
  for (const char* name : {"cumsum", "cumprod"}) {
    type.def(
        name, [name](nb::handle self, nb::object axis) { return running(name, self, axis); },
        nb::arg("axis") = nb::none(),
        nb::sig((std::string("def ") + name + "(self, axis: int | None = None) -> Value").c_str()));
  }
  type.def(
      "argsort",
      [](nb::handle self, int axis) {
        return called_op("argsort", self, {{"axis", nb::int_(axis)}});
      },
      nb::arg("axis") = -1, nb::sig("def argsort(self, axis: int = -1) -> Value"));
}

void bind_forms(ValueClass& type) {
  for (const char* name : {"flatten", "ravel"}) {
    type.def(name, &flat, nb::sig((std::string("def ") + name + "(self) -> Value").c_str()),
             "The elements as one row.");
  }
  type.def(
          "squeeze",
          [](nb::handle self, nb::object axis) {
            return called_op("squeeze", self, {{"axes", axis}});
          },
          nb::arg("axis") = nb::none(),
          nb::sig("def squeeze(self, axis: int | collections.abc.Sequence[int] | None = None) -> Value"))
      .def(
          "swapaxes",
          [](nb::handle self, int first, int second) {
            return called_op("swap_axes", self, {{"first", nb::int_(first)}, {"second", nb::int_(second)}});
          },
          nb::arg("axis1"), nb::arg("axis2"), nb::sig("def swapaxes(self, axis1: int, axis2: int) -> Value"))
      .def(
          "repeat",
          [](nb::handle self, std::int64_t repeats, nb::object axis) {
            const nb::object row = axis.is_none() ? flat(self) : nb::borrow(self);
            return called_op("repeat", row,
                             {{"times", nb::int_(repeats)}, {"axis", axis.is_none() ? nb::object(nb::int_(0)) : axis}});
          },
          nb::arg("repeats"), nb::arg("axis") = nb::none(),
          nb::sig("def repeat(self, repeats: int, axis: int | None = None) -> Value"))
      .def("take", &taken, nb::arg("indices"), nb::arg("axis") = nb::none(),
           nb::sig("def take(self, indices: typing.Any, axis: int | None = None) -> Value"))
      .def("clip", &clipped, nb::arg("min") = nb::none(), nb::arg("max") = nb::none(),
           nb::sig("def clip(self, min: ValueLike | None = None, max: ValueLike | None = None) -> Value"))
      .def("round", &rounded_to, nb::arg("decimals") = 0, nb::sig("def round(self, decimals: int = 0) -> Value"))
      .def(
          "dot", [](nb::handle self, nb::handle other) { return product(self, other); }, nb::arg("other"),
          nb::sig("def dot(self, other: ValueLike) -> Value"))
      .def(
          "__matmul__", [](nb::handle self, nb::handle other) { return product(self, other); }, nb::arg("other"),
          nb::sig("def __matmul__(self, other: ValueLike) -> Value"))
      .def(
          "__rmatmul__", [](nb::handle self, nb::handle other) { return product(other, self); }, nb::arg("other"),
          nb::sig("def __rmatmul__(self, other: ValueLike) -> Value"));
}

}  // namespace

void bind_value_methods(nb::class_<ValueHandle>& type) {
  bind_sums(type);
  bind_places(type);
  bind_forms(type);
}

}  // namespace paoding::python
