// SPDX-License-Identifier: Apache-2.0
// Elementwise arithmetic: a scalar formula each. Broadcasting, promotion, kernels, gradients and tests are derived
// from it.
#include <cmath>
#include <limits>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/families.h"
#include "ops/formula_op.h"
#include "paoding/can_hold.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// Without min or max the bound on that side is missing.
Scalar clamp_formula(std::span<const Scalar> in, const Attrs& attrs) {
  const double low = attrs.get_float("min"), high = attrs.get_float("max");
  if (!(low <= high)) fail(ErrorKind::argument, "min is {} and max is {}; min <= max is needed", low, high);
  Scalar result = in[0];
  for (const double bound : {low, high}) {
    if (std::isinf(bound)) continue;
    if (!can_hold(result.dtype(), bound)) {
      fail(ErrorKind::dtype, "bound {} beside {}, and no {} is that; cast it first", bound, to_string(result.dtype()),
           to_string(result.dtype()));
    }
    // The value first, so that its gradient is 1 at the bound itself.
    result = bound == low ? maximum(result, result.constant(low)) : minimum(result, result.constant(high));
  }
  return result;
}

// A whole power of a value by squaring.
Value whole_power(const Value& a, std::uint64_t exponent) {
  Value result, square = a;
  for (; exponent != 0; exponent >>= 1) {
    if (exponent & 1) result = result.valid() ? mul(result, square) : square;
    if (exponent > 1) square = mul(square, square);
  }
  return result;
}

}  // namespace

const std::vector<OpCase>& unary_cases() {
  static const std::vector<OpCase> cases = {
      {.shapes = {{4, 3}}}, {.shapes = {{}}}, {.shapes = {{2, 0}}}, {.shapes = {{1000}}}};
  return cases;
}

const std::vector<OpCase>& binary_cases() {
  static const std::vector<OpCase> cases = {{.shapes = {{4, 3}, {4, 3}}},
                                            {.shapes = {{4, 1, 3}, {5, 1}}},
                                            {.shapes = {{}, {7}}},
                                            {.shapes = {{2, 0}, {1}}},
                                            {.shapes = {{4, 3}, {5}}, .error = "b has shape [5]"}};
  return cases;
}

std::vector<OpCase> float_cases() {
  std::vector<OpCase> cases = unary_cases();
  cases.push_back({.shapes = {{4, 3}}, .dtypes = {i32}, .error = "takes floats, not i32"});
  return cases;
}

void register_primitive(const char* name, const char* summary, Prim prim, int arity, const std::vector<OpCase>& cases) {
  register_op({
      .name = name,
      .summary = summary,
      .kind = OpKind::formula,
      .inputs = arity == 1 ? std::vector<std::string>{"a"} : std::vector<std::string>{"a", "b"},
      .role = prim == Prim::add ? OpRole::sum : OpRole::none,
      .formula = [prim](std::span<const Scalar> in, const Attrs&) { return apply_prim(prim, in); },
      .cases = !cases.empty() ? cases
               : arity == 1   ? unary_cases()
                              : binary_cases(),
  });
}

