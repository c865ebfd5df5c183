// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "ops/scan/scan.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

// One loop stacks sin(x + position), another reads that.
std::unique_ptr<Graph> two_loops(bool is_small) {
  auto graph = std::make_unique<Graph>();
  Graph& g = *graph;
  const Value xs = is_small ? g.input("xs", f32, {5, 1, 1}) : g.input("xs", f32, {5, 2, 3});
  const StepResult first = scan({g.input("h0", f32, {2, 3})}, {xs}, [&](const Values& state, const Values& x) {
    const Value place = cast(iota(state[0].graph(), Shape{2, 3}, 1, i64), f32);
    return step({state[0] + x[0]}, {sin(x[0] + place)});
  });
  const StepResult second = scan(
      {g.input("k0", f32, {2, 3})}, {first.outputs[0]},
      [&](const Values& state, const Values& x) { return step({state[0] * x[0]}, {}); }, true);
  g.fetch("h", first.carries[0]);
  g.fetch("k", second.carries[0]);
  return graph;
}

TEST(RematerializeSaved, MakesAgainWhatFollowsFromLittle) {
  const auto graph = two_loops(true);
  const auto notes = run_and_compare(*graph, {rematerialize_saved, drop_unused});
  EXPECT_EQ(notes.size(), 1u);
  for (NodeId id = 0; id < graph->size(); ++id) {
    if (graph->node(id).op->name == "scan") {
      EXPECT_EQ(ScanView(graph->node(id)).outputs, 0);
    }
  }
}

TEST(RematerializeSaved, LeavesAloneWhatWouldReadAsMuch) {
  const auto graph = two_loops(false);
  EXPECT_TRUE(run_and_compare(*graph, {rematerialize_saved, drop_unused}).empty());
}

TEST(RematerializeSaved, LeavesAloneWhatTheLoopCarries) {
  Graph g;
  const StepResult first =
      scan({g.input("h0", f32, {1, 1})}, {g.input("xs", f32, {5, 1, 1})}, [&](const Values& state, const Values& x) {
        return step({state[0] + x[0]}, {expand(state[0], Shape{2, 3})});
      });
  const StepResult second = scan({g.input("k0", f32, {2, 3})}, {first.outputs[0]},
                                 [&](const Values& state, const Values& x) { return step({state[0] * x[0]}, {}); });
  g.fetch("k", second.carries[0]);
  EXPECT_TRUE(run_and_compare(g, {rematerialize_saved, drop_unused}).empty());
}

}  // namespace
}  // namespace paoding
