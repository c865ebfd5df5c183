// SPDX-License-Identifier: Apache-2.0
// Two programs, one store of parameters. The first trains with dropout and batches of 128 points; the second has no
// dropout, takes all held-out points at once and counts the right answers. Every run of the second sees the parameters
// that the first has trained so far: nothing is copied. The points lie on two spirals, which no line can tell apart.
#include <cmath>
#include <iostream>
#include <random>
#include <utility>

#include "paoding/paoding.h"

namespace pd = paoding;

namespace {

// Points [count, 2] and which spiral each is on.
std::pair<pd::Tensor, pd::Tensor> spirals(int count, std::mt19937_64& random) {
  std::uniform_real_distribution<double> along(0.25, 1);
  std::normal_distribution<double> noise(0, 0.01);
  std::vector<float> points;
  std::vector<int> labels;
  for (int i = 0; i < count; ++i) {
    const double radius = along(random), angle = 9 * radius + (i % 2) * 3.14159265358979;
    points.push_back(static_cast<float>(radius * std::cos(angle) + noise(random)));
    points.push_back(static_cast<float>(radius * std::sin(angle) + noise(random)));
    labels.push_back(i % 2);
  }
  return {pd::Tensor::from({count, 2}, points), pd::Tensor::from(labels)};
}

// The model is written once; `training` is all that differs.
pd::Value classify(pd::Graph& g, const pd::Value& points, bool training) {
  const pd::nn::Linear first(g, "first", 2, 64), second(g, "second", 64, 64), last(g, "last", 64, 2);
  const pd::nn::Dropout dropout(0.05, training);
  return last(dropout(pd::relu(second(pd::relu(first(4.0 * points))))));
}

}  // namespace

int main() {
  constexpr int kBatch = 128, kHeldOut = 500, kRounds = 5, kStepsOfARound = 200;
  pd::Graph training;
  const pd::Value points = training.input("points", pd::f32, {kBatch, 2});
  const pd::Value labels = training.input("labels", pd::i32, {kBatch});
  const pd::Value loss = pd::cross_entropy(classify(training, points, true), labels);
  pd::minimize(loss, pd::AdamW{.learning_rate = 0.005});
  training.fetch("loss", loss);

  pd::Graph evaluating;
  const pd::Value held_points = evaluating.input("points", pd::f32, {kHeldOut, 2});
  const pd::Value held_labels = evaluating.input("labels", pd::i32, {kHeldOut});
  const pd::Value guess = pd::argmax(classify(evaluating, held_points, false), -1);
  evaluating.fetch("right", pd::sum(pd::cast(pd::equal(guess, pd::cast(held_labels, guess.dtype())), pd::f32)));

  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(training, device, {.seed = 3});  // has all that `evaluating` asks for
  pd::Program trainer(training, {.device = device}, &parameters);
  pd::Program evaluator(evaluating, {.device = device}, &parameters);
  std::mt19937_64 random(1);
  const auto [x, y] = spirals(kHeldOut, random);
  for (int round = 0; round <= kRounds; ++round) {
    for (int i = 0; round > 0 && i < kStepsOfARound; ++i) {
      const auto [some_points, some_labels] = spirals(kBatch, random);
      trainer.set_input(trainer.input_index("points"), some_points);
      trainer.set_input(trainer.input_index("labels"), some_labels);
      trainer.run();
    }
    const double right = evaluator.run({{"points", x}, {"labels", y}}).at("right").item<double>();
    std::cout << "after " << round * kStepsOfARound << " steps: " << right << " of " << kHeldOut << " right\n";
  }
}
