// SPDX-License-Identifier: Apache-2.0
// Activations. At kinks the gradient is that of PyTorch's function of the same name, so relu'(0) is 0; it falls out of
// which argument of minimum and maximum stands first.
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/families.h"
#include "ops/formula_op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// One attribute, a number.
void register_with_number(const char* name, const char* summary, const char* attr, double value, const char* doc,
                          std::function<Scalar(Scalar, double)> f, std::vector<OpCase> cases,
                          std::function<Values(const GradCall&)> gradient = {}) {
  register_op(
      {.name = name,
       .summary = summary,
       .kind = OpKind::formula,
       .inputs = {"a"},
       .attrs = {{.name = attr, .example = value, .doc = doc}},
       .formula = [f, attr](std::span<const Scalar> in, const Attrs& attrs) { return f(in[0], attrs.get_float(attr)); },
       .gradient = std::move(gradient),
       .cases = std::move(cases)});
}

std::vector<OpCase> with(const char* attr, double value) {
  std::vector<OpCase> cases = float_cases();
  cases.push_back({.shapes = {{5, 3}}, .attrs = {{attr, value}}});
  return cases;
}

Scalar float_only(Scalar a) { return a / 1.0; }  // refuses integers; the Expr keeps no trace of it

Scalar gelu_formula(std::span<const Scalar> in, const Attrs& attrs) {
  const Scalar a = float_only(in[0]);
  const AttrValue* approximate = attrs.find("approximate");
  const std::string& how = std::get<std::string>(*approximate);
  if (how == "none") return 0.5 * a * (1.0 + erf(a * (1 / std::numbers::sqrt2)));
  if (how != "tanh") fail(ErrorKind::argument, "approximate is '{}'; it is 'none' or 'tanh'", one_line(how));
  const double scale = std::numbers::sqrt2 * std::numbers::inv_sqrtpi;  // sqrt(2 / pi)
  return 0.5 * a * (1.0 + tanh(scale * (a + 0.044715 * (a * a * a))));
}

Scalar hard_sigmoid_formula(Scalar a) {
  return minimum(a.constant(1), maximum(a.constant(0), float_only(a) * (1.0 / 6) + 0.5));
}

// a tanh(log(1 + e^a)) without either: with e = e^a and n = e (e + 2) it is a n / (n + 2), which is a from 20 on.
Scalar mish_formula(Scalar a) {
  const Scalar e = exp(minimum(a, a.constant(20)));
  const Scalar n = e * (e + 2.0);
  return a * (n / (n + 2.0));
}

}  // namespace

