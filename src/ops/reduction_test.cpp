// SPDX-License-Identifier: Apache-2.0
// Reductions and ops composed of them against loops written out by hand, also with NaN and infinity.
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr double kNan = std::numeric_limits<double>::quiet_NaN();
constexpr double kInfinity = std::numeric_limits<double>::infinity();

// The result of `op` on x, fused and unfused, as the evaluator and as a program give it.
template <class Op>
Dense run(DType dtype, const Shape& shape, const Dense& x, Op op) {
  Graph g;
  g.fetch("y", op(g.input("x", dtype, shape)));
  const Feeds feeds{{"x", x}};
  const Dense exact = evaluate_graph(g, feeds).at("y");
  for (const bool is_fused : {true, false}) {
    CompileOptions options;
    if (!is_fused) options.disabled_passes = pass_names();
    Program program(g, options);
    const Dense got = program.run(to_tensors(g, feeds)).at("y").to_doubles();
    expect_close(is_fused ? "fused" : "unfused", got, exact, 1e-6);
  }
  return exact;
}

void expect_equal(const Dense& got, const Dense& expected) {
  ASSERT_EQ(got.size(), expected.size());
  for (std::size_t i = 0; i < got.size(); ++i) {
    if (std::isnan(expected[i])) {
      EXPECT_TRUE(std::isnan(got[i])) << "element " << i << " is " << got[i];
    } else if (got[i] != expected[i]) {  // infinities are equal or not
      EXPECT_NEAR(got[i], expected[i], 1e-12) << "element " << i;
    }
  }
}

const Ints kLast{-1};
const Dense kRows{3, -1, 3, 2, kNan, 7, -kInfinity, -kInfinity, -kInfinity, kInfinity, 0, 1};

TEST(Reductions, MaxAndMinLetNanWin) {
  expect_equal(run(f32, {4, 3}, kRows, [](Value x) { return max(x, kLast); }), {3, kNan, -kInfinity, kInfinity});
  expect_equal(run(f32, {4, 3}, kRows, [](Value x) { return min(x, kLast); }), {-1, kNan, -kInfinity, 0});
}

TEST(Reductions, OfNothingGiveTheirIdentity) {
  expect_equal(run(f32, {2, 0}, {}, [](Value x) { return max(x, kLast); }), {-kInfinity, -kInfinity});
  expect_equal(run(f64, {2, 0}, {}, [](Value x) { return min(x, kLast); }), {kInfinity, kInfinity});
  expect_equal(run(f32, {2, 0}, {}, [](Value x) { return prod(x, kLast); }), {1, 1});
  expect_equal(run(f32, {2, 0}, {}, [](Value x) { return mean(x, kLast); }), {kNan, kNan});
  expect_equal(run(f32, {2, 0}, {}, [](Value x) { return logsumexp(x, kLast); }), {-kInfinity, -kInfinity});
  expect_equal(run(boolean, {2, 0}, {}, [](Value x) { return cast(any(x, kLast), i32); }), {0, 0});
  expect_equal(run(boolean, {2, 0}, {}, [](Value x) { return cast(all(x, kLast), i32); }), {1, 1});
  expect_equal(run(i32, {0}, {}, [](Value x) { return max(x); }), {-2147483648.0});
}

TEST(Reductions, LogsumexpNeitherOverflowsNorMakesNanOfInfinity) {
  expect_equal(
      run(f64, {3, 2}, {1000, 1000, -kInfinity, -kInfinity, kInfinity, 5}, [](Value x) { return logsumexp(x, kLast); }),
      {1000 + std::log(2.0), -kInfinity, kInfinity});
}

TEST(Reductions, ArgmaxTakesTheFirstAndNanWins) {
  expect_equal(run(f32, {4, 3}, kRows, [](Value x) { return argmax(x, 1); }), {0, 1, 0, 0});
  expect_equal(run(f32, {4, 3}, kRows, [](Value x) { return argmin(x, -1); }), {1, 1, 0, 1});
  expect_equal(run(i64, {2, 4}, {5, 9, 9, 1, -3, -3, -8, -8}, [](Value x) { return argmax(x, 1); }), {1, 0});
  expect_equal(run(i64, {2, 4}, {5, 9, 9, 1, -3, -3, -8, -8}, [](Value x) { return argmin(x, 0); }), {1, 1, 1, 1});
  expect_equal(run(boolean, {2, 3}, {0, 1, 1, 1, 0, 1}, [](Value x) { return argmax(x, 1); }), {1, 0});
}

TEST(Reductions, AnyAndAllTakeNumbersAsNotZero) {
  const Dense x{0, 0, 0, 2, kNan, 0, -1, 3};
  expect_equal(run(f32, {4, 2}, x, [](Value v) { return cast(any(v, kLast), i32); }), {0, 1, 1, 1});
  expect_equal(run(f32, {4, 2}, x, [](Value v) { return cast(all(v, kLast), i32); }), {0, 0, 0, 1});
}

