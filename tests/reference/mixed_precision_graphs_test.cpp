// SPDX-License-Identifier: Apache-2.0
// Random graphs in mixed precision agree with the float64 evaluator on the graph that the pass has made of them, within
// the roundings of its types: fused, unfused, and on a GPU where there is one.
#include "passes/pass.h"
#include "tests/support/error_model.h"
#include "tests/support/gpu_refusals.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

struct Narrowed {
  Graph graph;
  Feeds feeds;
  std::map<std::string, Expected> expected;

  explicit Narrowed(unsigned seed) {
    RandomGraph(graph, seed, nullptr, f32);
    PassNotes notes(std::make_shared<const Target>(), seed % 2 == 0 ? bf16 : f16);
    expand_composed_ops(graph, notes);
    mixed_precision(graph, notes);
    feeds = make_feeds(graph, seed);
    expected = expected_within(graph, feeds);
  }
};

void check(const Narrowed& narrowed, const CompileOptions& options) {
  try {
    Program program(narrowed.graph, options);
    const Tensors got = program.run(to_tensors(narrowed.graph, narrowed.feeds));
    for (const auto& [name, each] : narrowed.expected) {
      EXPECT_EQ(each.problem_with(got.at(name).to_doubles()), "") << name;
    }
  } catch (const Error& error) {
    if (options.device.kind == DeviceKind::cpu || !is_known_gpu_refusal(error)) throw;
  }
}

void check_mixed_graphs(const Device& device, unsigned count) {
  int narrow = 0;
  for (unsigned seed = 0; seed < count; ++seed) {
    const Narrowed narrowed(seed);
    SCOPED_TRACE("seed " + std::to_string(seed) + "\n" + to_text(narrowed.graph));
    narrow += to_text(narrowed.graph).find("store_as") != std::string::npos;
    CompileOptions options;
    options.device = device;
    check(narrowed, options);
    options.disabled_passes = pass_names();
    check(narrowed, options);
    if (testing::Test::HasFailure()) return;
  }
  EXPECT_GT(narrow * 10, static_cast<int>(count)) << "nothing was to be narrowed";
}

TEST(MixedPrecisionGraphs, GiveWhatTheEvaluatorSays) { check_mixed_graphs(Device::cpu(), 150); }

TEST(MixedPrecisionGraphs, GiveWhatTheEvaluatorSaysOnAGpu) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  check_mixed_graphs(Device::best(), 40);
}

}  // namespace
}  // namespace paoding::testing_program
