// SPDX-License-Identifier: Apache-2.0
// One row per scalar primitive: name, dtypes, reference meaning, CUDA source, derivative.
#include "scalar/primitive.h"

#include <cmath>

#include "base/check.h"
#include "base/half.h"
#include "base/to_odd.h"
#include "scalar/philox.h"

namespace paoding {
namespace {

using Args = std::span<const Scalar>;
using Adjoints = std::span<Scalar>;

void no_derivative(Scalar, Args, Scalar, Adjoints) {}

double nan_min(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmin(a, b); }
double nan_max(double a, double b) { return std::isnan(a) || std::isnan(b) ? NAN : std::fmax(a, b); }

// The remainder with the sign of b and the quotient that belongs to it, exact for integers below 2^53.
double remainder_of(double a, double b, double) {
  const double rest = std::fmod(a, b);
  if (rest == 0) return std::copysign(0.0, b);
  return (rest < 0) != (b < 0) ? rest + b : rest;
}
double quotient_of(double a, double b, double) {
  if (b == 0) return a / b;
  const double rest = std::fmod(a, b), whole = std::nearbyint((a - rest) / b);
  return rest != 0 && (rest < 0) != (b < 0) ? whole - 1 : whole;
}

double random_word(double index, double stream, double seed) {
  const auto bits = [](double a) { return static_cast<std::uint64_t>(static_cast<std::int64_t>(a)); };
  return static_cast<std::int32_t>(random_bits(bits(index), bits(stream), bits(seed)));
}

const double kTwoOverSqrtPi = 2 / std::sqrt(std::acos(-1.0));

// The adjoint g goes to the argument that was chosen; on a tie to the first.
void choose(Scalar chooses_first, Scalar g, Adjoints d) {
  d[0] = select(chooses_first, g, g.constant(0));
  d[1] = select(chooses_first, g.constant(0), g);
}

const Primitive kPrimitives[kPrimCount] = {
    {"input", 0, PrimRule::leaf, nullptr, "", "", no_derivative},
    {"constant", 0, PrimRule::leaf, nullptr, "", "", no_derivative},
    {"index", 0, PrimRule::leaf, nullptr, "", "", no_derivative},
    {"reduced", 0, PrimRule::leaf, nullptr, "", "", no_derivative},
    {"convert", 1, PrimRule::convert, nullptr, "", "",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = convert(g, a[0].dtype()); }},
    {"add", 2, PrimRule::number, [](double a, double b, double) { return a + b; }, "{0} + {1}", "",
     [](Scalar, Args, Scalar g, Adjoints d) { d[0] = d[1] = g; }},
    {"sub",
     2,
     PrimRule::number,
     [](double a, double b, double) { return a - b; },
     "{0} - {1}",
     "",
     [](Scalar, Args, Scalar g, Adjoints d) { d[0] = g, d[1] = -g; },
     {{{}, 0.0}}},
    {"mul",
     2,
     PrimRule::number,
     [](double a, double b, double) { return a * b; },
     "{0} * {1}",
     "",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * a[1], d[1] = g * a[0]; },
     {{1.0, 1.0}}},
    {"div",
     2,
     PrimRule::real,
     [](double a, double b, double) { return a / b; },
     "{0} / {1}",
     "",
     [](Scalar out, Args a, Scalar g, Adjoints d) { d[0] = g / a[1], d[1] = -(d[0] * out); },
     {{{}, 1.0}}},
    {"floor_divide", 2, PrimRule::number, quotient_of, "pd_floor_divide({0}, {1})", "", no_derivative},
    {"remainder", 2, PrimRule::number, remainder_of, "pd_remainder({0}, {1})", "",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g, d[1] = -(g * floor_divide(a[0], a[1])); }},
    {"neg",
     1,
     PrimRule::number,
     [](double a, double, double) { return -a; },
     "-{0}",
     "",
     [](Scalar, Args, Scalar g, Adjoints d) { d[0] = -g; },
     {},
     true},
    {"abs", 1, PrimRule::number, [](double a, double, double) { return std::fabs(a); }, "pd_abs({0})", "",
     [](Scalar, Args a, Scalar g, Adjoints d) {
       const Scalar zero = a[0].constant(0);
       d[0] = select(a[0] < zero, -g, select(equal(a[0], zero), g.constant(0), g));
     }},
    {"minimum", 2, PrimRule::number, [](double a, double b, double) { return nan_min(a, b); }, "pd_min({0}, {1})", "",
     [](Scalar, Args a, Scalar g, Adjoints d) { choose(a[0] <= a[1], g, d); }},
    {"maximum", 2, PrimRule::number, [](double a, double b, double) { return nan_max(a, b); }, "pd_max({0}, {1})", "",
     [](Scalar, Args a, Scalar g, Adjoints d) { choose(a[1] <= a[0], g, d); }},
    {"floor", 1, PrimRule::number, [](double a, double, double) { return std::floor(a); }, "floorf({0})", "floor({0})",
     no_derivative},
    {"ceil", 1, PrimRule::number, [](double a, double, double) { return std::ceil(a); }, "ceilf({0})", "ceil({0})",
     no_derivative},
    {"round", 1, PrimRule::number, [](double a, double, double) { return std::nearbyint(a); }, "rintf({0})",
     "rint({0})", no_derivative},
    {"trunc", 1, PrimRule::number, [](double a, double, double) { return std::trunc(a); }, "truncf({0})", "trunc({0})",
     no_derivative},
    {"pow", 2, PrimRule::real, [](double a, double b, double) { return std::pow(a, b); }, "powf({0}, {1})",
     "pow({0}, {1})",
     [](Scalar out, Args a, Scalar g, Adjoints d) {
       // 0 where the power is constant: a^0, and 0^b for b >= 0. Their formulas would give 0 * infinity.
       const Scalar zero = g.constant(0);
       d[0] = g * select(equal(a[1], zero), zero, a[1] * pow(a[0], a[1] - 1.0));
       d[1] = g * select(logical_and(equal(a[0], zero), zero <= a[1]), zero, out * log(a[0]));
     }},
    {"exp", 1, PrimRule::real, [](double a, double, double) { return std::exp(a); }, "expf({0})", "exp({0})",
     [](Scalar out, Args, Scalar g, Adjoints d) { d[0] = g * out; }},
    {"expm1", 1, PrimRule::real, [](double a, double, double) { return std::expm1(a); }, "expm1f({0})", "expm1({0})",
     [](Scalar out, Args, Scalar g, Adjoints d) { d[0] = g * (out + 1.0); }},
    {"log", 1, PrimRule::real, [](double a, double, double) { return std::log(a); }, "logf({0})", "log({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g / a[0]; }},
    {"log1p", 1, PrimRule::real, [](double a, double, double) { return std::log1p(a); }, "log1pf({0})", "log1p({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g / (a[0] + 1.0); }},
    {"log2", 1, PrimRule::real, [](double a, double, double) { return std::log2(a); }, "log2f({0})", "log2({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * (1 / std::log(2.0)) / a[0]; }},
    {"log10", 1, PrimRule::real, [](double a, double, double) { return std::log10(a); }, "log10f({0})", "log10({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * (1 / std::log(10.0)) / a[0]; }},
    {"sqrt", 1, PrimRule::real, [](double a, double, double) { return std::sqrt(a); }, "sqrtf({0})", "sqrt({0})",
     [](Scalar out, Args, Scalar g, Adjoints d) { d[0] = g * 0.5 / out; }},
    {"rsqrt", 1, PrimRule::real, [](double a, double, double) { return 1 / std::sqrt(a); }, "rsqrtf({0})", "rsqrt({0})",
     [](Scalar out, Args a, Scalar g, Adjoints d) { d[0] = g * -0.5 * out / a[0]; }},
    {"sin", 1, PrimRule::real, [](double a, double, double) { return std::sin(a); }, "sinf({0})", "sin({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * cos(a[0]); }},
    {"cos", 1, PrimRule::real, [](double a, double, double) { return std::cos(a); }, "cosf({0})", "cos({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = -(g * sin(a[0])); }},
    {"tan", 1, PrimRule::real, [](double a, double, double) { return std::tan(a); }, "tanf({0})", "tan({0})",
     [](Scalar out, Args, Scalar g, Adjoints d) { d[0] = g * (1.0 + out * out); }},
    {"tanh", 1, PrimRule::real, [](double a, double, double) { return std::tanh(a); }, "pd_tanh({0})", "tanh({0})",
     [](Scalar out, Args, Scalar g, Adjoints d) { d[0] = g * (1.0 - out * out); }},
    {"sigmoid", 1, PrimRule::real, [](double a, double, double) { return 1 / (1 + std::exp(-a)); }, "pd_sigmoid({0})",
     "pd_sigmoid({0})", [](Scalar out, Args, Scalar g, Adjoints d) { d[0] = g * (out * (1.0 - out)); }},
    {"erf", 1, PrimRule::real, [](double a, double, double) { return std::erf(a); }, "erff({0})", "erf({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * (kTwoOverSqrtPi * exp(-(a[0] * a[0]))); }},
    {"erfc", 1, PrimRule::real, [](double a, double, double) { return std::erfc(a); }, "erfcf({0})", "erfc({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * (-kTwoOverSqrtPi * exp(-(a[0] * a[0]))); }},
    {"asin", 1, PrimRule::real, [](double a, double, double) { return std::asin(a); }, "asinf({0})", "asin({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * rsqrt(1.0 - a[0] * a[0]); }},
    {"acos", 1, PrimRule::real, [](double a, double, double) { return std::acos(a); }, "acosf({0})", "acos({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = -(g * rsqrt(1.0 - a[0] * a[0])); }},
    {"atan", 1, PrimRule::real, [](double a, double, double) { return std::atan(a); }, "atanf({0})", "atan({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g / (1.0 + a[0] * a[0]); }},
    {"sinh", 1, PrimRule::real, [](double a, double, double) { return std::sinh(a); }, "sinhf({0})", "sinh({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * cosh(a[0]); }},
    {"cosh", 1, PrimRule::real, [](double a, double, double) { return std::cosh(a); }, "coshf({0})", "cosh({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * sinh(a[0]); }},
    {"asinh", 1, PrimRule::real, [](double a, double, double) { return std::asinh(a); }, "asinhf({0})", "asinh({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * rsqrt(a[0] * a[0] + 1.0); }},
    {"acosh", 1, PrimRule::real, [](double a, double, double) { return std::acosh(a); }, "acoshf({0})", "acosh({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g * rsqrt(a[0] * a[0] - 1.0); }},
    {"atanh", 1, PrimRule::real, [](double a, double, double) { return std::atanh(a); }, "atanhf({0})", "atanh({0})",
     [](Scalar, Args a, Scalar g, Adjoints d) { d[0] = g / (1.0 - a[0] * a[0]); }},
    {"atan2", 2, PrimRule::real, [](double a, double b, double) { return std::atan2(a, b); }, "atan2f({0}, {1})",
     "atan2({0}, {1})",
     [](Scalar, Args a, Scalar g, Adjoints d) {
       const Scalar scale = g / (a[0] * a[0] + a[1] * a[1]);
       d[0] = scale * a[1], d[1] = -(scale * a[0]);
     }},
    {"bitwise_and", 2, PrimRule::integer,
     [](double a, double b,
        double) { return static_cast<double>(static_cast<std::int64_t>(a) & static_cast<std::int64_t>(b)); },
     "{0} & {1}", "", no_derivative},
    {"less", 2, PrimRule::compare, [](double a, double b, double) { return double(a < b); }, "{0} < {1}", "",
     no_derivative},
    {"less_equal", 2, PrimRule::compare, [](double a, double b, double) { return double(a <= b); }, "{0} <= {1}", "",
     no_derivative},
    {"equal", 2, PrimRule::compare, [](double a, double b, double) { return double(a == b); }, "{0} == {1}", "",
     no_derivative},
    {"logical_and", 2, PrimRule::logical, [](double a, double b, double) { return double(a != 0 && b != 0); },
     "{0} && {1}", "", no_derivative},
    {"logical_or", 2, PrimRule::logical, [](double a, double b, double) { return double(a != 0 || b != 0); },
     "{0} || {1}", "", no_derivative},
    {"logical_not", 1, PrimRule::logical, [](double a, double, double) { return double(a == 0); }, "!{0}", "",
     no_derivative},
    {"select", 3, PrimRule::select, [](double a, double b, double c) { return a != 0 ? b : c; }, "{0} ? {1} : {2}", "",
     [](Scalar, Args a, Scalar g, Adjoints d) {
       d[1] = select(a[0], g, g.constant(0));
       d[2] = select(a[0], g.constant(0), g);
     }},
    {"random_bits", 3, PrimRule::random, random_word, "pd_random_bits({0}, {1}, {2})", "", no_derivative},
};

double convert_value(double a, DType dtype) {
  switch (dtype) {
    case DType::f64: return a;
    case DType::f32: return static_cast<float>(a);
    case DType::f16: return f16_to_float(float_to_f16(to_odd(a)));
    case DType::bf16: return bf16_to_float(float_to_bf16(to_odd(a)));
    case DType::i64: return static_cast<double>(static_cast<std::int64_t>(a));
    case DType::i32: return static_cast<double>(static_cast<std::int32_t>(a));
    case DType::u8: return static_cast<double>(static_cast<std::uint8_t>(static_cast<std::int32_t>(a)));
    case DType::boolean: return a != 0;
  }
  return a;
}

}  // namespace

const Primitive& primitive(Prim prim) { return kPrimitives[static_cast<std::size_t>(prim)]; }

bool is_slow(Prim prim) {
  switch (prim) {
    case Prim::sqrt:
    case Prim::rsqrt: return false;
    case Prim::floor_divide:
    case Prim::remainder:
    case Prim::random_bits: return true;
    default: return Prim::pow <= prim && prim <= Prim::atan2;
  }
}

std::vector<double> evaluate(const Expr& expr, std::span<const double> inputs, std::span<const double> indices,
                             std::span<const double> reduced) {
  std::vector<double> values(static_cast<std::size_t>(expr.size()));
  for (std::size_t i = 0; i < values.size(); ++i) {
    const ExprNode& node = expr.nodes()[i];
    auto arg = [&](int k) { return node.args[k] < 0 ? 0 : values[static_cast<std::size_t>(node.args[k])]; };
    switch (node.prim) {
      case Prim::input: values[i] = inputs[static_cast<std::size_t>(node.index)]; break;
      case Prim::index: values[i] = indices[static_cast<std::size_t>(node.index)]; break;
      case Prim::reduced: values[i] = reduced[static_cast<std::size_t>(node.index)]; break;
      case Prim::constant: values[i] = node.value; break;
      case Prim::convert: values[i] = convert_value(arg(0), node.dtype); break;
      default:
        values[i] = primitive(node.prim).evaluate(arg(0), arg(1), arg(2));
        if (is_integer(node.dtype) && !std::isfinite(values[i])) values[i] = 0;  // division by 0
    }
  }
  return values;
}

std::string to_string(const Expr& expr) {
  std::string text;
  for (std::int32_t i = 0; i < expr.size(); ++i) {
    const ExprNode& node = expr[i];
    text += fmt::format("%{} = {}(", i, primitive(node.prim).name);
    if (node.index >= 0) text += fmt::format("{}", node.index);
    if (node.prim == Prim::constant && node.dtype == DType::i64) {
      text += fmt::format("{}", node.whole);
    } else if (node.prim == Prim::constant) {
      text += fmt::format("{}", node.value);
    }
    for (int k = 0; k < primitive(node.prim).arity; ++k) text += fmt::format("{}%{}", k ? ", " : "", node.args[k]);
    text += fmt::format(") {}\n", to_string(node.dtype));
  }
  return text;
}

}  // namespace paoding
