// SPDX-License-Identifier: Apache-2.0
// The training step of translate at its real size on a GPU: the time and memory of compiling it, and of binding the 106
// shapes that its data have. PAODING_TRANSLATE_TRIAL=1 is a model of few parameters and some of the shapes, for a GPU
// that is pretended.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <cstdlib>
#include <ctime>
#include <thread>

#include "gpu/driver/driver.h"
#include "models/seq2seq.h"
#include "paoding/optimizer.h"
#include "paoding/programs.h"

namespace paoding {
namespace {

bool is_trial() { return std::getenv("PAODING_TRANSLATE_TRIAL") != nullptr; }

constexpr std::int64_t kBounds[] = {6, 8, 10, 12, 14, 17, 20, 24, 28, 33, 40, 50};
// A row for each bound of the source: which bounds of the target there are with it.
constexpr const char* kShapes[] = {"xxxxxxxxx...", "xxxxxxxx....", "xxxxxxxxxx..", "xxxxxxxxxx..",
                                   "xxxxxxxxxxx.", ".xxxxxxxxxxx", "..xxxxxxxxxx", "...xxxxxxxxx",
                                   "..x..xxxxxxx", "..xx..xxxxxx", "......xxxxxx", "......xxxxxx"};

std::vector<Programs::Key> shapes() {
  std::vector<Programs::Key> all;
  for (std::size_t source = 0; source < std::size(kBounds); ++source) {
    for (std::size_t target = 0; target < std::size(kBounds); ++target) {
      if (kShapes[source][target] == 'x') all.push_back({kBounds[source], kBounds[target]});
    }
  }
  EXPECT_EQ(all.size(), 106u);
  if (is_trial()) {
    for (std::size_t i = 0; 25 * i < all.size(); ++i) all[i] = all[25 * i];
    all.resize(5);
  }
  return all;
}
Programs::Key largest() { return is_trial() ? shapes().back() : Programs::Key{50, 50}; }

// The same graph as in cli/training.cpp.
std::unique_ptr<Graph> training_step(const Programs::Key& key) {
  const std::int64_t rows = is_trial() ? 2 : 128, words = is_trial() ? 20 : 8000;
  auto graph = std::make_unique<Graph>();
  const Value source = graph->input("source", i64, {key[0], rows}), lengths = graph->input("lengths", i64, {rows});
  const Value written = graph->input("written", i64, {key[1], rows}),
              labels = graph->input("labels", i64, {key[1], rows});
  const models::Seq2Seq model(
      *graph, {.source_vocabulary = words, .target_vocabulary = words, .hidden = is_trial() ? 8 : 512, .dropout = 0.2});
  const Value loss = model.loss(model.encode(source, lengths), written, labels);
  const TrainingStep step = minimize(loss, Adam{}, {.clip_norm = 5, .skip_nonfinite = true, .stop_at_nonfinite = true});
  graph->fetch("loss", loss);
  graph->fetch("norm", step.gradient_norm);
  return graph;
}

void feed(Program& program, const Programs::Key& key) {
  const std::int64_t rows = is_trial() ? 2 : 128;
  for (const auto& [name, steps] : {std::pair("source", key[0]), {"written", key[1]}, {"labels", key[1]}}) {
    Tensor words(i64, {steps, rows});
    for (std::int64_t i = 0; i < steps * rows; ++i)
      words.data<std::int64_t>()[i] = 3 + i * 37 % (is_trial() ? 17 : 7997);
    program.set_input(program.input_index(name), words);
  }
  Tensor lengths(i64, {rows});
  std::fill_n(lengths.data<std::int64_t>(), rows, key[0]);
  program.set_input(program.input_index("lengths"), lengths);
}

std::int64_t bytes_in_use() {
  std::size_t free_bytes = 0, all_bytes = 0;
  gpu::GpuDevice::get(0).make_current();
  PD_CUDA(gpu::required_driver().cuMemGetInfo(&free_bytes, &all_bytes));
  return static_cast<std::int64_t>(all_bytes - free_bytes);
}

// Other work on the GPU and the cores counts in memory and times, so these are compared with limits only where nothing
// else runs: PAODING_ALONE=1, as benchmarks/proof_session.sh sets it. Else a quarter of the shapes is bound.
bool is_alone() { return std::getenv("PAODING_ALONE") != nullptr; }

double mebibytes(std::int64_t bytes) { return static_cast<double>(bytes) / (1 << 20); }

double seconds_of(clockid_t clock) {
  timespec now{};
  clock_gettime(clock, &now);
  return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
}

struct Bound {
  std::vector<double> milliseconds, own_milliseconds;  // by the clock; of this thread
  int compiled = 0;
  std::int64_t most_bytes = 0;  // of the device, beyond the memory in use before

