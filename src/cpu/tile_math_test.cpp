// SPDX-License-Identifier: Apache-2.0
// Every primitive that computes a float from floats, in every instruction set of this machine: at most 4 units in the
// last place from the C library's long double, over ranges and special values; NaN, infinities and signs of zero exact.
#include <gtest/gtest.h>
#include <hwy/targets.h>

#include <cmath>
#include <limits>
#include <random>

#include "cpu/tile.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

// The routines of one instruction set after the other; 0 is Highway's fallback without vectors.
class Targets {
 public:
  ~Targets() {
    hwy::SetSupportedTargetsForTest(0);
    hwy::GetChosenTarget().DeInit();
  }
  template <class Check>
  void for_each(Check check) {
    for (const std::int64_t target : {std::int64_t{HWY_AVX3}, std::int64_t{HWY_AVX2}, std::int64_t{0}}) {
      hwy::SetSupportedTargetsForTest(0);
      if (target != 0 && (hwy::SupportedTargets() & target) == 0) continue;
      hwy::GetChosenTarget().Update(target);
      SCOPED_TRACE(target == 0 ? "no vectors" : hwy::TargetName(target));
      check();
    }
  }
};

template <class T>
std::vector<T> apply_tile(TileRoutine routine, std::vector<T> a, std::vector<T> b = {}) {
  std::vector<T> out(a.size() + 1, T(-123));
  char* slots[] = {reinterpret_cast<char*>(a.data()), reinterpret_cast<char*>(b.empty() ? a.data() : b.data()),
                   reinterpret_cast<char*>(out.data())};
  Instruction self;
  self.b = self.c = 1, self.out = 2;
  routine(self, slots, {1, static_cast<std::int64_t>(a.size())});
  EXPECT_EQ(out.back(), T(-123)) << "written past the end";
  out.pop_back();
  return out;
}

template <class T>
constexpr DType kDType = sizeof(T) == 4 ? f32 : f64;

template <class T>
std::vector<T> special_values() {
  using Limits = std::numeric_limits<T>;
  std::vector<T> values{0,
                        1,
                        T(0.5),
                        2,
                        3,
                        T(1.5),
                        T(2.5),
                        4,
                        8,
                        10,
                        100,
                        1024,
                        T(1e-20),
                        T(88.7),
                        T(88.73),
                        T(87.4),
                        T(103.9),
                        T(104.1),
                        T(709.7),
                        T(709.8),
                        T(745.2),
                        17,
                        T(9.01),
                        T(3.92),
                        6,
                        20,
                        1000,
                        T(1e5),
                        T(123456.7),
                        T(1e9),
                        T(3.1415927),
                        T(1.5707964),
                        T(8388607.5),
                        T(8388608.5),
                        T(1e30),
                        Limits::max(),
                        Limits::min(),
                        Limits::min() / 2,
                        Limits::denorm_min(),
                        Limits::epsilon(),
                        Limits::infinity(),
                        Limits::quiet_NaN()};
  for (std::size_t i = 0, count = values.size(); i < count; ++i) values.push_back(-values[i]);
  return values;
}

template <class T>
std::vector<T> arguments() {
  std::vector<T> x = special_values<T>();
  std::mt19937 random(5);
  for (const double range : {1e-6, 1e-3, 0.1, 1.0, 4.0, 10.0, 30.0, 104.0, 750.0, 1e4}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 3000; ++i) x.push_back(static_cast<T>(uniform(random)));
  }
  for (int i = 0; i < 3000; ++i) {  // near 1, where logarithms are small
    x.push_back(T(1) + static_cast<T>((static_cast<double>(random()) / 4294967296.0 - 0.5) * 0.02));
  }
  return x;
}

// The distance of `got` from `want` in units of the last place of T at `want`.
template <class T>
double ulps(T got, long double want) {
  const T rounded = static_cast<T>(want);
  if (std::isnan(want) || std::isnan(got)) return std::isnan(want) && std::isnan(got) ? 0 : HUGE_VAL;
  if (std::isinf(rounded) || std::isinf(got)) return got == rounded ? 0 : HUGE_VAL;
  if (rounded == 0 && got == 0) return 0;
  int exponent = 0;
  std::frexp(std::max(std::fabs(rounded), std::numeric_limits<T>::min()), &exponent);
  const long double unit = std::ldexp(1.0L, exponent - std::numeric_limits<T>::digits);
  return static_cast<double>(std::fabs(got - want) / unit);
}

