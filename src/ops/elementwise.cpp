// SPDX-License-Identifier: Apache-2.0
// Elementwise ops: a scalar formula each. Broadcasting, promotion, kernels, gradients and tests are derived from it.
#include <cmath>

#include "base/check.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

const std::vector<OpCase> kUnaryCases = {
    {.shapes = {{4, 3}}}, {.shapes = {{}}}, {.shapes = {{2, 0}}}, {.shapes = {{1000}}}};
const std::vector<OpCase> kBinaryCases = {{.shapes = {{4, 3}, {4, 3}}},
                                          {.shapes = {{4, 1, 3}, {5, 1}}},
                                          {.shapes = {{}, {7}}},
                                          {.shapes = {{2, 0}, {1}}},
                                          {.shapes = {{4, 3}, {5}}, .error = "b has shape [5]"}};

const std::vector<OpCase> kLogicalCases = {
    {.shapes = {{4, 3}, {3}}, .dtypes = {boolean, boolean}},
    {.shapes = {{4, 3}, {4, 3}}, .error = "takes bools"},
};

// An op that is one scalar primitive of the same name, on one or two inputs.
void register_primitive(const char* name, const char* summary, Prim prim, int arity,
                        const std::vector<OpCase>& cases = {}) {
  register_op({
      .name = name,
      .summary = summary,
      .kind = OpKind::formula,
      .inputs = arity == 1   ? std::vector<std::string>{"a"}
                : arity == 2 ? std::vector<std::string>{"a", "b"}
                             : std::vector<std::string>{"index", "stream", "seed"},
      .formula = [prim](std::span<const Scalar> in, const Attrs&) { return apply_prim(prim, in); },
      .cases = !cases.empty() ? cases
               : arity == 1   ? kUnaryCases
                              : kBinaryCases,
  });
}

}  // namespace

