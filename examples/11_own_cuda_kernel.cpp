// SPDX-License-Identifier: Apache-2.0
// An op of your own with a CUDA kernel of your own (rotary.h). On a GPU the kernel runs, in the captured graph, with a
// line in reports, forward and backward; elsewhere the op's composition runs. Tests see no difference.
#include <array>
#include <cmath>
#include <iostream>

#include "rotary.h"

namespace pd = paoding;

int main() {
  rotary_op::register_rotary();
  constexpr std::int64_t kBatch = 4, kSteps = 64, kWidth = 128;
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {kBatch, kSteps, kWidth});
  const pd::Value angle = g.input("angle", pd::f32, {kSteps, kWidth / 2});
  const pd::Value y = rotary_op::rotary(x, angle);
  const pd::Value loss = pd::sum(y * y * y);
  g.fetch("y", y);
  g.fetch("dx", pd::gradients(loss, {x})[0]);

  std::vector<double> xs(kBatch * kSteps * kWidth), angles(kSteps * kWidth / 2);
  for (std::size_t i = 0; i < xs.size(); ++i) xs[i] = std::sin(static_cast<double>(i));
  for (std::int64_t t = 0; t < kSteps; ++t) {
    for (std::int64_t i = 0; i < kWidth / 2; ++i) {
      const double frequency = std::pow(10000.0, -2.0 * static_cast<double>(i) / kWidth);
      angles[static_cast<std::size_t>(t * kWidth / 2 + i)] = static_cast<double>(t) * frequency;
    }
  }
  const pd::Device device = pd::Device::best();
  pd::Program program(g, {.device = device});
  const auto got = program.run({{"x", pd::Tensor::from(pd::f32, {kBatch, kSteps, kWidth}, xs)},
                                {"angle", pd::Tensor::from(pd::f32, {kSteps, kWidth / 2}, angles)}});

  // A rotation changes no length: the sum of squares stays the same.
  double before = 0, after = 0;
  for (const double value : xs) before += value * value;
  for (const double value : got.at("y").to_doubles()) after += value * value;
  std::cout << "on " << to_string(device) << ": sum of squares " << before << ", rotated " << after << "\n"
            << program.plan_text().substr(0, program.plan_text().find("slots")) << "\n";
}
