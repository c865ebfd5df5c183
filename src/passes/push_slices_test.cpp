// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

struct PushSlices : testing::Test {
  Graph g;
  Value x = g.input("x", f32, {2, 8}), y = g.input("y", f32, {2, 8}), b = g.input("b", f32, {8});
};

TEST_F(PushSlices, MovesSlicesThroughAChain) {
  const Value gates = tanh(x + y) * b;
  g.fetch("i", exp(slice(gates, 1, 0, 4)));
  g.fetch("f", slice(gates, 1, 4, 8));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(count_here(g, "tanh"), 2);
  EXPECT_EQ(count_here(g, "mul"), 2);
  EXPECT_EQ(count_here(g, "slice"), 6);
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& node = g.node(id);
    if (node.op->name == "slice") {
      EXPECT_EQ(g.node(node.inputs[0].node).op->name, "input");
    }
  }
}

TEST_F(PushSlices, SlicesBroadcastInputsOnlyWhereTheyAreFull) {
  const Value column = g.input("column", f32, {2, 1}), scalar = g.input("scalar", f32, {});
  g.fetch("z", slice(select(less(x, column), b, scalar), Ints{1, 2}, Ints{2, 6}));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(fetched(g).op->name, "select");
  EXPECT_EQ(g.type(fetched(g).inputs[1]).shape, Shape({4}));
  EXPECT_EQ(fetched(g).inputs[2], scalar.ref());
}

TEST_F(PushSlices, StaysWhereTheWholeIsReadToo) {
  const Value gates = x + y;
  g.fetch("i", slice(gates, 1, 0, 4));
  g.fetch("all", exp(gates));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(fetched(g).op->name, "slice");
}

TEST_F(PushSlices, StaysAfterAFetchedValue) {
  const Value gates = x + y;
  g.fetch("all", gates);
  g.fetch("i", slice(gates, 1, 0, 4));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(fetched(g, 1).op->name, "slice");
}

TEST_F(PushSlices, StaysAfterOpsThatAreNoFormula) {
  g.fetch("i", slice(matmul(x, g.input("w", f32, {8, 8})), 1, 0, 4));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(fetched(g).op->name, "slice");
}

TEST_F(PushSlices, DeclinesWhereOverlapsWouldComputeMore) {
  const Value sum = x + y;
  for (int k = 0; k < 3; ++k) g.fetch("f" + std::to_string(k), slice(sum, 1, k, k + 4));
  const auto notes = run_and_compare(g, {push_slices});
  EXPECT_EQ(count_here(g, "add"), 1);
  ASSERT_EQ(notes.size(), 1u);
  EXPECT_NE(notes[0].find("24 elements would be computed instead of 16"), std::string::npos) << notes[0];
}

TEST_F(PushSlices, MakesOneOfEqualSlices) {
  const Value sum = x + y;
  for (int k = 0; k < 6; ++k) g.fetch("f" + std::to_string(k), slice(sum, 1, 0, 4));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(count_here(g, "add"), 1);
  EXPECT_EQ(count_here(g, "slice"), 2);
}

TEST_F(PushSlices, StopsAtAnInputThatStaysWhole) {
  // The sum over the row axis reads all rows of tanh(b), which broadcasts over them.
  const Value row = tanh(b);
  g.fetch("top", slice(x * row, 0, 0, 1));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(fetched(g).op->name, "mul");
  EXPECT_EQ(count_here(g, "slice"), 1);
  EXPECT_EQ(only(g, "tanh").types[0].shape, Shape({8}));
}

TEST_F(PushSlices, PushesSlicesOfSlices) {
  g.fetch("z", slice(slice(x + y, 1, 2, 8), 1, 0, 2));
  run_and_compare(g, {push_slices});
  EXPECT_EQ(fetched(g).op->name, "add");
}

TEST_F(PushSlices, KeepsAttributesAndScope) {
  {
    const Scope scope(g, "decoder");
    g.fetch("z", slice(cast(x, f64), 1, 0, 3));
  }
  run_and_compare(g, {push_slices});
  EXPECT_EQ(fetched(g).op->name, "cast");
  EXPECT_EQ(fetched(g).attrs.get_dtype("dtype"), f64);
  EXPECT_EQ(fetched(g).scope.str(), "decoder");
}

TEST_F(PushSlices, GivesTheGatesOfACellOneIterationSpace) {
  const Value h = g.input("h", f32, {2, 2}), c = g.input("c", f32, {2, 2}), w = g.input("w", f32, {8, 8}),
              u = g.input("u", f32, {2, 8});
  const auto [new_h, new_c] = lstm_cell(x, h, c, w, u, b);
  g.fetch("h2", new_h);
  g.fetch("c2", new_c);
  run_and_compare(g, {push_slices});
  for (NodeId id = 0; id < g.size(); ++id) {
    const Node& node = g.node(id);
    if (node.op->kind == OpKind::formula) {
      EXPECT_EQ(node.types[0].shape, Shape({2, 2})) << node.op->name;
    }
  }
}

}  // namespace
}  // namespace paoding