void register_elementwise_ops() {
  // ---- one primitive each ----
  register_primitive("add", "a + b", Prim::add, 2);
  register_primitive("sub", "a - b", Prim::sub, 2);
  register_primitive("mul", "a * b", Prim::mul, 2);
  register_primitive("div", "a / b", Prim::div, 2);
  register_primitive("neg", "-a", Prim::neg, 1);
  register_primitive("abs", "|a|", Prim::abs, 1);
  register_primitive("minimum", "the smaller of a and b", Prim::minimum, 2);
  register_primitive("maximum", "the larger of a and b", Prim::maximum, 2);
  register_primitive("exp", "e^a", Prim::exp, 1);
  register_primitive("log", "natural logarithm of a", Prim::log, 1);
  register_primitive("sqrt", "square root of a", Prim::sqrt, 1);
  register_primitive("rsqrt", "1 / sqrt(a)", Prim::rsqrt, 1);
  register_primitive("tanh", "hyperbolic tangent of a", Prim::tanh, 1);
  register_primitive("sigmoid", "1 / (1 + e^-a)", Prim::sigmoid, 1);
  register_primitive("less", "a < b, a bool", Prim::less, 2);
  register_primitive("less_equal", "a <= b, a bool", Prim::less_equal, 2);
  register_primitive("equal", "a == b, a bool", Prim::equal, 2);
  register_primitive("logical_and", "a and b, bools", Prim::logical_and, 2, kLogicalCases);
  register_primitive("logical_or", "a or b, bools", Prim::logical_or, 2, kLogicalCases);
  register_primitive("logical_not", "not a, a bool", Prim::logical_not, 1,
                     {{.shapes = {{4, 3}}, .dtypes = {boolean}}, {.shapes = {{4, 3}}, .error = "takes bools"}});

  // ---- random_bits ----
  register_primitive("random_bits", "32 random bits as an i32, of i64 index, stream and seed", Prim::random_bits, 3,
                     {{.shapes = {{4, 3}, {}, {}}, .dtypes = {i64, i64, i64}},
                      {.shapes = {{4, 1}, {3}, {2, 1, 1}}, .dtypes = {i64, i64, i64}},
                      {.shapes = {{0}, {}, {}}, .dtypes = {i64, i64, i64}},
                      {.shapes = {{4}, {}, {}}, .dtypes = {i32, i32, i32}, .error = "takes i64, not i32"}});

  // ---- select ----
  register_op({
      .name = "select",
      .summary = "condition ? a : b",
      .kind = OpKind::formula,
      .inputs = {"condition", "a", "b"},
      .conditions = 1,
      .formula = formula([](Scalar condition, Scalar a, Scalar b) { return select(condition, a, b); }),
      .cases = {{.shapes = {{4, 3}, {4, 3}, {3}}, .dtypes = {boolean, f32, f32}},
                {.shapes = {{3}, {3}, {3}}, .error = "condition is f32"}},
  });

  // ---- cast ----
  register_op({
      .name = "cast",
      .summary = "a converted to dtype",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .attrs = {{.name = "dtype", .example = f32, .required = true, .doc = "the result's dtype"}},
      .formula = [](std::span<const Scalar> in,
                    const Attrs& attrs) { return convert(in[0], attrs.get_dtype("dtype")); },
      // The gradient has the dtype of a, whatever it was rounded to in between.
      .gradient = [](const GradCall& call) { return Values{cast(call.grads[0], call.inputs[0].dtype())}; },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"dtype", f64}}},
                {.shapes = {{4, 3}}, .attrs = {{"dtype", bf16}}},
                {.shapes = {{4, 3}}, .attrs = {{"dtype", f16}}},
                {.shapes = {{9}}, .attrs = {{"dtype", i32}}}},
  });

  // ---- stop_gradient ----
  register_op({
      .name = "stop_gradient",
      .summary = "a, whose gradient is none",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .formula = formula([](Scalar a) { return a; }),
      .gradient = [](const GradCall&) { return Values{Value()}; },
      .cases = kUnaryCases,
  });

  // ---- add_n ----
  register_op({
      .name = "add_n",
      .summary = "the sum of all inputs",
      .kind = OpKind::formula,
      .inputs = {"a..."},
      .formula =
          [](std::span<const Scalar> in, const Attrs&) {
            Scalar sum = in[0];
            for (const Scalar& term : in.subspan(1)) sum = sum + term;
            return sum;
          },
      .cases = {{.shapes = {{4, 3}}}, {.shapes = {{4, 3}, {4, 3}, {4, 3}}}, {.shapes = {{4, 3}, {3}, {}, {4, 1}}}},
  });

  // ---- softplus ----
  register_op({
      .name = "softplus",
      .summary = "log(1 + e^a)",
      .kind = OpKind::formula,
      .inputs = {"a"},
      // e^a alone overflows where the result is a; the larger of a and 0 is taken out first.
      .formula = formula([](Scalar a) { return maximum(a, a.constant(0)) + log(1.0 + exp(-abs(a))); }),
      // The derived gradient would be 1 at a = 0, where abs and maximum have kinks that their sum has not.
      .gradient = [](const GradCall& call) { return Values{call.grads[0] * sigmoid(call.inputs[0])}; },
      .cases = kUnaryCases,
  });

  // ---- lerp ----
  register_op({
      .name = "lerp",
      .summary = "a + t * (b - a), exactly b at t = 1",
      .kind = OpKind::formula,
      .inputs = {"a", "b", "t"},
      // Two branches so that t = 1 gives b exactly; a + t * (b - a) alone does not.
      .formula = formula([](Scalar a, Scalar b, Scalar t) {
        t = t / 1.0;  // refuses integers; the Expr keeps no trace of it
        return select(t < 0.5, a + t * (b - a), b - (1.0 - t) * (b - a));
      }),
      // Both branches have the same derivative; g * (1 - t) keeps its precision as t nears 1, where g - g * t cancels.
      .gradient =
          [](const GradCall& call) {
            const Value &a = call.inputs[0], &b = call.inputs[1], &t = call.inputs[2], &g = call.grads[0];
            return Values{call.wanted[0] ? (1.0 - t) * g : Value(), call.wanted[1] ? t * g : Value(),
                          call.wanted[2] ? g * (b - a) : Value()};
          },
      .cases = {{.shapes = {{4, 3}, {4, 3}, {4, 3}}},
                {.shapes = {{4, 3}, {4, 3}, {}}},
                {.shapes = {{4, 1, 1}, {4, 3, 5}, {3, 1}}},
                {.shapes = {{2, 0}, {2, 0}, {1}}},
                {.shapes = {{4, 3}, {4, 3}, {5}}, .error = "t has shape [5]"},
                {.shapes = {{3}, {3}, {3}}, .dtypes = {i32, i32, i32}, .error = "takes floats, not i32"}},
  });
}

