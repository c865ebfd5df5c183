// SPDX-License-Identifier: Apache-2.0
// The program of docs/guide/profiling.md [FILE.pftrace]: where the time of a training loop goes, by op, by the parts of
// the model, by the loop's own ranges, and on a timeline.
#include <paoding/paoding.h>

#include <filesystem>
#include <iostream>
#include <random>

namespace pd = paoding;

namespace {

constexpr int kSteps = 24, kBatch = 32, kInputs = 32, kHidden = 64;

struct Batch {
  pd::Tensor xs, labels;
};

Batch read_a_batch(std::mt19937_64& random) {
  const pd::ProfileRange range("read a batch");
  Batch batch{pd::Tensor(pd::f32, {kSteps, kBatch, kInputs}), pd::Tensor(pd::i32, {kBatch})};
  std::normal_distribution<float> normal;
  for (float& x : batch.xs.values<float>()) x = normal(random);
  for (int& label : batch.labels.values<int>()) label = static_cast<int>(random() % 10);
  return batch;
}

pd::Value loss_of(pd::Graph& g) {
  const pd::Value xs = g.input("xs", pd::f32, {kSteps, kBatch, kInputs});
  const pd::Value labels = g.input("labels", pd::i32, {kBatch});
  const pd::nn::Lstm encoder(g, "encoder", kInputs, kHidden);
  const pd::nn::Linear hidden(g, "hidden", kHidden, 256), out(g, "out", 256, 10);
  const pd::Value state = encoder(xs).last_h[0];
  const pd::Scope scope(g, "head");
  return pd::cross_entropy(out(pd::relu(hidden(state))), labels);
}

}  // namespace

int main(int argc, char** argv) try {
  const auto timeline =
      argc > 1 ? std::filesystem::path(argv[1]) : std::filesystem::temp_directory_path() / "paoding_guide.pftrace";
  pd::Graph g;
  const pd::Value loss = loss_of(g);
  pd::minimize(loss, pd::Adam{});
  g.fetch("loss", loss);
  const pd::Device device = pd::Device::best();
  pd::Parameters parameters(g, device);
  pd::Program program(g, {.device = device}, &parameters);

  std::mt19937_64 random(1);
  pd::ProfiledSteps profiled({.first = 5, .end = 25});
  for (int i = 0; i <= 25; ++i) {
    profiled.before(i);
    if (i == 25) break;
    const Batch batch = read_a_batch(random);
    program.run({{"xs", batch.xs}, {"labels", batch.labels}});
  }
  pd::Profiler& seen = *profiled.profiler();
  std::cout << seen.stop(pd::SortBy::total, timeline);
  std::cout << seen.stop(pd::SortBy::total, "", {.nesting = pd::Nesting::scope});
} catch (const pd::Error& error) {
  std::cerr << error.what() << "\n";
  return 1;
}
