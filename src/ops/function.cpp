// SPDX-License-Identifier: Apache-2.0
// Exponentials, logarithms, powers, trigonometry, erf: one primitive each.
#include "ops/families.h"
#include "ops/formula_op.h"
#include "paoding/ops.h"

namespace paoding {

void register_function_ops() {
  const auto function = [](const char* name, const char* summary, Prim prim) {
    register_primitive(name, summary, prim, 1, float_cases());
  };
  function("exp", "e^a", Prim::exp);
  function("expm1", "e^a - 1, precise near 0", Prim::expm1);
  function("log", "natural logarithm of a", Prim::log);
  function("log1p", "log(1 + a), precise near 0", Prim::log1p);
  function("log2", "logarithm of a to base 2", Prim::log2);
  function("log10", "logarithm of a to base 10", Prim::log10);
  function("sqrt", "square root of a", Prim::sqrt);
  function("rsqrt", "1 / sqrt(a)", Prim::rsqrt);
  function("sin", "sine of a, in radians", Prim::sin);
  function("cos", "cosine of a, in radians", Prim::cos);
  function("tan", "tangent of a, in radians", Prim::tan);
  function("tanh", "hyperbolic tangent of a", Prim::tanh);
  function("sigmoid", "1 / (1 + e^-a)", Prim::sigmoid);
  function("erf", "the error function of a", Prim::erf);
  function("erfc", "1 - erf(a), precise for large a", Prim::erfc);
  function("asin", "arc sine of a, in radians", Prim::asin);
  function("acos", "arc cosine of a, in radians", Prim::acos);
  function("atan", "arc tangent of a, in radians", Prim::atan);
  function("sinh", "hyperbolic sine of a", Prim::sinh);
  function("cosh", "hyperbolic cosine of a", Prim::cosh);
  function("asinh", "inverse hyperbolic sine of a", Prim::asinh);
  function("atanh", "inverse hyperbolic tangent of a", Prim::atanh);
  // Elements of 1 and less have no inverse.
  register_primitive("acosh", "inverse hyperbolic cosine of a", Prim::acosh, 1, float_cases());
  register_primitive("atan2", "the angle of the point (b, a), from -pi to pi", Prim::atan2, 2);
  register_primitive("pow", "a^b", Prim::pow, 2);
}

Value exp(const Value& a) { return call("exp", {a}); }
Value expm1(const Value& a) { return call("expm1", {a}); }
Value log(const Value& a) { return call("log", {a}); }
Value log1p(const Value& a) { return call("log1p", {a}); }
Value log2(const Value& a) { return call("log2", {a}); }
Value log10(const Value& a) { return call("log10", {a}); }
Value sqrt(const Value& a) { return call("sqrt", {a}); }
Value rsqrt(const Value& a) { return call("rsqrt", {a}); }
Value sin(const Value& a) { return call("sin", {a}); }
Value cos(const Value& a) { return call("cos", {a}); }
Value tan(const Value& a) { return call("tan", {a}); }
Value tanh(const Value& a) { return call("tanh", {a}); }
Value sigmoid(const Value& a) { return call("sigmoid", {a}); }
Value erf(const Value& a) { return call("erf", {a}); }
Value erfc(const Value& a) { return call("erfc", {a}); }
Value asin(const Value& a) { return call("asin", {a}); }
Value acos(const Value& a) { return call("acos", {a}); }
Value atan(const Value& a) { return call("atan", {a}); }
Value sinh(const Value& a) { return call("sinh", {a}); }
Value cosh(const Value& a) { return call("cosh", {a}); }
Value asinh(const Value& a) { return call("asinh", {a}); }
Value acosh(const Value& a) { return call("acosh", {a}); }
Value atanh(const Value& a) { return call("atanh", {a}); }
Value atan2(const Value& a, const Value& b) { return call("atan2", {a, b}); }
Value pow(const Value& a, const Value& b) { return call("pow", {a, b}); }

}  // namespace paoding