void register_elementwise_ops() {
  // ---- one primitive each ----
  register_primitive("add", "a + b", Prim::add, 2);
  register_primitive("sub", "a - b", Prim::sub, 2);
  register_primitive("mul", "a * b", Prim::mul, 2);
  register_primitive("div", "a / b", Prim::div, 2);
  register_primitive("floor_divide", "a / b rounded down", Prim::floor_divide, 2);
  register_primitive("remainder", "a - b * floor(a / b), with the sign of b", Prim::remainder, 2);
  register_op({
      .name = "fmod",
      .summary = "a - b * trunc(a / b), with the sign of a",
      .kind = OpKind::formula,
      .inputs = {"a", "b"},
      .formula = formula([](Scalar a, Scalar b) {
        if (!is_float(a.dtype())) {  // no abs of the least integer
          const Scalar rest = remainder(a, b), zero = rest.constant(0);
          const Scalar other_sign = logical_or(logical_and(a < zero, zero < rest), logical_and(zero < a, rest < zero));
          return select(other_sign, rest - b, rest);
        }
        const Scalar rest = remainder(abs(a), abs(b));
        return select(a < 0.0, -rest, rest);
      }),
      .gradient =
          [](const GradCall& call) {
            const Value &a = call.inputs[0], &b = call.inputs[1], &g = call.grads[0];
            return Values{call.wanted[0] ? g : Value(), call.wanted[1] ? -(g * trunc(a / b)) : Value()};
          },
      .cases = binary_cases(),
  });
  register_primitive("neg", "-a", Prim::neg, 1);
  register_primitive("abs", "|a|", Prim::abs, 1);
  register_primitive("minimum", "the smaller of a and b", Prim::minimum, 2);
  register_primitive("maximum", "the larger of a and b", Prim::maximum, 2);
  register_primitive("floor", "the greatest integer <= a", Prim::floor, 1);
  register_primitive("ceil", "the least integer >= a", Prim::ceil, 1);
  register_primitive("round", "the nearest integer, half to even", Prim::round, 1);
  register_primitive("trunc", "a without its fraction", Prim::trunc, 1);

  // ---- sign, square, reciprocal ----
  register_unary(
      "sign", "-1, 0 or 1; NaN of NaN",
      [](Scalar a) {
        const Scalar zero = a.constant(0);
        return select(zero < a, a.constant(1), select(a < zero, a.constant(-1), a));  // a: 0 or NaN
      },
      unary_cases(), [](const GradCall&) { return Values(1); });  // 0 everywhere
  register_unary(
      "square", "a * a", [](Scalar a) { return a * a; }, unary_cases());
  register_unary(
      "reciprocal", "1 / a", [](Scalar a) { return 1.0 / a; }, float_cases());

  // ---- clamp ----
  register_op({
      .name = "clamp",
      .summary = "a, but at least min and at most max",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .attrs = {{.name = "min", .example = -std::numeric_limits<double>::infinity(), .doc = "the least value"},
                {.name = "max", .example = std::numeric_limits<double>::infinity(), .doc = "the greatest value"}},
      .formula = clamp_formula,
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"min", -0.51}, {"max", 0.77}}},
                {.shapes = {{50}}, .attrs = {{"min", 1.0}, {"max", 3.0}}},
                {.shapes = {{}}, .attrs = {{"max", 0.0}}},
                {.shapes = {{2, 0}}, .attrs = {{"min", 0.0}}},
                {.shapes = {{3}}},
                {.shapes = {{3}}, .attrs = {{"min", 2.0}, {"max", 1.0}}, .error = "min is 2 and max is 1"},
                {.shapes = {{3}}, .attrs = {{"min", 0.5}}, .dtypes = {i32}, .error = "bound 0.5 beside i32"}},
  });

  // ---- random_bits ----
  register_op({
      .name = "random_bits",
      .summary = "32 random bits as an i32, of i64 index, stream and seed",
      .kind = OpKind::formula,
      .inputs = {"index", "stream", "seed"},
      .formula = formula([](Scalar index, Scalar stream, Scalar seed) { return random_bits(index, stream, seed); }),
      .cases = {{.shapes = {{4, 3}, {}, {}}, .dtypes = {i64, i64, i64}},
                {.shapes = {{4, 1}, {3}, {2, 1, 1}}, .dtypes = {i64, i64, i64}},
                {.shapes = {{0}, {}, {}}, .dtypes = {i64, i64, i64}},
                {.shapes = {{4}, {}, {}}, .dtypes = {i32, i32, i32}, .error = "takes i64, not i32"}},
  });

  // ---- cast ----
  register_op({
      .name = "cast",
      .summary = "a converted to dtype",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .attrs = {{.name = "dtype", .example = f32, .required = true, .doc = "the result's dtype"}},
      .conversion = Conversion::value,
      .formula = [](std::span<const Scalar> in,
                    const Attrs& attrs) { return convert(in[0], attrs.get_dtype("dtype")); },
      // The gradient has the dtype of a, whatever it was rounded to in between.
      .gradient = [](const GradCall& call) { return Values{cast(call.grads[0], call.inputs[0].dtype())}; },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"dtype", f64}}},
                {.shapes = {{4, 3}}, .attrs = {{"dtype", bf16}}},
                {.shapes = {{4, 3}}, .attrs = {{"dtype", f16}}},
                {.shapes = {{9}}, .attrs = {{"dtype", i32}}}},
  });

  // ---- store_as ----
  register_op({
      .name = "store_as",
      .summary = "a, of which memory has dtype: rounded where it is stored, not within a kernel",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .attrs = {{.name = "dtype", .example = f32, .required = true, .doc = "what a is computed in, f16 or bf16"}},
      .conversion = Conversion::in_memory,
      .formula =
          [](std::span<const Scalar> in, const Attrs& attrs) {
            const DType dtype = attrs.get_dtype("dtype");
            if (in[0].dtype() != compute_dtype(dtype)) {
              fail(ErrorKind::dtype, "{} is not what a is computed in; cast it", to_string(dtype));
            }
            return in[0];
          },
      .gradient = [](const GradCall& call) { return Values{cast(call.grads[0], call.inputs[0].dtype())}; },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"dtype", f32}}, .dtypes = {bf16}},
                {.shapes = {{4, 3}}, .attrs = {{"dtype", bf16}}, .dtypes = {f16}},
                {.shapes = {{4, 3}}, .attrs = {{"dtype", f16}}, .dtypes = {bf16}},
                {.shapes = {{4, 3}}, .attrs = {{"dtype", f16}}, .dtypes = {i64}, .error = "cast it"}},
  });

  // ---- stop_gradient ----
  register_op({
      .name = "stop_gradient",
      .summary = "a, whose gradient is none",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .precision = PrecisionRule::moves,
      .formula = formula([](Scalar a) { return a; }),
      .gradient = [](const GradCall&) { return Values{Value()}; },
      .cases = unary_cases(),
  });

  // ---- add_n ----
  register_op({
      .name = "add_n",
      .summary = "the sum of all inputs",
      .kind = OpKind::formula,
      .inputs = {"a..."},
      .role = OpRole::sum,
      .formula =
          [](std::span<const Scalar> in, const Attrs&) {
            Scalar sum = in[0];
            for (const Scalar& term : in.subspan(1)) sum = sum + term;
            return sum;
          },
      .cases = {{.shapes = {{4, 3}}}, {.shapes = {{4, 3}, {4, 3}, {4, 3}}}, {.shapes = {{4, 3}, {3}, {}, {4, 1}}}},
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

// ---- the functions of ops/elementwise.h ----

Value add(const Value& a, const Value& b) { return call("add", {a, b}); }
Value sub(const Value& a, const Value& b) { return call("sub", {a, b}); }
Value mul(const Value& a, const Value& b) { return call("mul", {a, b}); }
Value div(const Value& a, const Value& b) { return call("div", {a, b}); }
Value floor_divide(const Value& a, const Value& b) { return call("floor_divide", {a, b}); }
Value remainder(const Value& a, const Value& b) { return call("remainder", {a, b}); }
Value fmod(const Value& a, const Value& b) { return call("fmod", {a, b}); }
Value minimum(const Value& a, const Value& b) { return call("minimum", {a, b}); }
Value maximum(const Value& a, const Value& b) { return call("maximum", {a, b}); }
Value neg(const Value& a) { return call("neg", {a}); }
Value abs(const Value& a) { return call("abs", {a}); }
Value floor(const Value& a) { return call("floor", {a}); }
Value ceil(const Value& a) { return call("ceil", {a}); }
Value round(const Value& a) { return call("round", {a}); }
Value trunc(const Value& a) { return call("trunc", {a}); }
Value sign(const Value& a) { return call("sign", {a}); }
Value square(const Value& a) { return call("square", {a}); }
Value reciprocal(const Value& a) { return call("reciprocal", {a}); }
Value floor_divide(const Value& a, Number b) { return floor_divide(a, constant_like("floor_divide", a, b)); }
Value remainder(const Value& a, Number b) { return remainder(a, constant_like("remainder", a, b)); }
Value fmod(const Value& a, Number b) { return fmod(a, constant_like("fmod", a, b)); }
Value minimum(const Value& a, Number b) { return minimum(a, constant_like("minimum", a, b)); }
Value maximum(const Value& a, Number b) { return maximum(a, constant_like("maximum", a, b)); }
Value clamp(const Value& a, double min, double max) { return call("clamp", {a}, {{"min", min}, {"max", max}}); }
Value clamp(const Value& a, const Value& min, const Value& max) { return minimum(maximum(a, min), max); }
Value random_bits(const Value& index, const Value& stream, const Value& seed) {
  return call("random_bits", {index, stream, seed});
}
Value lerp(const Value& a, const Value& b, const Value& t) { return call("lerp", {a, b, t}); }
Value add_n(std::span<const Value> inputs) { return call(*find_op("add_n"), inputs).front(); }
Value stop_gradient(const Value& a) { return call("stop_gradient", {a}); }
Value cast(const Value& a, DType dtype) { return a.dtype() == dtype ? a : call("cast", {a}, {{"dtype", dtype}}); }

Value pow(const Value& a, double exponent) {
  const bool is_whole = exponent == std::trunc(exponent);
  if (exponent == 0) return expand(constant_like("pow", a, 1), a.shape());
  if (is_whole && exponent > 0 && exponent <= (is_float(a.dtype()) ? 4 : 64)) {
    return whole_power(a, static_cast<std::uint64_t>(exponent));
  }
  if (exponent == 0.5) return sqrt(a);
  if (exponent == -0.5) return rsqrt(a);
  if (exponent == -1) return reciprocal(a);
  return pow(a, constant_like("pow", a, exponent));
}

Value constant_like(const std::string& op, const Value& a, Number number) {
  const AttrValue exact = number.attr();  // an integer where no double is the number, which then is an i64
  const bool is_held = std::holds_alternative<std::int64_t>(exact) ? a.dtype() == DType::i64 || is_float(a.dtype())
                                                                   : can_hold(a.dtype(), number.real());
  if (!is_held) {
    fail(ErrorKind::dtype,
         "{}: the number {} stands beside {}, and no {} is that{}\n"
         "hint: cast(a, f32) first, or a number that {} holds",
         op, number.real(), to_string(a.type()), to_string(a.dtype()), in_scope(a.graph().scope.str()),
         to_string(a.dtype()));
  }
  return full(a.graph(), {}, number, a.dtype());
}

Value operator+(const Value& a, const Value& b) { return add(a, b); }
Value operator-(const Value& a, const Value& b) { return sub(a, b); }
Value operator*(const Value& a, const Value& b) { return mul(a, b); }
Value operator/(const Value& a, const Value& b) { return div(a, b); }
Value operator-(const Value& a) { return neg(a); }
Value operator+(const Value& a, Number b) { return add(a, constant_like("add", a, b)); }
Value operator-(const Value& a, Number b) { return sub(a, constant_like("sub", a, b)); }
Value operator*(const Value& a, Number b) { return mul(a, constant_like("mul", a, b)); }
Value operator/(const Value& a, Number b) { return div(a, constant_like("div", a, b)); }
Value operator+(Number a, const Value& b) { return add(constant_like("add", b, a), b); }
Value operator-(Number a, const Value& b) { return sub(constant_like("sub", b, a), b); }
Value operator*(Number a, const Value& b) { return mul(constant_like("mul", b, a), b); }
Value operator/(Number a, const Value& b) { return div(constant_like("div", b, a), b); }

}  // namespace paoding
