// SPDX-License-Identifier: Apache-2.0
// A few training steps of every model on a GPU: one captured graph leaves the same bits whenever it runs, and the bits
// of its steps one after the other where every launch is a step's own. Groups that are fused vertically into one launch
// (gpu/codegen/vertical_launch.h) add up in another order than alone, so there the last bits may differ, and no more.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <cstring>

#include "models/task.h"
#include "paoding/data/batches.h"
#include "paoding/optimizer.h"
#include "tests/support/small_corpora.h"

namespace paoding::models {
namespace {

using Bytes = std::map<std::string, std::string>;

std::string bytes_of(const Tensor& tensor) {
  return {reinterpret_cast<const char*>(tensor.bytes()), static_cast<std::size_t>(tensor.size_bytes())};
}

// Every parameter and the optimizer's state after three steps, and the fetches of each step.
Bytes trained(const std::string& name, Execution execution, bool fuses_launches = true) {
  const auto task = make_task(name);
  const Options all = task->options();
  for (const auto& [option, text] : std::map<std::string, std::string>{
           {"hidden", "40"}, {"vocabulary", "100"}, {"width", "8"}, {"continue", "5"}, {"dropout", "0.3"}}) {
    if (const Option* found = find(all, option)) set(*found, text);
  }
  task->read(small_corpora::all().path());
  constexpr std::int64_t kRows = 8;
  const auto graph_of = [&](const Programs::Key& key) {
    auto graph = std::make_unique<Graph>();
    const Value loss = task->loss(*graph, key[0], kRows, true);
    const TrainingStep step =
        minimize(loss, Adam{}, {.clip_norm = 1, .skip_nonfinite = true, .stop_at_nonfinite = true});
    graph->fetch("loss", loss);
    graph->fetch("norm", step.gradient_norm);
    return graph;
  };
  CompileOptions options;
  options.device = Device::cuda(0);
  options.execution = execution;
  options.fuses_launches = fuses_launches;
  const std::vector<std::int64_t> buckets = task->buckets(Part::train);
  const auto batches = data::shuffled_batches(buckets, kRows, 7, 0);
  const Parameters parameters(*graph_of({buckets[0]}), options.device, {.seed = 12});
  Programs programs(graph_of, options, &parameters);
  Bytes made;
  for (std::size_t step = 0; step < 3; ++step) {
    const std::int64_t bucket = buckets[static_cast<std::size_t>(batches.at(step)[0])];
    const Batch batch = task->batch(Part::train, batches[step], bucket, kRows);
    Program& program = programs.at({bucket});
    for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
    program.run();
    made[fmt::format("loss {}", step)] = bytes_of(program.fetch(0));
    made[fmt::format("norm {}", step)] = bytes_of(program.fetch(1));
  }
  for (const std::string& parameter : parameters.names()) made[parameter] = bytes_of(parameters.get(parameter));
  return made;
}

float float_of(const std::string& bytes) {
  float value;
  EXPECT_EQ(bytes.size(), sizeof value);
  std::memcpy(&value, bytes.data(), sizeof value);
  return value;
}

void expect_same_bits(const Bytes& one, const Bytes& other) {
  ASSERT_EQ(one.size(), other.size());
  for (const auto& [name, bytes] : one) EXPECT_TRUE(other.at(name) == bytes) << name;
}

class CapturedStepsOnGpu : public testing::TestWithParam<std::string> {
 protected:
  void SetUp() override {
    if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  }
};

TEST_P(CapturedStepsOnGpu, LeaveTheBitsOfStepsOneByOneWhereEachHasItsOwnLaunch) {
  const Bytes captured = trained(GetParam(), Execution::captured, false);
  EXPECT_NE(captured.at("loss 0"), captured.at("loss 1")) << "nothing is trained";
  expect_same_bits(captured, trained(GetParam(), Execution::stepwise));
}

TEST_P(CapturedStepsOnGpu, LeaveTheSameBitsWhenTheyAreDoneAgain) {
  expect_same_bits(trained(GetParam(), Execution::captured), trained(GetParam(), Execution::captured));
}

// Adam divides by the gradient's size, so only the first step can be held against rounding.
TEST_P(CapturedStepsOnGpu, DifferFromStepsOneByOneInTheLastBitsAtMost) {
  const Bytes captured = trained(GetParam(), Execution::captured), stepwise = trained(GetParam(), Execution::stepwise);
  for (const std::string name : {"loss 0", "norm 0"}) {
    const float expected = float_of(stepwise.at(name));
    EXPECT_NEAR(float_of(captured.at(name)), expected, 1e-6 * std::abs(expected)) << name;
  }
}

INSTANTIATE_TEST_SUITE_P(Models, CapturedStepsOnGpu, testing::ValuesIn(task_names()),
                         [](const auto& info) { return info.param; });

}  // namespace
}  // namespace paoding::models
