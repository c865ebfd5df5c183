// SPDX-License-Identifier: Apache-2.0
// Random ops: the distributions they claim, other numbers for every run, op and step, the same numbers whenever seed
// and counter are the same, whatever the passes and the number of threads.
#include <algorithm>
#include <cmath>
#include <functional>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct Moments {
  double mean = 0, deviation = 0, least = HUGE_VAL, most = -HUGE_VAL;
};

Moments moments_of(const Dense& values) {
  Moments m;
  for (double value : values) {
    m.mean += value / static_cast<double>(values.size());
    m.least = std::min(m.least, value);
    m.most = std::max(m.most, value);
  }
  double square = 0;
  for (double value : values) square += (value - m.mean) * (value - m.mean);
  m.deviation = std::sqrt(square / static_cast<double>(values.size()));
  return m;
}

// The largest distance between the distribution of values and the expected one (Kolmogorov, Smirnov).
double distance(Dense values, const std::function<double(double)>& expected) {
  std::sort(values.begin(), values.end());
  double most = 0;
  for (std::size_t i = 0; i < values.size(); ++i) {
    const double below = static_cast<double>(i) / static_cast<double>(values.size());
    most = std::max(most, std::fabs(expected(values[i]) - below));
  }
  return most;
}

constexpr std::int64_t kCount = 100'000;
const double kFar = 2.0 / std::sqrt(static_cast<double>(kCount));  // the chance of a larger distance is below 0.001

Tensors run(Graph& g, std::uint64_t seed = 1, int runs = 1, const CompileOptions& options = {}) {
  Parameters parameters(g, Device::cpu(), {.seed = seed});
  Program program(g, options, &parameters);
  Tensors got;
  for (int i = 0; i < runs; ++i) got = program.run({});
  return got;
}

TEST(Random, NumbersAreDistributedAsTheySay) {
  Graph g;
  g.fetch("uniform", random_uniform(g, {kCount}, -1, 3));
  g.fetch("double", random_uniform(g, {kCount}, 0, 1, f64));
  g.fetch("normal", random_normal(g, {kCount / 100, 100}, 2, 0.5));
  g.fetch("bernoulli", random_bernoulli(g, {kCount}, 0.3));
  g.fetch("half", random_uniform(g, {kCount}, 0, 1, bf16));
  const Tensors got = run(g);
  const auto values = [&](const char* name) { return got.at(name).to_doubles(); };
  EXPECT_LT(distance(values("uniform"), [](double a) { return (a + 1) / 4; }), kFar);
  EXPECT_LT(distance(values("double"), [](double a) { return a; }), kFar);
  EXPECT_LT(distance(values("normal"), [](double a) { return 0.5 * std::erfc(-(a - 2) / 0.5 / std::sqrt(2.0)); }),
            kFar);
  EXPECT_NEAR(moments_of(values("bernoulli")).mean, 0.3, 0.006);
  EXPECT_NEAR(moments_of(values("half")).mean, 0.5, 0.005);
  const Moments uniform = moments_of(values("uniform")), normal = moments_of(values("normal"));
  EXPECT_GE(uniform.least, -1);
  EXPECT_LT(uniform.most, 3);
  EXPECT_NEAR(normal.mean, 2, 0.01);
  EXPECT_NEAR(normal.deviation, 0.5, 0.01);
  // Neighbours do not follow from each other.
  const Dense u = values("double");
  double product = 0;
  for (std::size_t i = 0; i + 1 < u.size(); ++i) product += (u[i] - 0.5) * (u[i + 1] - 0.5) * 12;
  EXPECT_LT(std::fabs(product / static_cast<double>(u.size())), 2 * kFar);
}

TEST(Random, EveryRunAndOpHasItsOwnRandomNumbers) {
  Graph g;
  g.fetch("a", random_uniform(g, {1000}));
  g.fetch("b", random_uniform(g, {1000}));
  const Dense a = run(g).at("a").to_doubles();
  EXPECT_NE(a, run(g).at("b").to_doubles());
  EXPECT_NE(a, run(g, 1, 2).at("a").to_doubles());
  EXPECT_NE(a, run(g, 2).at("a").to_doubles());
  expect_same_bits(run(g, 1, 3), run(g, 1, 3));
}

