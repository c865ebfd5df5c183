// SPDX-License-Identifier: Apache-2.0
// The program of docs/guide/serving.md [FOLDER]: a trained network becomes one file, which four threads then run.
#include <paoding/paoding.h>

#include <filesystem>
#include <iostream>
#include <thread>

namespace pd = paoding;

namespace {

pd::Value classify(pd::Graph& g, const pd::Value& places) {
  const pd::nn::Linear first(g, "first", 2, 64), last(g, "last", 64, 2);
  return last(pd::tanh(first(places)));
}

// Which side of a line a point is on.
pd::Parameters trained() {
  constexpr int kBatch = 64;
  pd::Graph g;
  const pd::Value places = g.input("places", pd::f32, {kBatch, 2});
  const pd::Value labels = pd::cast(pd::less(pd::slice(places, 1, 0, 1), pd::slice(places, 1, 1, 2)), pd::i32);
  const pd::Value loss = pd::cross_entropy(classify(g, places), pd::reshape(labels, {kBatch}));
  pd::minimize(loss, pd::Adam{.learning_rate = 0.02});
  pd::Parameters parameters(g, pd::Device::cpu(), {.seed = 4});
  pd::Program program(g, {}, &parameters);
  for (int i = 0; i < 300; ++i) {
    pd::Tensor some(pd::f32, {kBatch, 2});
    for (int j = 0; j < 2 * kBatch; ++j)
      some.values<float>()[j] = static_cast<float>((i * 37 + j * j * 11) % 101) / 50 - 1;
    program.run({{"places", some}});
  }
  return parameters;
}

void save(const pd::Parameters& parameters, const std::filesystem::path& file) {
  pd::ModelFile model{.model = "sides",
                      .notes = {{"trained on", "points of a square"}},
                      .batch = "rows",
                      .parameters = pd::values_of(parameters, pd::ParameterRole::model)};
  for (const std::int64_t rows : {1, 8, 64}) {
    pd::Graph g;
    g.fetch("chances", pd::softmax(classify(g, g.input("places", pd::f32, {rows, 2}))));
    model.graphs[pd::graph_name("classify", {{"rows", rows}})] = pd::to_text(g);
  }
  pd::save_model(file, model);
}

void use(const std::filesystem::path& file) {
  const pd::Model model = pd::Model::load(file, {.executors = 2});
  const pd::Tensor point = pd::Tensor::from({{0.2f, 0.7f}});
  const pd::Tensor chances = model.run("classify", {{"places", point}}).at("chances");
  std::cout << (chances.values<float>()[1] > 0.5f ? "above" : "below") << " the line\n";

  std::vector<std::thread> threads;
  std::vector<int> above(4);
  for (int t = 0; t < 4; ++t) {
    threads.emplace_back([&model, &above, t] {
      const pd::Tensor places =
          pd::Tensor::from({8, 2}, std::vector<float>{0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0, 0, 1, 1, 0});
      for (int i = 0; i < 100; ++i) {
        const pd::Tensor chances = model.run("classify", {{"places", places}}).at("chances");
        for (int row = 0; row < 8; ++row) above[t] += chances.values<float>()[2 * row + 1] > 0.5f ? 1 : 0;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  for (const int count : above) std::cout << count << " of 800 points above the line\n";
}

void misuse(const std::filesystem::path& file) {
  const pd::Model model = pd::Model::load(file);
  try {
    model.run("classify", {{"places", pd::Tensor(pd::f32, {5, 3})}});
  } catch (const pd::Error& error) {
    std::cout << error.what() << "\n";
  }
}

}  // namespace

int main(int argc, char** argv) try {
  const auto folder = argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path();
  const auto file = folder / "sides.pd";
  save(trained(), file);
  use(file);
  misuse(file);
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
