// SPDX-License-Identifier: Apache-2.0
// Recurrent layers one above the other in one launch of a captured run, beside the same step by step: values between
// two layers are made step by step there, and not stored, so that last bits may differ. On the pretended GPU under many
// schedules.
#include <fmt/ranges.h>

#include <cmath>
#include <random>

#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "schedule/schedule.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {
namespace {

struct PipelineSizes {
  int layers;
  std::int64_t steps, rows, units;
  bool has_lengths = false;
};

void build(Graph& g, RecurrentKind kind, DType dtype, const PipelineSizes& s, bool is_training) {
  const nn::RecurrentLayerOptions layer{.layers = s.layers, .dtype = dtype};
  const Value xs = cast(g.input("xs", f32, {s.steps, s.rows, s.units}), dtype);
  RecurrentOptions rows;
  if (s.has_lengths) rows.lengths = g.input("lengths", i32, {s.rows});
  const auto outputs_of = [&](const nn::Recurrent& stack) { return stack(xs, rows).outputs; };
  const Value ys = kind == RecurrentKind::lstm  ? outputs_of(nn::Lstm(g, "stack", s.units, s.units, layer))
                   : kind == RecurrentKind::gru ? outputs_of(nn::Gru(g, "stack", s.units, s.units, layer))
                                                : outputs_of(nn::Rnn(g, "stack", s.units, s.units, layer));
  g.fetch("ys", cast(ys, f32));
  if (is_training) minimize(mean(square(cast(ys, f32))), Sgd{});
}

bool is_one_launch(const Graph& graph, std::int64_t layers) {
  const std::vector<std::string> told = make_schedule(plan_for_gpu(graph)).notes;
  return has(fmt::format("{}", fmt::join(told, "\n")), fmt::format("{} layers in one pipelined launch", layers));
}

class PipelinedLayers : public ::testing::TestWithParam<std::tuple<RecurrentKind, DType, PipelineSizes>> {};

TEST_P(PipelinedLayers, GiveWhatTheyGiveOneByOne) {
  const auto& [kind, dtype, sizes] = GetParam();
  for (const bool is_training : {false, true}) {
    Graph graph;
    build(graph, kind, dtype, sizes, is_training);
    EXPECT_TRUE(is_one_launch(graph, sizes.layers));
    if (gpu_here().kind != DeviceKind::cuda) continue;
    CompileOptions options = on_gpu();
    Parameters captured_parameters(graph, gpu_here()), stepwise_parameters(graph, gpu_here());
    Program captured(graph, options, &captured_parameters);
    options.execution = Execution::stepwise;
    Program stepwise(graph, options, &stepwise_parameters);
    EXPECT_GE(stepwise.report().launches - captured.report().launches, 2 * (sizes.layers - 1));
    for (int run = 0; run < 3; ++run) {  // words are told from those of the run before
      std::mt19937 random(static_cast<unsigned>(run));
      std::normal_distribution<double> draw(0, 1);
      Dense xs(static_cast<std::size_t>(sizes.steps * sizes.rows * sizes.units));
      for (double& x : xs) x = draw(random);
      Tensors feeds{{"xs", Tensor::from(f32, {sizes.steps, sizes.rows, sizes.units}, xs)}};
      if (sizes.has_lengths) {  // the second run keeps the first one's results of later steps
        Dense lengths(static_cast<std::size_t>(sizes.rows), run == 1 ? 1 : static_cast<double>(sizes.steps));
        lengths[0] = 2;
        feeds.emplace("lengths", Tensor::from(i32, {sizes.rows}, lengths));
      }
      const Dense got = captured.run(feeds).at("ys").to_doubles(), want = stepwise.run(feeds).at("ys").to_doubles();
      double error = 0, size = 0;
      for (std::size_t i = 0; i < want.size(); ++i) {
        error += (got[i] - want[i]) * (got[i] - want[i]), size += want[i] * want[i];
      }
      EXPECT_LE(std::sqrt(error), (dtype == f32 ? 1e-5 : 3e-2) * std::sqrt(size)) << "run " << run;
    }
  }
}

INSTANTIATE_TEST_SUITE_P(
    Recurrences, PipelinedLayers,
    ::testing::Combine(::testing::Values(RecurrentKind::lstm, RecurrentKind::gru, RecurrentKind::rnn),
                       ::testing::Values(f32, bf16),
                       ::testing::Values(PipelineSizes{3, 4, 2, 24}, PipelineSizes{2, 5, 3, 24, true})));

}  // namespace
}  // namespace paoding::testing_program
