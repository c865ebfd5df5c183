// SPDX-License-Identifier: Apache-2.0
// The memory a program needs: the order of its steps and the packing of the arena.
#include "paoding/autodiff.h"
#include "plan/order.h"
#include "tests/support/program_check.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kOrderedRows = 512, kColumns = 512, kMatrix = kOrderedRows * kColumns * 4;

// Products first, and the sums that make them small afterwards: in the order of building, all of them are live at once.
void build_wide(Graph& graph, int branches) {
  const Value x = graph.input("x", f32, {kOrderedRows, kColumns});
  Values large, small;
  for (int i = 0; i < branches; ++i) {
    large.push_back(matmul(x, graph.input("w" + std::to_string(i), f32, {kColumns, kColumns})));
  }
  for (const Value& value : large) small.push_back(sum(tanh(value)));
  graph.fetch("y", add_n(small));
}

TEST(MemoryOrder, RunsWhatFreesMemoryBeforeWhatTakesIt) {
  Graph graph;
  build_wide(graph, 8);
  const Program program(graph);
  // One product, the next, and a few scalars.
  EXPECT_LE(program.report().peak_live_bytes, 2 * kMatrix + 4096) << program.plan_text();
  const auto& notes = program.report().plan_notes;
  EXPECT_TRUE(
      std::any_of(notes.begin(), notes.end(), [](const auto& note) { return note.starts_with("order_steps"); }));
}

TEST(MemoryOrder, ChangesNoResult) {
  Graph graph;
  build_wide(graph, 4);
  const Feeds feeds = make_feeds(graph, 1);
  Program program(graph);
  const Tensors got = program.run(to_tensors(graph, feeds));
  CompileOptions options;
  options.disabled_passes = pass_names();
  Program plain(graph, options);
  expect_close("y", got.at("y").to_doubles(), plain.run(to_tensors(graph, feeds)).at("y").to_doubles(), 1e-4);
}

TEST(MemoryOrder, KeepsEveryNodeAfterItsInputs) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    Graph graph;
    const RandomGraph made(graph, seed);
    for (const NodeOrder order : {NodeOrder::as_built, NodeOrder::forward, NodeOrder::backward}) {
      std::vector<char> seen(static_cast<std::size_t>(graph.size()), 0);
      const std::vector<NodeId> ids = node_order(graph, order);
      ASSERT_EQ(ids.size(), seen.size());
      for (NodeId id : ids) {
        for (const Ref& ref : graph.node(id).inputs) EXPECT_TRUE(seen[static_cast<std::size_t>(ref.node)]);
        EXPECT_FALSE(seen[static_cast<std::size_t>(id)]++);
      }
    }
  }
}

TEST(MemoryOrder, PacksTheArenaToTenPercentOfThePeak) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    Graph graph;
    const RandomGraph made(graph, seed);
    const Program program(graph);
    // A slot takes at least 256 bytes, so a plan of a few is as tight as it gets.
    EXPECT_LE(program.report().arena_bytes, program.report().peak_live_bytes * 11 / 10 + 1024) << "seed " << seed;
  }
  Graph lstm;
  build_lstm(lstm, {.steps = 20, .batch = 8, .inputs = 64, .hidden = 64});
  const Program program(lstm);
  EXPECT_LE(program.report().arena_bytes, program.report().peak_live_bytes * 11 / 10);
}

}  // namespace
}  // namespace paoding::testing_program