using Function = long double (*)(long double);
struct Row {
  Prim prim;
  Function function;
  bool keeps_zero_sign = false;
};
const Row kFunctions[] = {
    {Prim::exp, [](long double a) { return std::exp(a); }},
    {Prim::expm1, [](long double a) { return std::expm1(a); }, true},
    {Prim::log, [](long double a) { return std::log(a); }},
    {Prim::log1p, [](long double a) { return std::log1p(a); }, true},
    {Prim::log2, [](long double a) { return std::log2(a); }},
    {Prim::log10, [](long double a) { return std::log10(a); }},
    {Prim::sqrt, [](long double a) { return std::sqrt(a); }, true},
    {Prim::rsqrt, [](long double a) { return 1 / std::sqrt(a); }},
    {Prim::sin, [](long double a) { return std::sin(a); }, true},
    {Prim::cos, [](long double a) { return std::cos(a); }},
    {Prim::tan, [](long double a) { return std::tan(a); }, true},
    {Prim::tanh, [](long double a) { return std::tanh(a); }, true},
    {Prim::sigmoid, [](long double a) { return 1 / (1 + std::exp(-a)); }},
    {Prim::erf, [](long double a) { return std::erf(a); }, true},
    {Prim::erfc, [](long double a) { return std::erfc(a); }},
    {Prim::asin, [](long double a) { return std::asin(a); }, true},
    {Prim::acos, [](long double a) { return std::acos(a); }},
    {Prim::atan, [](long double a) { return std::atan(a); }, true},
    {Prim::sinh, [](long double a) { return std::sinh(a); }, true},
    {Prim::cosh, [](long double a) { return std::cosh(a); }},
    {Prim::asinh, [](long double a) { return std::asinh(a); }, true},
    {Prim::acosh, [](long double a) { return std::acosh(a); }},
    {Prim::atanh, [](long double a) { return std::atanh(a); }, true},
    {Prim::floor, [](long double a) { return std::floor(a); }, true},
    {Prim::ceil, [](long double a) { return std::ceil(a); }, true},
    {Prim::round, [](long double a) { return std::nearbyint(a); }, true},
    {Prim::trunc, [](long double a) { return std::trunc(a); }, true},
};

template <class T>
void check_tile_functions() {
  const std::vector<T> x = arguments<T>();
  for (const Row& row : kFunctions) {
    const std::string name(primitive(row.prim).name);
    const std::vector<T> y = apply_tile(find_routine(row.prim, kDType<T>, 0), x);
    double worst = 0;
    T at = 0;
    for (std::size_t i = 0; i < x.size(); ++i) {
      const long double want = row.function(x[i]);
      const double error = ulps(y[i], want);
      if (error > worst) worst = error, at = x[i];
      if (row.keeps_zero_sign && x[i] == 0) {
        EXPECT_EQ(std::signbit(y[i]), std::signbit(x[i])) << name << " of a zero";
      }
    }
    EXPECT_LE(worst, 4) << name << " of " << at << " is "
                        << apply_tile(find_routine(row.prim, kDType<T>, 0), std::vector<T>{at})[0] << ", not "
                        << static_cast<double>(row.function(at));
    testing::Test::RecordProperty(name + (sizeof(T) == 4 ? "_f32" : "_f64"), std::to_string(worst));
    if (std::getenv("PAODING_SHOW_ULPS"))
      std::printf("%s %s %.2f\n", name.c_str(), sizeof(T) == 4 ? "f32" : "f64", worst);
  }
}

TEST(TileMath, IsWithinFourUlpsInF32) { Targets().for_each(check_tile_functions<float>); }
TEST(TileMath, IsWithinFourUlpsInF64) { Targets().for_each(check_tile_functions<double>); }

// All pairs of special values and random ones, tile with tile and tile with one element.
template <class T>
void check_binary(Prim prim, long double (*function)(long double, long double), double bound) {
  std::vector<T> a, b;
  const std::vector<T> values = special_values<T>();
  for (const T x : values) {
    for (const T y : values) a.push_back(x), b.push_back(y);
  }
  std::mt19937 random(6);
  for (const double range : {0.5, 3.0, 40.0, 1e5}) {
    std::uniform_real_distribution<double> uniform(-range, range);
    for (int i = 0; i < 2000; ++i)
      a.push_back(static_cast<T>(uniform(random))), b.push_back(static_cast<T>(uniform(random)));
  }
  const std::string name(primitive(prim).name);
  const std::vector<T> got = apply_tile(find_routine(prim, kDType<T>, 0), a, b);
  int shown = 0;
  for (std::size_t i = 0; i < a.size() && shown < 5; ++i) {
    const long double want = function(a[i], b[i]);
    if (ulps(got[i], want) <= bound) continue;
    ++shown;
    ADD_FAILURE() << name << " of " << a[i] << " and " << b[i] << " is " << got[i] << ", not "
                  << static_cast<double>(want) << ": " << ulps(got[i], want) << " ulps";
  }
  const std::vector<T> one = apply_tile(find_routine(prim, kDType<T>, 2), a, std::vector<T>{T(2.5)});
  const std::vector<T> other = apply_tile(find_routine(prim, kDType<T>, 1), std::vector<T>(a.size(), T(2.5)), b);
  for (std::size_t i = 0; i < a.size(); ++i) {
    ASSERT_LE(ulps(one[i], function(a[i], T(2.5))), bound) << name << " of " << a[i] << " and 2.5";
    ASSERT_LE(ulps(other[i], function(T(2.5), b[i])), bound) << name << " of 2.5 and " << b[i];
  }
}

long double remainder_of(long double a, long double b) {
  const long double rest = std::fmod(a, b);
  return rest != 0 && (rest < 0) != (b < 0) ? rest + b : rest;
}

