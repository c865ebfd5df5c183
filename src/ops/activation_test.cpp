// SPDX-License-Identifier: Apache-2.0
// Formulas where numerics or conventions matter: far from 0, near 0, at kinks, for NaN; results and gradients in f32
// against numbers from elsewhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <functional>
#include <limits>
#include <map>
#include <random>
#include <tuple>

#include "graph/formula.h"
#include "paoding/autodiff.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/program.h"
#include "passes/pass.h"

namespace paoding {
namespace {

constexpr double kActivationInfinity = std::numeric_limits<double>::infinity();
const double kActivationNan = std::nan("");

struct Result {
  std::vector<double> out, gradient;  // of sum(out)
};

// Chooses, among the overloads of a function, the one on a Value.
using Unary = Value (*)(const Value&);

Result results_of(const std::function<Value(const Value&)>& op, const std::vector<double>& x, DType dtype = f32,
                  std::vector<std::string> disabled_passes = {}) {
  Graph g;
  const auto count = static_cast<std::int64_t>(x.size());
  const Value a = g.input("a", dtype, {count});
  const Value out = op(a);
  g.fetch("out", out);
  if (is_float(out.dtype()))
    g.fetch("gradient", gradients(std::array{out}, std::array{a}, std::array{full(g, out.shape(), 1, out.dtype())})[0]);
  Program program(g, {.device = Device::cpu(), .disabled_passes = std::move(disabled_passes)});
  auto results = program.run({{"a", Tensor::from(dtype, {count}, x)}});
  Result result{results.at("out").to_doubles(), {}};
  if (is_float(out.dtype())) result.gradient = results.at("gradient").to_doubles();
  return result;
}

std::vector<std::string> every_pass() {
  std::vector<std::string> names;
  for (const Pass& pass : pipeline()) names.emplace_back(pass.name);
  return names;
}

void expect_all(const std::vector<double>& got, const std::vector<double>& want, double relative = 1e-6) {
  ASSERT_EQ(got.size(), want.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(want[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    } else if (std::isinf(want[i])) {
      EXPECT_EQ(got[i], want[i]) << "element " << i;
    } else {
      EXPECT_NEAR(got[i], want[i], relative * std::fabs(want[i])) << "element " << i;
    }
  }
}

TEST(Activation, ReluHasNoGradientAtZero) {
  const Result r = results_of(relu, {-1, 0, 2, -0.0, kActivationInfinity, kActivationNan});
  expect_all(r.out, {0, 0, 2, 0, kActivationInfinity, kActivationNan});
  expect_all({r.gradient.begin(), r.gradient.begin() + 5}, {0, 0, 1, 0, 1});
}

TEST(Activation, GradientsAtKinksArePytorchs) {
  expect_all(results_of([](const Value& a) { return leaky_relu(a, 0.25); }, {-2, 0, 2}).gradient, {0.25, 0.25, 1});
  expect_all(results_of([](const Value& a) { return elu(a, 2); }, {-1, 0, 1}).gradient, {2 * std::exp(-1.0), 2, 1});
  expect_all(results_of([](const Value& a) { return hardtanh(a); }, {-2, -1, 0.5, 1, 2}).gradient, {0, 0, 1, 0, 0});
  expect_all(results_of(hard_sigmoid, {-4, -3, 0, 3, 4}).gradient, {0, 0, 1.0 / 6, 0, 0});
  expect_all(results_of([](const Value& a) { return clamp(a, -1, 1); }, {-2, -1, 0.5, 1, 2}).gradient, {0, 1, 1, 1, 0});
  expect_all(results_of(softplus, {0}).gradient, {0.5});
  expect_all(results_of(log_sigmoid, {0}).gradient, {0.5});
  expect_all(results_of(softsign, {0}).gradient, {1});
  expect_all(results_of(Unary(abs), {-1, 0, 1}).gradient, {-1, 0, 1});
  expect_all(results_of(sign, {-2, -0.0, 0, 3, kActivationNan}).out, {-1, 0, 0, 1, kActivationNan});
}

// Slopes are computed as values are, in f32, whether their parts are one kernel or several.
TEST(Activation, SlopesOf16BitsAreRoundedOnce) {
  const auto sigmoid_of = [](double x) { return 1 / (1 + std::exp(-x)); };
  const auto slope_of_mish = [&](double x) {
    const double t = std::tanh(std::log1p(std::exp(x)));
    return t + x * (1 - t * t) * sigmoid_of(x);
  };
  const auto slope_of_gelu = [](double x) {
    return 0.5 * std::erfc(-x / std::sqrt(2.0)) + x * std::exp(-x * x / 2) / std::sqrt(2 * std::acos(-1.0));
  };
  std::vector<double> x;
  for (int i = -48; i <= 48; ++i) x.push_back(i / 4.0);
  for (const DType dtype : {f16, bf16}) {
    const double half_a_unit = dtype == f16 ? 0x1p-11 : 0x1p-8;
    for (const auto& disabled : {std::vector<std::string>{}, every_pass()}) {
      SCOPED_TRACE(std::string(to_string(dtype)) + (disabled.empty() ? "" : " without passes"));
      const auto slopes = [&](const std::function<Value(const Value&)>& op, const std::vector<double>& at) {
        return results_of(op, at, dtype, disabled).gradient;
      };
      const std::vector<double> hard = slopes(hard_sigmoid, {-4, -3, 0, 3, 4});
      EXPECT_EQ(hard[1], 0);
      EXPECT_EQ(hard[3], 0);
      EXPECT_NEAR(hard[2], 1.0 / 6, half_a_unit / 6);
      const std::vector<double> swish = slopes(hardswish, {-4, -3, 0, 3, 4});
      EXPECT_EQ(swish[1], 0);
      EXPECT_EQ(swish[2], 0.5);
      EXPECT_EQ(swish[3], 1);
      const std::vector<double> of_mish = slopes(mish, x), of_gelu = slopes([](const Value&a) { return gelu(a); }, x);
      for (std::size_t i = 0; i < x.size(); ++i) {
        const auto limit = [&](double slope) { return half_a_unit * 1.01 * std::fabs(slope) + 1e-6; };
        EXPECT_NEAR(of_mish[i], slope_of_mish(x[i]), limit(slope_of_mish(x[i]))) << x[i];
        EXPECT_NEAR(of_gelu[i], slope_of_gelu(x[i]), limit(slope_of_gelu(x[i]))) << x[i];
      }
    }
  }
}

TEST(Activation, NothingOverflowsFarFromZero) {
  const std::vector<double> far{-1e30,         -200, -100, 100, 200, 1e30, -kActivationInfinity, kActivationInfinity,
                                kActivationNan};
  expect_all(results_of(softplus, far).out,
             {0, 0, 3.783506e-44, 100, 200, 1e30, 0, kActivationInfinity, kActivationNan}, 1e-2);
  expect_all(results_of(log_sigmoid, far).out,
             {-1e30, -200, -100, -3.783506e-44, 0, 0, -kActivationInfinity, 0, kActivationNan}, 1e-2);
  expect_all(results_of(mish, {-200, -20, 20, 200, 1e30}).out, {0, -20 * std::exp(-20.0), 20, 200, 1e30}, 2e-6);
  expect_all(results_of(mish, {-200, 30, 200, 1e30}).gradient, {0, 1, 1, 1});
  expect_all(results_of([](const Value& a) { return elu(a); }, {-1e30, -200, 200, 1e30}).gradient, {0, 0, 1, 1});
  expect_all(results_of([](const Value& a) { return elu(a); }, {-1e30, -1e-8, 200}).out, {-1, -1e-8, 200});
  expect_all(results_of(silu, {-1e30, -200, 200, 1e30}).out, {0, 0, 200, 1e30});
  expect_all(results_of(silu, {-50, 50}).gradient, {-50 * std::exp(-50.0) + std::exp(-50.0), 1}, 1e-5);
  expect_all(results_of(softsign, {-1e30, 1e10}).gradient, {0, 1e-20}, 1e-5);
}

TEST(Activation, GeluIsRightFarFromAndNearZero) {
  const auto exact = [](double a) { return 0.5 * a * (1 + std::erf(a / std::sqrt(2.0))); };
  const auto slope = [](double a) {
    return 0.5 * (1 + std::erf(a / std::sqrt(2.0))) + a * std::exp(-a * a / 2) / std::sqrt(2 * std::acos(-1.0));
  };
  const std::vector<double> x{-10, -3, -1, -1e-4, 0, 1e-4, 0.5, 1, 3, 10};
  const Result r = results_of([](const Value& a) { return gelu(a); }, x);
  for (std::size_t i = 0; i < x.size(); ++i) {
    EXPECT_NEAR(r.out[i], exact(x[i]), 2e-7 * std::max(1.0, std::fabs(x[i]))) << x[i];
    EXPECT_NEAR(r.gradient[i], slope(x[i]), 5e-7) << x[i];
  }
  const Result t = results_of([](const Value& a) { return gelu(a, "tanh"); }, {-10, -1, 0, 1, 10, 1e10});
  const std::vector<double> want{0, -0.15880801, 0, 0.84119199, 10, 1e10};  // torch.nn.functional.gelu
  for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(t.out[i], want[i], 1e-6 * std::max(1.0, want[i]));
}

TEST(Functions, KeepTheirDigitsNearZero) {
  expect_all(results_of(Unary(log1p), {1e-10, -1e-10, 1e-3}).out, {1e-10, -1e-10, std::log1p(1e-3)});
  expect_all(results_of(Unary(expm1), {1e-10, -1e-10, 1e-3}).out, {1e-10, -1e-10, std::expm1(1e-3)});
  expect_all(results_of(Unary(erfc), {5, 9}).out, {std::erfc(5.0), std::erfc(9.0)});
  expect_all(results_of(Unary(log2), {0.125, 8, 1024}).out, {-3, 3, 10}, 0);
}

TEST(Functions, PowersHaveTheirGradientsAtZero) {
  const auto power = [](double exponent) { return [=](const Value& a) { return pow(a, exponent); }; };
  expect_all(results_of(power(0), {0, 2, kActivationNan}).out, {1, 1, 1});
  expect_all(results_of(power(0), {0, 2}).gradient, {0, 0});
  expect_all(results_of(power(2), {0, -3}).gradient, {0, -6});
  expect_all(results_of(power(3), {-2, 2}).out, {-8, 8});
  expect_all(results_of(power(2.5), {0, 4}).gradient, {0, 20});
  expect_all(results_of(power(-2), {2, -2}).out, {0.25, 0.25});
  expect_all(results_of(power(0.5), {4}).gradient, {0.25});
  expect_all(results_of(power(5), {2, -3}, i32).out, {32, -243});
  // The exponent's gradient: a^b log(a), 0 at a = 0 with b >= 0.
  expect_all(results_of([](const Value& b) { return pow(full(b.graph(), {}, 0, f32), b); }, {0, 1, 2}).gradient,
             {0, 0, 0});
  expect_all(results_of([](const Value& b) { return pow(full(b.graph(), {}, 2, f32), b); }, {0, 3}).gradient,
             {std::log(2.0), 8 * std::log(2.0)});
  // A value to the power of a value that happens to be 0: 1, and no gradient for the base.
  expect_all(results_of([](const Value& a) { return pow(a, full(a.graph(), {}, 0, f32)); }, {0, 2}).gradient, {0, 0});
}

TEST(Comparison, SortsOutNanAndInfinity) {
  const std::vector<double> x{1, kActivationNan, kActivationInfinity, -kActivationInfinity, 0};
  expect_all(results_of(isnan, x).out, {0, 1, 0, 0, 0});
  expect_all(results_of(isinf, x).out, {0, 0, 1, 1, 0});
  expect_all(results_of(isfinite, x).out, {1, 0, 0, 0, 1});
  expect_all(results_of([](const Value& a) { return not_equal(a, a); }, x).out, {0, 1, 0, 0, 0});
  expect_all(results_of([](const Value& a) { return greater_equal(a, 1.0); }, x).out, {1, 0, 1, 0, 0});
  expect_all(results_of([](const Value& a) { return where(less(a, 1.0), 7.0, a); }, {0, 2}).out, {7, 2});
  expect_all(results_of(isfinite, {1, 2}, i64).out, {1, 1});
}

// A number between two of 16 bits, and which of them it becomes: found by looking at all, in more bits than it has.
double nearest_of(DType dtype, long double exact) {
  static std::map<DType, std::vector<double>> of;
  std::vector<double>& all = of[dtype];
  if (all.empty()) {
    std::vector<std::uint16_t> bits;
    for (unsigned each = 0; each < 0x10000; ++each) bits.push_back(static_cast<std::uint16_t>(each));
    Tensor every(Type{dtype, {0x10000}});
    std::memcpy(every.bytes(), bits.data(), bits.size() * 2);
    for (const double each : every.to_doubles()) {
      if (std::isfinite(each) && !std::signbit(each)) all.push_back(each);
    }
    std::sort(all.begin(), all.end());  // number i has the bits i
  }
  const long double size = std::fabs(exact);
  const auto above = std::upper_bound(all.begin(), all.end(), size);
  const auto i = static_cast<std::size_t>(above - all.begin()) - 1;
  // After the last number there would be one as far away again.
  const long double low = all[i], high = i + 1 < all.size() ? all[i + 1] : 2 * low - all[i - 1];
  const bool is_up = size - low > high - size || (size - low == high - size && i % 2 == 1);
  const double found = !is_up ? static_cast<double>(low) : i + 1 < all.size() ? all[i + 1] : kActivationInfinity;
  return exact < 0 ? -found : found;
}

// Numbers in the middle between two neighbours of 16 bits, and beside it by less than an f32 has room for.
std::vector<double> near_middles(int digits) {
  std::vector<double> x{0x1p-25, 0x1p-25 * (1 + 0x1p-40), 65520, 65520 - 0x1p-20, 1e300, -1e300, 5e-324, 3e38};
  std::mt19937_64 random(7);
  for (int i = 0; i < 400; ++i) {
    const auto last =
        static_cast<double>(2 * (random() % (1u << (digits - 1))) + 1);  // bits, the middle's own among them
    const double middle = 1 + std::ldexp(last, -digits);
    const double beside = std::ldexp(static_cast<double>(random() % 3) - 1, -26 - static_cast<int>(random() % 20));
    const double x_i = std::ldexp(middle + beside, static_cast<int>(random() % 40) - 26);
    x.push_back(random() % 2 == 0 ? x_i : -x_i);
  }
  return x;
}

TEST(Cast, FromF64To16BitsRoundsOnce) {
  for (const DType dtype : {f16, bf16}) {
    const std::vector<double> x = near_middles(dtype == f16 ? 11 : 8);
    std::vector<double> want, halves;
    for (const double each : x) want.push_back(nearest_of(dtype, each)), halves.push_back(each / 2);
    EXPECT_EQ(Tensor::from(dtype, {static_cast<std::int64_t>(x.size())}, x).to_doubles(), want);
    for (const auto& disabled : {std::vector<std::string>{}, every_pass()}) {
      EXPECT_EQ(results_of([&](const Value& a) { return cast(a, dtype); }, x, f64, disabled).out, want);
      const auto of_computed = [&](const Value& a) { return cast(a * 2.0, dtype) * 1.0; };
      EXPECT_EQ(results_of(of_computed, halves, f64, disabled).out[40], want[40]);
      Graph g;
      Values made;
      for (std::size_t i = 8; i < 40; ++i) made.push_back(full(g, {}, x[i], dtype));
      g.fetch("y", stack(made, 0) * 1.0);
      Program program(g, {.disabled_passes = disabled});
      EXPECT_EQ(program.run({}).at("y").to_doubles(), std::vector<double>(want.begin() + 8, want.begin() + 40));
    }
  }
}

TEST(Cast, FromIntegersToBf16RoundsOnce) {
  std::vector<std::int64_t> wide;
  for (const int power : {9, 20, 30, 40, 61}) {
    const std::int64_t middle = (std::int64_t{1} << power) + (std::int64_t{1} << (power - 8));
    for (const std::int64_t beside : {-1, 0, 1}) wide.push_back(middle + beside), wide.push_back(-middle - beside);
  }
  std::vector<double> want;
  for (const std::int64_t each : wide) want.push_back(nearest_of(bf16, static_cast<long double>(each)));
  const auto bf16_of = [](const Tensor& tensor) {
    Graph g;
    g.fetch("y", cast(g.input("x", tensor.dtype(), tensor.shape()), bf16));
    return Program(g, {.device = Device::cpu()}).run({{"x", tensor}}).at("y").to_doubles();
  };
  EXPECT_EQ(bf16_of(Tensor::from(wide)), want);
  std::vector<std::int32_t> narrow;
  for (std::size_t i = 0; i < 18; ++i) narrow.push_back(static_cast<std::int32_t>(wide[i]));
  EXPECT_EQ(bf16_of(Tensor::from(narrow)), std::vector<double>(want.begin(), want.begin() + 18));
}

TEST(Formula, IsTracedOnceForANanAttribute) {
  static std::deque<OpDef> ops;  // traced formulas are kept by their op's address
  OpDef& op = ops.emplace_back(*find_op("leaky_relu"));
  int traces = 0;
  op.formula = [&traces, formula = op.formula](const auto&... given) { return ++traces, formula(given...); };
  const DType dtypes[] = {f32};
  const Attrs attrs{{"slope", kActivationNan}};
  EXPECT_EQ(&traced_formula(op, dtypes, attrs), &traced_formula(op, dtypes, attrs));
  EXPECT_EQ(traces, 1);
  EXPECT_NE(&traced_formula(op, dtypes, {{"slope", 0.0}}), &traced_formula(op, dtypes, {{"slope", -0.0}}));
}

TEST(Formula, FoldsConstantsAndRoundsNoIntegers) {
  Expr expr;
  const Scalar a = make_input(&expr, 0, f32), n = make_input(&expr, 1, i32);
  EXPECT_EQ((a.constant(2) * a.constant(3)).id(), a.constant(6).id());
  EXPECT_EQ(select(a.constant(1) < a.constant(2), a, a + 1.0).id(), a.id());
  EXPECT_EQ(floor(n).id(), n.id());
  EXPECT_NE(floor(a).id(), a.id());
}

}  // namespace
}  // namespace paoding