// A store whose state is put back goes on with the same numbers.
TEST(Random, EveryBitOfTheSeedCounts) {
  Graph g;
  g.fetch("x", random_uniform(g, {8}));
  const Dense values = run(g, 77).at("x").to_doubles();
  for (int bit = 0; bit < 64; ++bit) {
    EXPECT_NE(run(g, 77 ^ (std::uint64_t{1} << bit)).at("x").to_doubles(), values) << bit;
  }
}

TEST(Random, ContinueWhereTheStateSays) {
  Graph g;
  g.fetch("a", random_normal(g, {50}));
  Parameters first(g, Device::cpu(), {.seed = 5}), second(g, Device::cpu(), {.seed = 6});
  Program one(g, {}, &first), two(g, {}, &second);
  one.run({});
  one.run({});
  EXPECT_EQ(first.get("random/state").to_doubles()[1], 2);
  second.set("random/state", first.get("random/state"));
  expect_same_bits(one.run({}), two.run({}));
}

TEST(Random, EveryStepOfEveryLoopHasItsOwnRandomNumbers) {
  Graph g;
  const Value xs = g.input("xs", f32, {4, 3}), ys = g.input("ys", f32, {5, 3});
  const StepResult outer = scan({}, {xs}, [&](const Values&, const Values& x) {
    const StepResult inner = scan({}, {ys}, [&](const Values&, const Values& y) {
      return step({}, {random_uniform(y[0].graph(), {3}) + y[0] * 0.0 + x[0] * 0.0});
    });
    return step({}, {inner.outputs[0]});
  });
  g.fetch("all", outer.outputs[0]);  // [4, 5, 3]
  Parameters parameters(g, Device::cpu(), {.seed = 1});
  Program program(g, {}, &parameters);
  Dense all =
      program
          .run({{"xs", Tensor::from(f32, {4, 3}, Dense(12, 1.0))}, {"ys", Tensor::from(f32, {5, 3}, Dense(15, 1.0))}})
          .at("all")
          .to_doubles();
  ASSERT_EQ(all.size(), 60U);
  std::sort(all.begin(), all.end());
  EXPECT_EQ(std::unique(all.begin(), all.end()), all.end());
  EXPECT_GT(moments_of(all).deviation, 0.2);
}

// A loop without a limit has no numbers of its steps to draw by.
TEST(Random, AreAnewInEveryTurnOfALoopWithALimitAndNotPossibleWithoutOne) {
  Graph g;
  const Value x = g.input("x", f32, {3});
  const auto goes_on = [](const Values& v) { return less(v[1], full(v[1].graph(), {}, 4, i64)); };
  const auto draw = [&](const Values& v) {
    const Value drawn = reshape(random_uniform(v[0].graph(), {3}), std::array<std::int64_t, 2>{1, 3});
    return Values{concat(std::array{slice(v[0], 0, 1, 4), drawn}, 0), v[1] + 1.0};
  };
  const Values start{full(g, {4, 3}, 0), full(g, {}, 0, i64)};
  g.fetch("all", while_loop(start, goes_on, draw, 6).values[0]);
  g.fetch("x", x);
  Parameters parameters(g, Device::cpu(), {.seed = 1});
  Program program(g, {}, &parameters);
  Dense all = program.run({{"x", Tensor::from(f32, {3}, Dense(3, 1.0))}}).at("all").to_doubles();
  ASSERT_EQ(all.size(), 12U);
  std::sort(all.begin(), all.end());
  EXPECT_GT(all.front(), 0);
  EXPECT_TRUE(std::unique(all.begin(), all.end()) == all.end());
  EXPECT_THROW(while_loop(start, goes_on, draw), Error);
}

TEST(Random, AStepKnowsItsNumber) {
  for (const bool reverse : {false, true}) {
    Graph g;
    const Value xs = g.input("xs", i64, {5}), factor = g.input("factor", i64, {});
    const StepResult made = scan(
        {}, {xs}, [&](const Values&, const Values& x) { return step({}, {x[0] * factor + step_index(x[0].graph())}); },
        reverse);
    g.fetch("y", made.outputs[0]);
    Program program(g);
    const Tensors got = program.run(
        {{"xs", Tensor::from(i64, {5}, Dense{1, 2, 3, 4, 5})}, {"factor", Tensor::from(i64, {}, Dense{10})}});
    EXPECT_EQ(got.at("y").to_doubles(), (Dense{10, 21, 32, 43, 54}));
  }
  Graph g;
  EXPECT_THROW(step_index(g), Error);
}

