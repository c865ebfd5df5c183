// SPDX-License-Identifier: Apache-2.0
// 16_several_ranks: training on several processes, each with its part of the rows (docs/howto/several_gpus.md). Alone
// it is one rank; the losses are those of any number, up to rounding:
//   torchrun --nproc-per-node 2 --no-python build/examples/16_several_ranks
#include <cmath>
#include <iostream>

#include "paoding/distributed.h"
#include "paoding/paoding.h"

namespace pd = paoding;

int main() {
  constexpr std::int64_t kRows = 64, kFeatures = 8;
  const auto place = pd::rank_of_environment().value_or(pd::RankPlace{});
  const bool has_gpus = pd::Device::best().kind == pd::DeviceKind::cuda;
  const pd::Device device = has_gpus ? pd::Device::cuda(place.local_rank) : pd::Device::cpu();
  if (place.size > 1 && !pd::missing_for_ranks(device.kind).empty()) {
    std::cout << pd::missing_for_ranks(device.kind) << "\n";
    return 1;
  }
  const auto ranks = pd::connect_ranks(place, device);
  const std::int64_t rows = kRows / ranks->size(), first = ranks->rank() * rows;

  pd::Graph graph;
  const pd::Value x = graph.input("x", pd::f32, {rows, kFeatures}), y = graph.input("y", pd::f32, {rows, 1});
  const pd::Value error = pd::nn::Linear(graph, "layer", kFeatures, 1)(x) - y;
  const pd::Value loss = mean(error * error);
  pd::MinimizeOptions minimized;
  minimized.data_parallel = true;
  const pd::TrainingStep step = minimize(loss, pd::Adam{.learning_rate = 0.05}, minimized);
  graph.fetch("loss", step.loss);  // the mean of all ranks

  pd::Parameters parameters(graph, device, {.seed = 7});
  pd::CompileOptions options;
  options.device = device;
  options.communicator = ranks;
  pd::Program program(graph, options, &parameters);

  for (int number = 1; number <= 60; ++number) {
    std::vector<double> xs, ys;
    for (std::int64_t row = first; row < first + rows; ++row) {
      double sum = 0;
      for (std::int64_t feature = 0; feature < kFeatures; ++feature) {
        xs.push_back(std::sin(static_cast<double>(row * kFeatures + feature + number)));
        sum += xs.back() * static_cast<double>(feature);
      }
      ys.push_back(sum);
    }
    const auto results = program.run(
        {{"x", pd::Tensor::from(pd::f32, {rows, kFeatures}, xs)}, {"y", pd::Tensor::from(pd::f32, {rows, 1}, ys)}});
    if (ranks->rank() == 0 && number % 20 == 0) {
      std::cout << "step " << number << ": loss " << results.at("loss").to_doubles()[0] << "\n";
    }
  }
  ranks->barrier();  // none is gone before the last step has ended on all
  if (ranks->rank() == 0) std::cout << "trained on " << ranks->size() << " rank(s), " << ranks->name() << "\n";
}
