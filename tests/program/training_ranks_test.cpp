// SPDX-License-Identifier: Apache-2.0
// Training on several ranks, that are threads here, against one rank with all rows: losses and parameters, weights that
// differ, clipping, steps that are skipped, the loss scale, and dropout.
#include <gtest/gtest.h>

#include <array>

#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "tests/support/program_check.h"
#include "tests/support/thread_ranks.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kRows = 48, kWidth = 6;
constexpr int kTrained = 12;

struct Trained {
  std::vector<double> losses;
  std::map<std::string, Dense> parameters;
};

// Rows [begin, end) of the data set, in a graph for `rows` of them: the others have the weight 0.
struct Share {
  std::int64_t begin = 0, end = kRows, rows = kRows;
};

double cell(std::int64_t row, std::int64_t column, int step) {
  std::mt19937 random(static_cast<unsigned>((step * kRows + row) * 31 + column));
  return static_cast<double>(random() % 2048) / 1024 - 1;
}

using SetOptions = std::function<void(MinimizeOptions&)>;

Trained trained(const Share& share, const std::shared_ptr<Communicator>& communicator, const SetOptions& set = {},
                double dropout = 0, double spoiled = 0) {
  Graph g;
  const Value x = g.input("x", f32, {share.rows, kWidth}), y = g.input("y", f32, {share.rows, 1});
  const Value counts = g.input("counts", f32, {share.rows, 1});
  nn::Linear first(g, "first", kWidth, 17), second(g, "second", 17, 1);
  Value hidden = tanh(first(x));
  if (dropout > 0) hidden = paoding::dropout(hidden, dropout);
  const Value error = second(hidden) - y;
  const Value weight = sum(counts), loss = sum(error * error * counts) / weight;
  MinimizeOptions options;
  if (communicator != nullptr) options.data_parallel = true, options.loss_weight = weight;
  if (set) set(options);
  const TrainingStep step = minimize(loss, Adam{.learning_rate = 0.02}, options);
  g.fetch("loss", step.loss);
  const Parameters parameters(g, Device::cpu(), {.seed = 5});
  CompileOptions compile;
  compile.communicator = communicator;
  Program program(g, compile, &parameters);
  Trained made;
  for (int number = 0; number < kTrained; ++number) {
    Dense xs, ys, used;
    for (std::int64_t i = 0; i < share.rows; ++i) {
      const std::int64_t row = share.begin + i;
      const bool is_mine = row < share.end;
      double target = 0;
      for (std::int64_t column = 0; column < kWidth; ++column) {
        xs.push_back(cell(is_mine ? row : 0, column, number));
        target += xs.back() * static_cast<double>(column - 2);
      }
      if (spoiled != 0 && number == 3 && row == 1) target = spoiled;
      ys.push_back(target);
      used.push_back(is_mine ? 1 : 0);
    }
    const auto results = program.run({{"x", Tensor::from(f32, {share.rows, kWidth}, xs)},
                                      {"y", Tensor::from(f32, {share.rows, 1}, ys)},
                                      {"counts", Tensor::from(f32, {share.rows, 1}, used)}});
    made.losses.push_back(results.at("loss").to_doubles()[0]);
  }
  for (const std::string& name : parameters.names()) made.parameters[name] = parameters.get(name).to_doubles();
  return made;
}