// ---- the functions of ops.h ----

Value add(const Value& a, const Value& b) { return call("add", {a, b}); }
Value sub(const Value& a, const Value& b) { return call("sub", {a, b}); }
Value mul(const Value& a, const Value& b) { return call("mul", {a, b}); }
Value div(const Value& a, const Value& b) { return call("div", {a, b}); }
Value neg(const Value& a) { return call("neg", {a}); }
Value abs(const Value& a) { return call("abs", {a}); }
Value minimum(const Value& a, const Value& b) { return call("minimum", {a, b}); }
Value maximum(const Value& a, const Value& b) { return call("maximum", {a, b}); }
Value exp(const Value& a) { return call("exp", {a}); }
Value log(const Value& a) { return call("log", {a}); }
Value sqrt(const Value& a) { return call("sqrt", {a}); }
Value rsqrt(const Value& a) { return call("rsqrt", {a}); }
Value tanh(const Value& a) { return call("tanh", {a}); }
Value sigmoid(const Value& a) { return call("sigmoid", {a}); }
Value softplus(const Value& a) { return call("softplus", {a}); }
Value less(const Value& a, const Value& b) { return call("less", {a, b}); }
Value less_equal(const Value& a, const Value& b) { return call("less_equal", {a, b}); }
Value equal(const Value& a, const Value& b) { return call("equal", {a, b}); }
Value select(const Value& condition, const Value& a, const Value& b) { return call("select", {condition, a, b}); }
Value random_bits(const Value& index, const Value& stream, const Value& seed) {
  return call("random_bits", {index, stream, seed});
}
Value lerp(const Value& a, const Value& b, const Value& t) { return call("lerp", {a, b, t}); }
Value add_n(std::span<const Value> inputs) { return call(*find_op("add_n"), inputs).front(); }
Value stop_gradient(const Value& a) { return call("stop_gradient", {a}); }
Value cast(const Value& a, DType dtype) { return a.dtype() == dtype ? a : call("cast", {a}, {{"dtype", dtype}}); }

namespace {
// A fraction beside an integer would be cut off without a word.
Value constant_like(const Value& a, double value) {
  if (!is_float(a.dtype()) && value != std::trunc(value)) {
    fail(ErrorKind::dtype, "constant {}: stands beside a value of {}; cast the value first", value,
         to_string(a.dtype()));
  }
  return full(a.graph(), {}, value, a.dtype());
}
}  // namespace

Value operator+(const Value& a, const Value& b) { return add(a, b); }
Value operator-(const Value& a, const Value& b) { return sub(a, b); }
Value operator*(const Value& a, const Value& b) { return mul(a, b); }
Value operator/(const Value& a, const Value& b) { return div(a, b); }
Value operator-(const Value& a) { return neg(a); }
Value operator+(const Value& a, double b) { return add(a, constant_like(a, b)); }
Value operator-(const Value& a, double b) { return sub(a, constant_like(a, b)); }
Value operator*(const Value& a, double b) { return mul(a, constant_like(a, b)); }
Value operator/(const Value& a, double b) { return div(a, constant_like(a, b)); }
Value operator+(double a, const Value& b) { return add(constant_like(b, a), b); }
Value operator-(double a, const Value& b) { return sub(constant_like(b, a), b); }
Value operator*(double a, const Value& b) { return mul(constant_like(b, a), b); }
Value operator/(double a, const Value& b) { return div(constant_like(b, a), b); }

}  // namespace paoding