void register_activation_ops() {
  // ---- relu and its kin ----
  register_unary(
      "relu", "a where it is above 0, else 0", [](Scalar a) { return maximum(a.constant(0), a); }, unary_cases(),
      // From the output, so that the input need not be kept.
      [](const GradCall& call) { return Values{where(greater(call.outputs[0], 0.0), call.grads[0], 0.0)}; });
  register_with_number(
      "leaky_relu", "a where it is above 0, else slope * a", "slope", 0.01, "the factor of negative values",
      [](Scalar a, double slope) { return select(a > 0.0, a, slope * float_only(a)); }, with("slope", 0.2));
  register_with_number(
      "elu", "a where it is above 0, else alpha * (e^a - 1)", "alpha", 1.0, "the factor of negative values",
      [](Scalar a, double alpha) { return select(a > 0.0, a, alpha * expm1(minimum(a, a.constant(0)))); },
      with("alpha", 1.5),
      // alpha * e^a from the output, without another exponential.
      [](const GradCall& call) {
        const Value &a = call.inputs[0], &out = call.outputs[0], &g = call.grads[0];
        return Values{where(greater(a, 0.0), g, g * (out + call.node.attrs.get_float("alpha")))};
      });
  register_op({
      .name = "hardtanh",
      .summary = "a, but at least min and at most max; the gradient at both is 0",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .attrs = {{.name = "min", .example = -1.0, .doc = "the least value"},
                {.name = "max", .example = 1.0, .doc = "the greatest value"}},
      .formula =
          [](std::span<const Scalar> in, const Attrs& attrs) {
            const Scalar a = float_only(in[0]);
            const double min = attrs.get_float("min"), max = attrs.get_float("max");
            if (!(min <= max)) fail(ErrorKind::argument, "min is {} and max is {}; min <= max is needed", min, max);
            return minimum(a.constant(max), maximum(a.constant(min), a));
          },
      .cases = {{.shapes = {{4, 3}}},
                {.shapes = {{9}}, .attrs = {{"min", -0.51}, {"max", 0.52}}},
                {.shapes = {{2, 0}}},
                {.shapes = {{3}}, .attrs = {{"min", 2.0}}, .error = "min is 2 and max is 1"},
                {.shapes = {{3}}, .dtypes = {i32}, .error = "takes floats, not i32"}},
  });
  register_unary("hard_sigmoid", "a / 6 + 1/2, kept in [0, 1]", hard_sigmoid_formula, float_cases());
  register_unary(
      "hardswish", "a * hard_sigmoid(a)", [](Scalar a) { return a * hard_sigmoid_formula(a); }, float_cases());

  // ---- smooth ones ----
  register_op({
      .name = "gelu",
      .summary = "a * P(N(0, 1) <= a)",
      .kind = OpKind::formula,
      .inputs = {"a"},
      .attrs = {{.name = "approximate",
                 .example = std::string("none"),
                 .doc = "\"none\": with erf; \"tanh\": with tanh"}},
      .formula = gelu_formula,
      .cases = {{.shapes = {{4, 3}}},
                {.shapes = {{50}}, .attrs = {{"approximate", std::string("tanh")}}},
                {.shapes = {{2, 0}}},
                {.shapes = {{}}},
                {.shapes = {{3}}, .attrs = {{"approximate", std::string("fast")}}, .error = "it is 'none' or 'tanh'"},
                {.shapes = {{3}}, .dtypes = {i32}, .error = "takes floats, not i32"}},
  });
  register_unary(
      "silu", "a * sigmoid(a)", [](Scalar a) { return a * sigmoid(a); }, float_cases());
  register_unary("mish", "a * tanh(softplus(a))", mish_formula, float_cases());
  // The derived gradients of these three would come from the kinks of abs and maximum, which their sums have not.
  register_unary(
      "softplus", "log(1 + e^a)", [](Scalar a) { return maximum(a, a.constant(0)) + log1p(exp(-abs(a))); },
      float_cases(), [](const GradCall& call) { return Values{call.grads[0] * sigmoid(call.inputs[0])}; });
  register_unary(
      "log_sigmoid", "log(sigmoid(a))", [](Scalar a) { return minimum(a, a.constant(0)) - log1p(exp(-abs(a))); },
      float_cases(), [](const GradCall& call) { return Values{call.grads[0] * sigmoid(-call.inputs[0])}; });
  register_unary(
      "softsign", "a / (1 + |a|)", [](Scalar a) { return a / (1.0 + abs(a)); }, float_cases(),
      [](const GradCall& call) { return Values{call.grads[0] / square(1.0 + abs(call.inputs[0]))}; });
}

Value relu(const Value& a) { return call("relu", {a}); }
Value hard_sigmoid(const Value& a) { return call("hard_sigmoid", {a}); }
Value hardswish(const Value& a) { return call("hardswish", {a}); }
Value silu(const Value& a) { return call("silu", {a}); }
Value mish(const Value& a) { return call("mish", {a}); }
Value softplus(const Value& a) { return call("softplus", {a}); }
Value log_sigmoid(const Value& a) { return call("log_sigmoid", {a}); }
Value softsign(const Value& a) { return call("softsign", {a}); }
Value leaky_relu(const Value& a, double slope) { return call("leaky_relu", {a}, {{"slope", slope}}); }
Value elu(const Value& a, double alpha) { return call("elu", {a}, {{"alpha", alpha}}); }
Value hardtanh(const Value& a, double min, double max) { return call("hardtanh", {a}, {{"min", min}, {"max", max}}); }
Value gelu(const Value& a, const std::string& approximate) { return call("gelu", {a}, {{"approximate", approximate}}); }

}  // namespace paoding