TEST(Reductions, MeanAndVarAreTheTextbookOnes) {
  const Dense x{1, 2, 3, 4, 10, -10};
  expect_equal(run(f64, {2, 3}, x, [](Value v) { return mean(v, kLast); }), {2, 4.0 / 3});
  const double second = (std::pow(4 - 4.0 / 3, 2) + std::pow(10 - 4.0 / 3, 2) + std::pow(-10 - 4.0 / 3, 2));
  expect_equal(run(f64, {2, 3}, x, [](Value v) { return var(v, kLast); }), {2.0 / 3, second / 3});
  expect_equal(run(f64, {2, 3}, x, [](Value v) { return var(v, kLast, true, 1); }), {1, second / 2});
  expect_equal(run(f64, {2, 1}, {1, 2}, [](Value v) { return var(v, kLast, false, 1); }), {kNan, kNan});
}

TEST(Reductions, MeanOfHalvesDoesNotOverflow) {
  const Dense big(1000, 60000.0);
  for (const double value : run(f16, {1000}, big, [](Value x) { return mean(x); })) EXPECT_NEAR(value, 60000, 32);
}

template <class Op>
Dense gradient(const Shape& shape, const Dense& x, Op op) {
  return run(f64, shape, x, [&](Value v) { return gradients(std::array{sum(op(v) * 2.0)}, std::array{v})[0]; });
}

TEST(Reductions, ThoseThatShareTheMaximumShareItsGradient) {
  expect_equal(gradient({2, 3}, {4, 4, 1, 2, 3, 1}, [](Value x) { return max(x, kLast); }), {1, 1, 0, 0, 2, 0});
  expect_equal(gradient({2, 3}, {4, 4, 1, 1, 1, 1}, [](Value x) { return min(x, kLast); }),
               {0, 0, 2, 2.0 / 3, 2.0 / 3, 2.0 / 3});
}

TEST(Reductions, GradientOfAProductIsRightWithAnyNumberOfZeros) {
  expect_equal(gradient({3, 3}, {2, 3, 4, 2, 0, 4, 0, 0, 4}, [](Value x) { return prod(x, kLast); }),
               {24, 16, 12, 0, 16, 0, 0, 0, 0});
}

TEST(Reductions, GradientOfLogsumexpIsSoftmax) {
  const double e = std::exp(1.0);
  expect_equal(gradient({3}, {0, 1, 0}, [](Value x) { return logsumexp(x); }),
               {2 / (2 + e), 2 * e / (2 + e), 2 / (2 + e)});
}

TEST(Reductions, SayWhatIsWrong) {
  Graph g;
  const Value x = g.input("x", f32, {2, 0}), b = g.input("b", boolean, {2});
  EXPECT_NE(message_of([&] { argmax(x, 1); }).find("argmax: axis 1 of a [2, 0] has no element"), std::string::npos);
  EXPECT_NE(message_of([&] { prod(b); }).find("prod: a is bool"), std::string::npos);
  EXPECT_NE(message_of([&] { mean(b); }).find("mean: a is bool, not a float"), std::string::npos);
  EXPECT_NE(message_of([&] { var(x, Ints{3}); }).find("var: axis 3"), std::string::npos);
}

// ---- iota ----

TEST(Iota, CountsAlongItsAxisAndInSteps) {
  Graph g;
  g.fetch("rows", iota(g, {2, 3}, 0));
  g.fetch("columns", iota(g, {2, 3}, -1, i32));
  g.fetch("down", arange(g, 7, 0, -3));
  g.fetch("none", arange(g, 3, 3));
  g.fetch("floats", arange(g, 0, 3, 1, f32));
  Program program(g, {});
  const Tensors got = program.run({});
  const std::map<std::string, Dense> expected{{"rows", {0, 0, 0, 1, 1, 1}},
                                              {"columns", {0, 1, 2, 0, 1, 2}},
                                              {"down", {7, 4, 1}},
                                              {"none", {}},
                                              {"floats", {0, 1, 2}}};
  const auto exact = evaluate_graph(g, {});
  for (const auto& [name, values] : expected) {
    EXPECT_EQ(got.at(name).to_doubles(), values) << name;
    EXPECT_EQ(exact.at(name), values) << name;
  }
  EXPECT_THROW(arange(g, 0, 3, 0), Error);
  EXPECT_THROW(iota(g, {2}, 1), Error);
  EXPECT_THROW(iota(g, {2}, 0, f32), Error);
}

TEST(Iota, IsReadByKernelOpsAndLoops) {
  Graph g;
  const Value x = g.input("x", f32, {3, 4});
  g.fetch("product", matmul(x, cast(iota(g, {4, 2}, 0), f32)));
  const StepResult made =
      scan({iota(g, {2}, 0, i32)}, {iota(g, {3, 2}, 0, i32)}, [](const Values& carry, const Values& element) {
        const Value next = carry[0] + element[0] + iota(carry[0].graph(), {2}, 0, i32);
        return step({next}, {next});
      });
  g.fetch("stacked", made.outputs[0]);
  const Feeds feeds = make_feeds(g, 3);
  const auto exact = evaluate_graph(g, feeds);
  EXPECT_EQ(exact.at("stacked"), (Dense{0, 2, 1, 4, 3, 7}));
  for (const bool is_fused : {true, false}) {
    CompileOptions options;
    if (!is_fused) options.disabled_passes = pass_names();
    Program program(g, options);
    const Tensors got = program.run(to_tensors(g, feeds));
    for (const auto& [name, values] : exact) expect_close(name, got.at(name).to_doubles(), values, 1e-5);
  }
}

}  // namespace
}  // namespace paoding::testing_program