TEST(Dropout, KeepsTheMeanAndScalesWhatItKeeps) {
  Graph g;
  const Value x = g.input("x", f32, {kCount});
  g.fetch("y", dropout(x, 0.2));
  EXPECT_EQ(dropout(x, 0), x);
  EXPECT_EQ(dropout(x, 0.5, false), x);
  EXPECT_THROW(dropout(x, 1), Error);
  EXPECT_THROW(dropout(x, -0.1), Error);
  Parameters parameters(g, Device::cpu(), {.seed = 1});
  Program program(g, {}, &parameters);
  const Dense y = program.run({{"x", Tensor::from(f32, {kCount}, Dense(kCount, 2.0))}}).at("y").to_doubles();
  std::int64_t zeros = 0;
  for (double value : y) {
    zeros += value == 0;
    if (value != 0) {
      ASSERT_FLOAT_EQ(static_cast<float>(value), 2.5F);
    }
  }
  EXPECT_NEAR(static_cast<double>(zeros) / kCount, 0.2, 0.005);
}

// y and dy/dx have their zeros in the same places, in a loop too, and keep no mask for it.
TEST(Dropout, HasTheSameZerosForwardAndBackward) {
  Graph g;
  const Value xs = g.input("xs", f32, {6, 50}), start = g.input("start", f32, {50});
  const StepResult made = scan({start}, {xs}, [&](const Values& carry, const Values& x) {
    const Value kept = dropout(x[0], 0.4);
    return step({carry[0] * 0.5 + kept}, {kept});
  });
  g.fetch("y", made.outputs[0]);
  const Value seed = g.input("seed", f32, {6, 50});
  g.fetch("dx", gradients(std::array{made.outputs[0]}, std::array{xs}, std::array{seed})[0]);
  const Feeds feeds = make_feeds(g, 1);
  Parameters parameters(g, Device::cpu(), {.seed = 3});
  Program program(g, {}, &parameters);
  const Tensors got = program.run(to_tensors(g, feeds));
  const Dense y = got.at("y").to_doubles(), dx = got.at("dx").to_doubles();
  int zeros = 0;
  for (std::size_t i = 0; i < y.size(); ++i) {
    EXPECT_EQ(y[i] == 0, dx[i] == 0) << i;
    zeros += y[i] == 0;
  }
  EXPECT_NEAR(zeros, 0.4 * 300, 40);
  EXPECT_NE(Dense(y.begin(), y.begin() + 50), Dense(y.begin() + 50, y.begin() + 100));
}

TEST(Random, GivesTheSameBitsFusedUnfusedAndStepByStep) {
  Graph g;
  const Value x = g.input("x", f32, {40, 30});
  g.fetch("y", dropout(tanh(x) + random_uniform(g, {40, 30}), 0.3) * 2.0);
  g.fetch("bits", random_bernoulli(g, {1000}, 0.5));
  const Feeds feeds = make_feeds(g, 2);
  const auto with = [&](const CompileOptions& options) {
    Parameters parameters(g, Device::cpu(), {.seed = 9});
    Program program(g, options, &parameters);
    return program.run(to_tensors(g, feeds));
  };
  CompileOptions unfused, stepwise;
  unfused.disabled_passes = pass_names();
  stepwise.execution = Execution::stepwise;
  const Tensors fused = with({});
  expect_same_bits(fused, with(stepwise));
  const Tensors plain = with(unfused);
  expect_same_bits({{"bits", fused.at("bits")}}, plain);
  const Dense a = fused.at("y").to_doubles(), b = plain.at("y").to_doubles();
  for (std::size_t i = 0; i < a.size(); ++i) EXPECT_NEAR(a[i], b[i], 1e-5);
}

}  // namespace
}  // namespace paoding::testing_program
