// SPDX-License-Identifier: Apache-2.0
// Recordings of captured runs, with a CUPTI that tells which nodes executable graphs have, and with one that does not.
#include <fmt/ranges.h>

#include "gpu/cupti_library.h"
#include "paoding/profile.h"
#include "profile/trace.h"
#include "tests/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

// Steps of several kinds, in a loop and outside of it.
void build(Graph& g) {
  const Value a = g.input("a", f32, {5, 3}), ids = g.input("ids", i64, {4, 2});
  const StepResult made = scan({full(g, {2, 3}, 0)}, {ids}, [&](const Values& c, const Values& e) {
    const Scope scope(a.graph(), "lookup");
    return step({tanh(c[0]) + gather(a, e[0], 0)}, {});
  });
  assign(g.parameter("w", f32, {2, 3}), made.carries[0] * 2.0);
  g.fetch("sorted", sort(sum(made.carries[0], Ints{0})).values);
}

// "op@turn run", of every kernel on the GPU's track in the order of their times.
std::vector<std::string> kernels(const profile::Trace& trace) {
  std::vector<std::pair<std::int64_t, std::string>> all;
  for (profile::SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != profile::SpanKind::kernel || !trace.on_gpu(i)) continue;
    all.emplace_back(trace.start(i), fmt::format("{} {}", trace.text(trace.site(i).instance), trace.run(i)));
  }
  std::ranges::stable_sort(all, {}, &std::pair<std::int64_t, std::string>::first);
  std::vector<std::string> names;
  for (const auto& [start, name] : all) names.push_back(name);
  return names;
}

struct Recorded {
  std::vector<std::string> kernels;
  std::string report;
};

class ProfileOnAGpu : public ::testing::Test {
 protected:
  void SetUp() override {
    if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
    build(graph_);
    parameters_.emplace(graph_, Device::cuda(0));
    program_.emplace(graph_, on_gpu(), &*parameters_);
    const auto feeds = to_tensors(graph_, {{"a", Dense(15, 0.5)}, {"ids", {0, 1, 2, 3, 4, 0, 1, 2}}});
    program_->run(feeds);
    pretend_gpu().schedule(1, 0);
  }
  void TearDown() override { pretend_gpu().profile(true, true); }

  Recorded record(bool tells_nodes, bool keeps_order, int runs = 3) {
    pretend_gpu().profile(tells_nodes, keeps_order);
    Profiler seen;
    for (int i = 0; i < runs; ++i) program_->run();
    program_->wait();
    Recorded made;
    made.report = seen.stop();
    made.kernels = kernels(seen.trace());
    return made;
  }

  Graph graph_;
  std::optional<Parameters> parameters_;
  std::optional<Program> program_;
};

// The same with what each run's kernels are in the other order.
std::vector<std::string> turned(std::vector<std::string> all, std::size_t runs) {
  const std::size_t each = all.size() / runs;
  for (std::size_t run = 0; run < runs; ++run) {
    const auto begin = all.begin() + static_cast<std::ptrdiff_t>(run * each);
    std::reverse(begin, begin + static_cast<std::ptrdiff_t>(each));
  }
  return all;
}

// With runs numbered from 1.
std::vector<std::string> numbered(const std::vector<std::string>& all, std::size_t runs) {
  std::vector<std::string> made;
  for (std::size_t i = 0; i < all.size(); ++i) {
    made.push_back(fmt::format("{} {}", all[i].substr(0, all[i].rfind(' ')), i / (all.size() / runs) + 1));
  }
  return made;
}

TEST_F(ProfileOnAGpu, FindsEveryKernelByItsNodeWhateverItsTime) {
  const Recorded in_order = record(true, true), turned_times = record(true, false);
  EXPECT_EQ(in_order.report.find("told by their order"), std::string::npos) << in_order.report;
  ASSERT_GE(in_order.kernels.size(), 3u * 9);
  EXPECT_EQ(in_order.kernels.size() % 3, 0u);
  EXPECT_EQ(numbered(turned_times.kernels, 3), numbered(turned(in_order.kernels, 3), 3));
  EXPECT_TRUE(has(in_order.report, "commit gate")) << in_order.report;
  for (const char* part : {"left out", "could not be told", "did not show"}) {
    EXPECT_FALSE(has(turned_times.report, part)) << turned_times.report;
  }
}

TEST_F(ProfileOnAGpu, GoesByTheOrderWhereNodesAreNotTold) {
  const Recorded by_nodes = record(true, true), by_order = record(false, true);
  EXPECT_TRUE(has(by_order.report, "somebody else has subscribed); kernels were told by their order"))
      << by_order.report;
  EXPECT_EQ(numbered(by_order.kernels, 3), numbered(by_nodes.kernels, 3));
}

// What is enqueued when the recording begins runs in it.
TEST_F(ProfileOnAGpu, LeavesOutRunsFromBeforeTheRecording) {
  const Recorded alone = record(true, true, 2);
  program_->run();
  const Recorded behind_another = record(true, true, 2);
  EXPECT_TRUE(has(behind_another.report, "graph launches from before the recording, left out"))
      << behind_another.report;
  EXPECT_EQ(numbered(behind_another.kernels, 2), numbered(alone.kernels, 2));
}

TEST_F(ProfileOnAGpu, KeepsProgramsApart) {
  Graph other_graph;
  build(other_graph);
  Program other(other_graph, on_gpu(), &*parameters_);
  const auto feeds = to_tensors(other_graph, {{"a", Dense(15, 0.5)}, {"ids", {0, 1, 2, 3, 4, 0, 1, 2}}});
  other.run(feeds);
  pretend_gpu().profile(true, false);
  Profiler seen;
  program_->run(), other.run(), other.run(), program_->run();
  program_->wait(), other.wait();
  const std::string report = seen.stop();
  std::map<std::string, int> of_run;
  for (const std::string& name : kernels(seen.trace())) ++of_run[name.substr(name.rfind(' '))];
  ASSERT_EQ(of_run.size(), 4u) << report;
  for (const auto& [run, count] : of_run) EXPECT_EQ(count, of_run.begin()->second) << run;
}

}  // namespace
}  // namespace paoding::testing_program
