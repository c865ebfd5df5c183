// SPDX-License-Identifier: Apache-2.0
// Scalar: a number of a formula that is being traced. Every formula op takes it, so that formulas are written with the
// functions and operators that Values have.
#include "scalars.h"

#include <nanobind/stl/string.h>

#include <cmath>

#include "arrays.h"
#include "paoding/error.h"
#include "paoding/op.h"

namespace paoding::python {
namespace {

using namespace nb::literals;

Scalar scalar_beside(nb::handle object, const Scalar& beside, const std::string& op) {
  if (nb::isinstance<Scalar>(object)) return nb::cast<Scalar>(object);
  if (!is_number(object)) {
    throw Error(ErrorKind::argument, op + ": a formula computes with its arguments and numbers, not with " +
                                         text_of(nb::repr(object)) +
                                         "\nhint: give it as an argument of the op; a number that is fixed is a float");
  }
  const Number number = number_of(object);
  const DType dtype = beside.dtype() == DType::boolean && PyBool_Check(object.ptr()) == 0 ? DType::f32 : beside.dtype();
  if (!is_integer(dtype)) return make_constant(beside.expr(), number.real(), dtype);
  const double whole = std::trunc(number.real());
  if (whole != number.real()) {
    throw Error(ErrorKind::dtype, op + ": " + text_of(nb::repr(object)) + " beside a scalar of " +
                                      std::string(to_string(dtype)) + "\nhint: a.astype('f32')");
  }
  return make_constant(beside.expr(), static_cast<std::int64_t>(whole), dtype);
}

bool is_formula_for_scalars(const OpDef& op) { return op.kind == OpKind::formula && op.formula; }

nb::object binary_of(const char* op, bool is_reflected, nb::handle self, nb::handle other) {
  if (!nb::isinstance<Scalar>(other) && !is_number(other)) return nb::borrow(Py_NotImplemented);
  const nb::tuple inputs = is_reflected ? nb::make_tuple(other, self) : nb::make_tuple(self, other);
  return nb::cast(call_on_scalars(op, inputs, Attrs()));
}

// Small whole powers are products, as those of Values are.
Scalar scalar_power(const Scalar& base, nb::handle exponent) {
  double number = 0;
  if (is_number(exponent)) number = number_of(exponent).real();
  if (number == 1) return base;
  if (number == 2) return base * base;
  if (number == 3) return base * base * base;
  if (number == 4) return (base * base) * (base * base);
  if (number == 0.5) return sqrt(base);
  return pow(base, scalar_beside(exponent, base, "pow"));
}

}  // namespace

bool has_scalar(nb::handle inputs) {
  for (nb::handle each : inputs) {
    if (nb::isinstance<Scalar>(each)) return true;
  }
  return false;
}

Scalar call_on_scalars(const std::string& name, nb::handle given, const Attrs& attrs) {
  const OpDef* op = find_op(name);
  if (op == nullptr) throw Error(ErrorKind::argument, "there is no op '" + name + "'");
  if (!is_formula_for_scalars(*op)) {
    throw Error(ErrorKind::argument, name +
                                         ": is no function of single numbers, so no formula can use it\n"
                                         "hint: an op that is made of others takes Values: pd.custom_gradient");
  }
  Scalar beside;  // the first that is no condition
  int at = 0;
  for (nb::handle each : given) {
    const bool is_condition = at++ < op->conditions;
    if (!nb::isinstance<Scalar>(each)) continue;
    const Scalar scalar = nb::cast<Scalar>(each);
    if (!is_condition || beside.expr() == nullptr) beside = scalar;
    if (!is_condition) break;
  }
  std::vector<Scalar> inputs;
  for (nb::handle each : given) {
    if (!each.is_none()) inputs.push_back(scalar_beside(each, beside, name));
  }
  if (!op->takes(inputs.size())) {
    throw Error(ErrorKind::argument, name + ": has " + std::to_string(inputs.size()) + " inputs");
  }
  const auto first = static_cast<std::size_t>(op->conditions);
  DType dtype = inputs[first].dtype();
  for (std::size_t i = first; i < inputs.size(); ++i) dtype = promote(dtype, inputs[i].dtype());
  for (std::size_t i = first; i < inputs.size(); ++i) {
    if (inputs[i].dtype() != dtype) inputs[i] = convert(inputs[i], dtype);
  }
  Attrs complete = attrs;
  for (const AttrSpec& spec : op->attrs) {
    if (attrs.find(spec.name) == nullptr) complete.set(spec.name, spec.example);
  }
  return op->formula(inputs, complete);
}

void bind_scalars(nb::module_& module) {
  nb::class_<Scalar> type(module, "Scalar",
                          "A number of a formula (pd.op) while it is traced: one element of each argument. It has a "
                          "Value's operators, and functions of single numbers (pd.exp, pd.where ..) take it.");
  type.def_prop_ro("dtype", &Scalar::dtype)
      .def("__repr__", [](const Scalar& self) { return "Scalar(" + std::string(to_string(self.dtype())) + ")"; })
      .def("__bool__", [](const Scalar&) -> bool {
        throw nb::type_error("a formula is traced once for all elements, so it has no `if`: use pd.where");
      });
  constexpr std::pair<const char*, const char*> kOperators[] = {{"add", "add"},
                                                                {"sub", "sub"},
                                                                {"mul", "mul"},
                                                                {"truediv", "div"},
                                                                {"floordiv", "floor_divide"},
                                                                {"mod", "remainder"},
                                                                {"and", "logical_and"},
                                                                {"or", "logical_or"},
                                                                {"xor", "logical_xor"}};
  for (const auto& [name, op] : kOperators) {
    for (const bool is_reflected : {false, true}) {
      const std::string method = std::string(is_reflected ? "__r" : "__") + name + "__";
      type.def(
          method.c_str(),
          [op = op, is_reflected](nb::handle self, nb::handle other) {
            return binary_of(op, is_reflected, self, other);
          },
          "other"_a, nb::sig(("def " + method + "(self, other: Scalar | float) -> Scalar").c_str()));
    }
  }
  constexpr std::pair<const char*, const char*> kComparisons[] = {{"__lt__", "less"},    {"__le__", "less_equal"},
                                                                  {"__gt__", "greater"}, {"__ge__", "greater_equal"},
                                                                  {"__eq__", "equal"},   {"__ne__", "not_equal"}};
  for (const auto& [name, op] : kComparisons) {
    type.def(
        name, [op = op](nb::handle self, nb::handle other) { return binary_of(op, false, self, other); }, "other"_a,
        nb::sig((std::string("def ") + name + "(self, other: Scalar | float) -> Scalar").c_str()));
  }
  type.def("__pow__", &scalar_power, "exponent"_a, nb::sig("def __pow__(self, exponent: Scalar | float) -> Scalar"))
      .def(
          "__rpow__", [](const Scalar& self, nb::handle base) { return pow(scalar_beside(base, self, "pow"), self); },
          "base"_a, nb::sig("def __rpow__(self, base: float) -> Scalar"))
      .def("__neg__", [](const Scalar& self) { return -self; })
      .def("__abs__", [](const Scalar& self) { return abs(self); })
      .def("__invert__", [](const Scalar& self) { return logical_not(self); })
      .def("__hash__", [](const Scalar& self) { return static_cast<Py_hash_t>(self.id()); })
      .def(
          "astype", [](const Scalar& self, nb::object dtype) { return convert(self, dtype_of(dtype)); }, "dtype"_a,
          nb::sig("def astype(self, dtype: DType | str) -> Scalar"));
  type.attr("__array_ufunc__") = nb::none();  // NumPy's numbers leave operators to the Scalar
}

}  // namespace paoding::python