  void print(const char* what) const {
    auto sorted = milliseconds, own = own_milliseconds;
    std::sort(sorted.begin(), sorted.end()), std::sort(own.begin(), own.end());
    std::printf(
        "%s: %zu shapes bound in %.1f ms (median), %.1f at most; processor %.1f and %.1f; %d kernels compiled; %.0f "
        "MiB\n",
        what, sorted.size(), sorted[sorted.size() / 2], sorted.back(), own[own.size() / 2], own.back(), compiled,
        mebibytes(most_bytes));
  }
};

// Every shape bound and run once, and all of them run again, so that graphs that were dropped are made again.
Bound bind_all(const Parameters& parameters, const std::vector<Programs::Key>& keys, std::int64_t graph_bytes) {
  Bound bound;
  const std::int64_t before = bytes_in_use();
  CompileOptions options;
  options.device = Device::cuda(0);
  options.graph_bytes = graph_bytes;
  Programs programs(training_step, options, &parameters);
  for (int round = 0; round < 2; ++round) {
    for (const Programs::Key& key : keys) {
      const double start = seconds_of(CLOCK_MONOTONIC), own = seconds_of(CLOCK_THREAD_CPUTIME_ID);
      Program& program = programs.at(key);
      if (round == 0) {
        bound.milliseconds.push_back(1e3 * (seconds_of(CLOCK_MONOTONIC) - start));
        bound.own_milliseconds.push_back(1e3 * (seconds_of(CLOCK_THREAD_CPUTIME_ID) - own));
        bound.compiled += program.report().kernels_compiled;
      }
      feed(program, key);
      program.run();
      EXPECT_TRUE(std::isfinite(program.fetch(0).to_doubles()[0]));
      bound.most_bytes = std::max(bound.most_bytes, bytes_in_use() - before);
    }
  }
  return bound;
}

TEST(TranslationOnGpu, CompilesInSecondsAndInOneWhenItsKernelsAreThere) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const auto graph = training_step(largest());
  const Parameters parameters(*graph, Device::cuda(0));
  CompileOptions options;
  options.device = Device::cuda(0);
  options.allow_tf32 = !is_trial();
  const double start = seconds_of(CLOCK_MONOTONIC);
  const Program program(*graph, options, &parameters);
  const double seconds = seconds_of(CLOCK_MONOTONIC) - start;
  const unsigned cores = std::thread::hardware_concurrency();
  const CompileReport& report = program.report();
  std::printf("%s: compiled in %.2f s on %u cores, %d kernels made in %.2f s of all threads, %lld launches\n",
              report.kernels_compiled > 0 ? "cold" : "warm", seconds, cores, report.kernels_compiled,
              1e-3 * report.kernel_milliseconds, static_cast<long long>(report.launches));
  EXPECT_GT(report.launches, 0);
  if (is_alone() && cores >= 16) {
    EXPECT_LE(seconds, report.kernels_compiled > 0 ? 10 : 1);
  }
}

// The budget is smaller than all their graphs together, so that some are dropped.
TEST(TranslationOnGpu, BindsEveryShapeOfItsDataInTimeAndInTheLargestOnesMemory) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const std::int64_t budget = is_trial() ? std::int64_t{1} << 20 : std::int64_t{256} << 20;
  const Parameters parameters(*training_step(largest()), Device::cuda(0));
  const Bound one = bind_all(parameters, {largest()}, budget);
  one.print("the largest alone");
  const std::vector<Programs::Key> all = shapes();
  std::vector<Programs::Key> keys;
  for (std::size_t i = 0; i < all.size(); i += is_alone() ? 1 : 4) keys.push_back(all[i]);
  const Bound first = bind_all(parameters, keys, budget);
  first.print("the first time");
  const Bound again = bind_all(parameters, keys, budget);
  again.print("again, with all kernels there");
  EXPECT_EQ(again.compiled, 0);
  std::printf("1.5 times the largest's and %.0f MiB for graphs are %.0f MiB\n", mebibytes(budget),
              mebibytes(one.most_bytes * 3 / 2 + budget));
  if (!is_alone()) return;
  EXPECT_LE(first.most_bytes, one.most_bytes * 3 / 2 + budget);
  EXPECT_LE(again.most_bytes, one.most_bytes * 3 / 2 + budget);
  // The first is compiled, the others are bound to it. The time is this thread's, which other work hardly changes.
  EXPECT_LE(*std::max_element(again.own_milliseconds.begin() + 1, again.own_milliseconds.end()), 100);
}

}  // namespace
}  // namespace paoding
