// SPDX-License-Identifier: Apache-2.0
// Training g2p on a small dictionary, step by step as cli/training.cpp does: the same bits with the same threads, the
// same losses with others, and those that were recorded.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <omp.h>

#include <cmath>
#include <cstdlib>
#include <fstream>
#include <numeric>

#include "models/task.h"
#include "paoding/data/batches.h"
#include "paoding/optimizer.h"
#include "tests/support/small_corpora.h"
#include "tests/support/source_root.h"

namespace paoding::models {
namespace {

struct TrainedModel {
  std::vector<double> losses;
  std::map<std::string, std::string> bytes;  // of every parameter, the optimizer's state, and the state of dropout
};

struct Size {
  std::string hidden = "48", batch = "16";
  std::int64_t steps = 36;
};
// Large enough that products and formulas are shared between threads.
const Size kLarge{"192", "96", 10};

TrainedModel train(int threads, const Size& size = {}) {
  struct Threads {
    explicit Threads(int count) { omp_set_num_threads(count); }
    ~Threads() { omp_set_num_threads(before); }
    int before = omp_get_max_threads();
  };
  const Threads set(threads);
  const TemporaryFolder folder;
  small_corpora::write_g2p(folder, small_corpora::words(300));
  const auto task = make_task("g2p");
  const auto choose = [&](const char* name, const char* text) {
    Options all = task->options();
    for (const Option& option : task->settings.options()) all.push_back(option);
    models::set(*find(all, name), text);
  };
  choose("hidden", size.hidden.c_str());
  choose("dropout", "0.2");
  choose("batch-size", size.batch.c_str());
  choose("learning-rate", "0.01");
  choose("warmup", "5");
  task->read(folder.path());
  const TrainingSettings& s = task->settings;
  const auto graph_of = [&](const Programs::Key& key) {
    auto graph = std::make_unique<Graph>();
    const Value loss = task->loss(*graph, key[0], s.batch_size, true);
    const LearningRate rate = cosine_decay(s.learning_rate, size.steps, s.last_learning_rate, s.warmup);
    minimize(loss, Adam{.learning_rate = rate}, {.clip_norm = s.clip_norm, .skip_nonfinite = true});
    graph->fetch("loss", loss);
    return graph;
  };
  const std::vector<std::int64_t> buckets = task->buckets(Part::train);
  const Parameters parameters(*graph_of({buckets[0]}), Device::cpu(), {.seed = static_cast<std::uint64_t>(s.seed)});
  Programs programs(graph_of, {}, &parameters);
  TrainedModel made;
  for (std::int64_t epoch = 0; std::ssize(made.losses) < size.steps; ++epoch) {
    for (const auto& examples : data::shuffled_batches(buckets, s.batch_size, 7, epoch)) {
      if (std::ssize(made.losses) == size.steps) break;
      const std::int64_t bucket = buckets[static_cast<std::size_t>(examples[0])];
      const Batch batch = task->batch(Part::train, examples, bucket, s.batch_size);
      Program& program = programs.at({bucket});
      for (std::size_t i = 0; i < batch.feeds.size(); ++i) program.set_input(static_cast<int>(i), batch.feeds[i]);
      program.run();
      made.losses.push_back(program.fetch(0).to_doubles()[0]);
    }
  }
  for (const std::string& name : parameters.names()) {
    const Tensor value = parameters.get(name);
    made.bytes[name].assign(reinterpret_cast<const char*>(value.bytes()), static_cast<std::size_t>(value.size_bytes()));
  }
  return made;
}

TEST(Training, GivesTheSameBitsWithTheSameThreads) {
  const TrainedModel first = train(3), second = train(3);
  EXPECT_EQ(first.losses, second.losses);
  ASSERT_EQ(first.bytes.size(), second.bytes.size());
  EXPECT_TRUE(first.bytes.contains("random/state")) << "dropout draws from nothing";
  for (const auto& [name, bytes] : first.bytes) EXPECT_TRUE(bytes == second.bytes.at(name)) << name;
}

// Sums may be added in another order; dropout draws the same random numbers. Updates of Adam make more of a difference
// in the last bit.
TEST(Training, LosesTheSameWithOtherThreads) {
  const TrainedModel one = train(1, kLarge);
  for (const int threads : {2, 4}) {
    const TrainedModel more = train(threads, kLarge), again = train(threads, kLarge);
    EXPECT_TRUE(more.bytes == again.bytes) << threads << " threads";
    ASSERT_EQ(more.losses.size(), one.losses.size());
    double most = 0;
    for (std::size_t i = 0; i < one.losses.size(); ++i) {
      EXPECT_NEAR(more.losses[i], one.losses[i], 1e-4) << "step " << i << " with " << threads << " threads";
      most = std::max(most, std::fabs(more.losses[i] - one.losses[i]));
    }
    EXPECT_NEAR(more.losses[0], one.losses[0], 1e-6);
    EXPECT_EQ(more.bytes.at("random/state"), one.bytes.at("random/state"));
    EXPECT_EQ(more.bytes.at("optimizer/step"), one.bytes.at("optimizer/step"));
    RecordProperty(fmt::format("most_with_{}", threads), fmt::format("{:g}", most));
  }
}

// PAODING_RECORD_GOLDEN=1 writes the file anew. The tolerance allows for another order of sums and other vector
// instructions; a change of a formula, an initial value, the numbers of dropout or the order of batches makes far more.
TEST(Training, LosesWhatItDidWhenItWasRecorded) {
  const auto path = source_root() / "tests" / "golden" / "g2p_losses.txt";
  const std::vector<double> now = train(2).losses;
  if (std::getenv("PAODING_RECORD_GOLDEN") != nullptr) {
    std::ofstream file(path);
    for (const double loss : now) file << loss << "\n";
    return;
  }
  std::ifstream file(path);
  std::vector<double> then;
  for (double loss; file >> loss;) then.push_back(loss);
  ASSERT_EQ(then.size(), now.size()) << path;
  for (std::size_t i = 0; i < now.size(); ++i) EXPECT_NEAR(now[i], then[i], 2e-4 * then[i]) << "step " << i;
  const auto mean = [&](auto begin) { return std::accumulate(begin, begin + 8, 0.0) / 8; };
  EXPECT_LT(mean(now.end() - 8), mean(now.begin()) - 0.1) << "it learns";
}

}  // namespace
}  // namespace paoding::models