TEST(TileMath, PowersAreWithinFourUlps) {
  Targets().for_each([] {
    const auto power = [](long double a, long double b) { return std::pow(a, b); };
    check_binary<float>(Prim::pow, power, 4);
    check_binary<double>(Prim::pow, power, 4);
  });
}

TEST(TileMath, PowersReachTheLargestDouble) {
  std::vector<double> a, b;
  for (int i = 0; i < 101; ++i)
    a.push_back(i % 2 == 0 ? 2 : 0.5), b.push_back((i % 2 == 0 ? 1 : -1) * (1024 - i * 1e-7));
  Targets().for_each([&] {
    const std::vector<double> got = apply_tile(find_routine(Prim::pow, f64, 0), a, b);
    for (std::size_t i = 0; i < a.size(); ++i) {
      EXPECT_LE(ulps(got[i], std::pow(static_cast<long double>(a[i]), b[i])), 4) << a[i] << " to the " << b[i];
    }
  });
}

TEST(TileMath, RemaindersAreExactAndHaveTheDivisorsSign) {
  Targets().for_each([] {
    check_binary<float>(Prim::remainder, remainder_of, 0.51);
    check_binary<double>(Prim::remainder, remainder_of, 0.51);
  });
}

TEST(TileMath, QuotientsAreRoundedDown) {
  const auto quotient = [](auto a, auto b) {
    return static_cast<double>(primitive(Prim::floor_divide).evaluate(a, b, 0));
  };
  Targets().for_each([&] {
    const std::vector<float> a{7, -7, 7, -7, 1, -1, 0, 6, -6, 1e9f, 0.5f, -0.5f},
        b{2, 2, -2, -2, 0, 0, 3, 3, 3, 7, 2, 2};
    const std::vector<float> got = apply_tile(find_routine(Prim::floor_divide, f32, 0), a, b);
    const std::vector<float> want{3, -4, -4, 3, INFINITY, -INFINITY, 0, 2, -2, 142857142.0f, 0, -1};
    EXPECT_EQ(got, want);
    for (std::size_t i = 0; i < a.size(); ++i) EXPECT_EQ(static_cast<float>(quotient(a[i], b[i])), want[i]);
  });
}

TEST(TileMath, IntegersDivideAsPythonDoesAndByZeroGiveZero) {
  constexpr std::int32_t kLeast = std::numeric_limits<std::int32_t>::min();
  const std::vector<std::int32_t> a{7, -7, 7, -7, 1, -1, 0, kLeast, kLeast, kLeast};
  const std::vector<std::int32_t> b{2, 2, -2, -2, 0, 0, 3, -1, 1, 3};
  EXPECT_EQ(apply_tile(find_routine(Prim::floor_divide, i32, 0), a, b),
            (std::vector<std::int32_t>{3, -4, -4, 3, 0, 0, 0, kLeast, kLeast, -715827883}));
  EXPECT_EQ(apply_tile(find_routine(Prim::remainder, i32, 0), a, b),
            (std::vector<std::int32_t>{1, 1, -1, -1, 0, 0, 0, 0, 0, 1}));
  const std::vector<std::int64_t> wide{-9, -8, -1, 0, 1, 8, 9};
  EXPECT_EQ(apply_tile(find_routine(Prim::floor_divide, i64, 2), wide, {8}),
            (std::vector<std::int64_t>{-2, -1, -1, 0, 0, 1, 1}));
  EXPECT_EQ(apply_tile(find_routine(Prim::remainder, i64, 2), wide, {8}),
            (std::vector<std::int64_t>{7, 0, 7, 0, 1, 0, 1}));
  EXPECT_EQ(apply_tile(find_routine(Prim::remainder, i64, 2), wide, {-3}),
            (std::vector<std::int64_t>{0, -2, -1, 0, -2, -1, 0}));
}

// Philox in every instruction set: the published first word, and every path against the first.
TEST(TileMath, RandomBitsAreTheSameInEveryInstructionSet) {
  std::vector<std::int64_t> index(203), reverse(203);
  for (std::size_t i = 0; i < index.size(); ++i) {
    index[i] = static_cast<std::int64_t>(i) + 2, reverse[reverse.size() - 1 - i] = index[i];
  }
  std::vector<std::int64_t> zero{0};
  std::vector<std::vector<std::int32_t>> made;
  Targets().for_each([&] {
    for (auto* list : {&index, &reverse}) {
      std::vector<std::int32_t> out(list->size());
      char* slots[] = {reinterpret_cast<char*>(list->data()), reinterpret_cast<char*>(zero.data()),
                       reinterpret_cast<char*>(out.data())};
      Instruction self;
      self.b = self.c = 1, self.out = 2;
      find_routine(Prim::random_bits, i64, 6)(self, slots, {1, static_cast<std::int64_t>(out.size())});
      if (list == &reverse) std::reverse(out.begin(), out.end());
      made.push_back(out);
    }
  });
  for (const auto& out : made) {
    EXPECT_EQ(static_cast<std::uint32_t>(out[0]), 0xbc57ac4c);
    EXPECT_EQ(out, made[0]);
  }
}

}  // namespace
}  // namespace paoding