// Each rank has its part of the rows, of unequal lengths.
std::vector<Trained> on_ranks(int ranks, const SetOptions& set = {}, double dropout = 0, double spoiled = 0) {
  ThreadRanks all(ranks, static_cast<unsigned>(ranks));
  std::vector<Trained> made(static_cast<std::size_t>(ranks));
  const auto errors = all.run([&](int rank, const std::shared_ptr<Communicator>& communicator) {
    const std::int64_t most = kRows / ranks + 2;
    const auto bound = [&](int number) {
      return number == ranks ? kRows : number * kRows / ranks + (number % 2 == 1 ? 2 : 0);
    };
    made[static_cast<std::size_t>(rank)] =
        trained({bound(rank), bound(rank + 1), most}, communicator, set, dropout, spoiled);
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return made;
}

void expect_same_training(const std::vector<Trained>& ranks, const Trained& one, double tolerance = 2e-5) {
  for (const Trained& each : ranks) {
    ASSERT_EQ(each.losses.size(), one.losses.size());
    for (std::size_t i = 0; i < one.losses.size(); ++i) {
      if (std::isfinite(one.losses[i])) {
        EXPECT_NEAR(each.losses[i], one.losses[i], 1e-5 * std::fabs(one.losses[i])) << i;
      } else {
        EXPECT_FALSE(std::isfinite(each.losses[i])) << i;
      }
    }
    for (const auto& [name, values] : one.parameters) expect_close(name, each.parameters.at(name), values, tolerance);
    EXPECT_EQ(each.parameters, ranks[0].parameters) << "all ranks have the same bits";
  }
}

class DataParallel : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, DataParallel, ::testing::Values(2, 4, 8));

TEST_P(DataParallel, TrainsAsOneRankWithAllRows) { expect_same_training(on_ranks(GetParam()), trained({}, nullptr)); }

TEST_P(DataParallel, ClipsByTheNormOfAllRanks) {
  const SetOptions clips = [](MinimizeOptions& options) { options.clip_norm = 0.7; };
  expect_same_training(on_ranks(GetParam(), clips), trained({}, nullptr, clips));
}

TEST_P(DataParallel, SumsUpMicroBatches) {
  const SetOptions sums = [](MinimizeOptions& options) { options.accumulate = 3; };
  expect_same_training(on_ranks(GetParam(), sums), trained({}, nullptr, sums));
}

// One row of one rank: all leave the step out, and count it.
TEST_P(DataParallel, SkipsAStepThatIsNotFiniteOnOneRank) {
  const SetOptions skips = [](MinimizeOptions& options) { options.skip_nonfinite = true; };
  for (const double spoiled : {std::nan(""), 1e30}) {
    const auto ranks = on_ranks(GetParam(), skips, 0, spoiled);
    const Trained one = trained({}, nullptr, skips, 0, spoiled);
    expect_same_training(ranks, one);
    EXPECT_EQ(one.parameters.at("optimizer/skipped"), Dense({1}));
    EXPECT_EQ(ranks[0].parameters.at("optimizer/skipped"), Dense({1}));
  }
}

TEST_P(DataParallel, LowersTheLossScaleOfAllRanks) {
  const SetOptions scales = [](MinimizeOptions& options) { options.loss_scale = LossScale{.initial = 1024}; };
  const auto ranks = on_ranks(GetParam(), scales, 0, 1e30);
  const Trained one = trained({}, nullptr, scales, 0, 1e30);
  EXPECT_EQ(ranks[0].parameters.at("optimizer/skipped"), one.parameters.at("optimizer/skipped"));
  EXPECT_EQ(ranks[0].parameters.at("optimizer/overflows"), one.parameters.at("optimizer/overflows"));
  for (const Trained& each : ranks) EXPECT_EQ(each.parameters, ranks[0].parameters);
}

// Ranks drop other elements, and still make the same updates: the mean of the masks of all has no holes that one would
// have.
TEST_P(DataParallel, DropsOtherElementsOnEachRank) {
  const auto ranks = on_ranks(GetParam(), {}, 0.5);
  for (const Trained& each : ranks) EXPECT_EQ(each.parameters, ranks[0].parameters);
  // All rows alike: with one mask for all ranks the loss would be that of each rank alone.
  ThreadRanks all(2, 3);
  std::vector<Dense> masks(2);
  all.run([&](int rank, const std::shared_ptr<Communicator>& communicator) {
    Graph g;
    const Value mask = paoding::dropout(full(g, {64}, 1, f32), 0.5);
    g.fetch("mask", mask);
    g.fetch("sum", all_reduce(mask));
    const Parameters parameters(g);
    CompileOptions compile;
    compile.communicator = communicator;
    masks[static_cast<std::size_t>(rank)] = Program(g, compile, &parameters).run({}).at("mask").to_doubles();
  });
  EXPECT_NE(masks[0], masks[1]);
}

// Without a weight all ranks count the same; with one rank everything is as without ranks, to the bit.
TEST(DataParallelPrograms, OfOneRankHaveTheBitsOfThoseWithout) {
  ThreadRanks one(1);
  const Trained plain = trained({}, nullptr);
  const Trained of_rank = trained({}, one.rank(0), [](MinimizeOptions& options) { options.loss_weight = Value(); });
  EXPECT_EQ(plain.losses, of_rank.losses);
  EXPECT_EQ(plain.parameters, of_rank.parameters);
}

TEST(DataParallelPrograms, SayWhatIsWrongWithAWeight) {
  Graph g, other;
  const Value x = g.parameter("x", f32, {3}), loss = sum(x * x);
  const auto message = [&](const Value& weight, bool is_parallel) {
    return message_of([&] {
      MinimizeOptions options;
      options.data_parallel = is_parallel;
      options.loss_weight = weight;
      minimize(loss, Sgd{}, options);
    });
  };
  EXPECT_EQ(message(full(g, {}, 1, f32), false), "minimize: loss_weight is given without data_parallel");
  for (const Value& wrong : {full(g, {2}, 1, f32), full(g, {}, 1, i64), full(other, {}, 1, f32)}) {
    EXPECT_TRUE(has(message(wrong, true), "needed is a scalar float of the loss's graph"));
  }
}

}  // namespace
}  // namespace paoding::testing_program
