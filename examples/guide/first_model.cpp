// SPDX-License-Identifier: Apache-2.0
// The programs of docs/guide/first_model.md: a formula, its gradient, a classifier that is trained, and an error.
#include <paoding/paoding.h>

#include <cmath>
#include <iostream>
#include <random>

namespace pd = paoding;

namespace {

void a_formula() {
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {3});
  const pd::Value y = pd::exp(x) + 1.0;
  g.fetch("y", y);

  pd::Program program(g);
  const auto results = program.run({{"x", pd::Tensor::from({0.0f, 1.0f, 2.0f})}});
  for (const float element : results.at("y").values<float>()) std::cout << element << "\n";
}

void its_gradient() {
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {2, 1});
  const pd::Value y = g.input("y", pd::f32, {2, 3});
  const pd::Value distance = pd::sum(pd::abs(x - y));
  const pd::Values slopes = pd::gradients(distance, {x, y});
  g.fetch("distance", distance);
  g.fetch("dx", slopes[0]);

  pd::Program program(g);
  const auto results = program.run({{"x", pd::Tensor::from({{2.0f}, {0.0f}})},  //
                                    {"y", pd::Tensor::from({{1.0f, 1.0f, 5.0f}, {1.0f, 1.0f, 1.0f}})}});
  std::cout << "distance = " << results.at("distance").item<float>() << "\n";
  for (const float element : results.at("dx").values<float>()) std::cout << "dx = " << element << "\n";
  std::cout << program.report().launches << " kernel\n";
}

// Points [count, 2] on two spirals, and which of the two each is on.
struct Points {
  pd::Tensor places, labels;
};

Points spirals(int count, std::mt19937_64& random) {
  std::uniform_real_distribution<float> along(0.25f, 1);
  std::vector<float> places;
  std::vector<int> labels;
  for (int i = 0; i < count; ++i) {
    const float radius = along(random), angle = 9 * radius + (i % 2 == 0 ? 0.0f : 3.1416f);
    places.insert(places.end(), {radius * std::cos(angle), radius * std::sin(angle)});
    labels.push_back(i % 2);
  }
  return {pd::Tensor::from({count, 2}, places), pd::Tensor::from(labels)};
}

pd::Value classify(pd::Graph& g, const pd::Value& places) {
  const pd::nn::Linear first(g, "first", 2, 64), second(g, "second", 64, 64), last(g, "last", 64, 2);
  return last(pd::relu(second(pd::relu(first(4.0 * places)))));
}

void a_classifier() {
  constexpr int kBatch = 128;
  pd::Graph g;
  const pd::Value places = g.input("places", pd::f32, {kBatch, 2});
  const pd::Value labels = g.input("labels", pd::i32, {kBatch});
  const pd::Value scores = classify(g, places);
  const pd::Value loss = pd::cross_entropy(scores, labels);
  pd::minimize(loss, pd::Adam{.learning_rate = 0.005});
  g.fetch("loss", loss);

  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device, {.seed = 1});
  std::cout << parameters.elements(pd::ParameterRole::model) << " numbers to learn\n";
  pd::Program step(g, {.device = device}, &parameters);
  std::mt19937_64 random(1);
  for (int i = 1; i <= 1000; ++i) {
    const Points points = spirals(kBatch, random);
    const auto results = step.run({{"places", points.places}, {"labels", points.labels}});
    if (i % 250 == 0) std::cout << "step " << i << ": loss " << results.at("loss").item<float>() << "\n";
  }

  pd::Graph use;
  const pd::Value few = use.input("places", pd::f32, {4, 2});
  use.fetch("chances", pd::softmax(classify(use, few)));
  pd::Program classifier(use, {.device = device}, &parameters);
  const Points points = spirals(4, random);
  const pd::Tensor chances = classifier.run({{"places", points.places}}).at("chances");
  for (int i = 0; i < 4; ++i) {
    std::cout << "on spiral " << points.labels.values<int>()[i] << ", with a chance of "
              << chances.values<float>()[2 * i + 1] << " on spiral 1\n";
  }
}

void an_error() {
  pd::Graph g;
  const pd::Value x = g.input("x", pd::f32, {64, 784});
  const pd::nn::Linear hidden(g, "hidden", 748, 128);
  try {
    hidden(x);
  } catch (const pd::Error& error) {
    std::cout << error.what() << "\n";
  }
}

}  // namespace

int main() {
  a_formula();
  its_gradient();
  a_classifier();
  an_error();
}
