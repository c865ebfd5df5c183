// SPDX-License-Identifier: Apache-2.0
// Comparisons, logic, and the choice between two values.
#include <limits>

#include "ops/families.h"
#include "ops/formula_op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

template <class F>
void register_binary(const char* name, const char* summary, F f, const std::vector<OpCase>& cases) {
  register_op({.name = name,
               .summary = summary,
               .kind = OpKind::formula,
               .inputs = {"a", "b"},
               .formula = formula(f),
               .cases = cases});
}

// Integers are allowed too, which are finite numbers; infinity has no constant there.
Scalar is_nan(Scalar a) { return logical_not(equal(a, a)); }
Scalar is_infinite(Scalar a) {
  if (!is_float(a.dtype())) return is_nan(a);
  return equal(abs(a), a.constant(std::numeric_limits<double>::infinity()));
}

}  // namespace

void register_comparison_ops() {
  const std::vector<OpCase> logical = {
      {.shapes = {{4, 3}, {3}}, .dtypes = {boolean, boolean}},
      {.shapes = {{2, 0}, {}}, .dtypes = {boolean, boolean}},
      {.shapes = {{4, 3}, {4, 3}}, .error = "takes bools"},
  };
  // ---- comparisons ----
  register_primitive("less", "a < b, a bool", Prim::less, 2);
  register_primitive("less_equal", "a <= b, a bool", Prim::less_equal, 2);
  register_primitive("equal", "a == b, a bool", Prim::equal, 2);
  register_binary(
      "greater", "a > b, a bool", [](Scalar a, Scalar b) { return a > b; }, binary_cases());
  register_binary(
      "greater_equal", "a >= b, a bool", [](Scalar a, Scalar b) { return a >= b; }, binary_cases());
  register_binary(
      "not_equal", "a != b, a bool", [](Scalar a, Scalar b) { return logical_not(equal(a, b)); }, binary_cases());
  register_unary("isnan", "whether a is NaN, a bool", is_nan, unary_cases());
  register_unary("isinf", "whether a is infinite, a bool", is_infinite, unary_cases());
  register_unary(
      "isfinite", "whether a is neither NaN nor infinite, a bool",
      [](Scalar a) { return logical_not(logical_or(is_nan(a), is_infinite(a))); }, unary_cases());

  // ---- logic ----
  register_primitive("logical_and", "a and b, bools", Prim::logical_and, 2, logical);
  register_primitive("logical_or", "a or b, bools", Prim::logical_or, 2, logical);
  register_primitive("logical_not", "not a, a bool", Prim::logical_not, 1,
                     {{.shapes = {{4, 3}}, .dtypes = {boolean}}, {.shapes = {{4, 3}}, .error = "takes bools"}});
  register_binary(
      "logical_xor", "either a or b, bools",
      [](Scalar a, Scalar b) { return logical_and(logical_or(a, b), logical_not(logical_and(a, b))); }, logical);

  // ---- select ----
  register_op({
      .name = "select",
      .summary = "condition ? a : b",
      .kind = OpKind::formula,
      .inputs = {"condition", "a", "b"},
      .conditions = 1,
      .precision = PrecisionRule::moves,
      .formula = formula([](Scalar condition, Scalar a, Scalar b) { return select(condition, a, b); }),
      .cases = {{.shapes = {{4, 3}, {4, 3}, {3}}, .dtypes = {boolean, f32, f32}},
                {.shapes = {{3}, {3}, {3}}, .error = "condition is f32"}},
  });
}

Value less(const Value& a, const Value& b) { return call("less", {a, b}); }
Value less_equal(const Value& a, const Value& b) { return call("less_equal", {a, b}); }
Value greater(const Value& a, const Value& b) { return call("greater", {a, b}); }
Value greater_equal(const Value& a, const Value& b) { return call("greater_equal", {a, b}); }
Value equal(const Value& a, const Value& b) { return call("equal", {a, b}); }
Value not_equal(const Value& a, const Value& b) { return call("not_equal", {a, b}); }
Value logical_and(const Value& a, const Value& b) { return call("logical_and", {a, b}); }
Value logical_or(const Value& a, const Value& b) { return call("logical_or", {a, b}); }
Value logical_xor(const Value& a, const Value& b) { return call("logical_xor", {a, b}); }
Value less(const Value& a, Number b) { return less(a, constant_like("less", a, b)); }
Value less_equal(const Value& a, Number b) { return less_equal(a, constant_like("less_equal", a, b)); }
Value greater(const Value& a, Number b) { return greater(a, constant_like("greater", a, b)); }
Value greater_equal(const Value& a, Number b) { return greater_equal(a, constant_like("greater_equal", a, b)); }
Value equal(const Value& a, Number b) { return equal(a, constant_like("equal", a, b)); }
Value not_equal(const Value& a, Number b) { return not_equal(a, constant_like("not_equal", a, b)); }
Value logical_not(const Value& a) { return call("logical_not", {a}); }
Value isnan(const Value& a) { return call("isnan", {a}); }
Value isinf(const Value& a) { return call("isinf", {a}); }
Value isfinite(const Value& a) { return call("isfinite", {a}); }
Value select(const Value& condition, const Value& a, const Value& b) { return call("select", {condition, a, b}); }
Value select(const Value& condition, const Value& a, Number b) {
  return select(condition, a, constant_like("select", a, b));
}
Value select(const Value& condition, Number a, const Value& b) {
  return select(condition, constant_like("select", b, a), b);
}
Value where(const Value& condition, const Value& a, const Value& b) { return select(condition, a, b); }
Value where(const Value& condition, const Value& a, Number b) { return select(condition, a, b); }
Value where(const Value& condition, Number a, const Value& b) { return select(condition, a, b); }

}  // namespace paoding
