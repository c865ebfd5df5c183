// SPDX-License-Identifier: Apache-2.0
#include "graph/replacements.h"

#include <gtest/gtest.h>

#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

TEST(Replacements, FollowChainsOfEveryOutputByItself) {
  Replacements replaced;
  EXPECT_TRUE(replaced.empty());
  replaced.add({3, 0}, {5, 1});
  replaced.add({3, 1}, {4, 0});
  replaced.add({5, 1}, {7, 0});
  replaced.add({7, 0}, {9, 2});
  replaced.add({8, 0}, {8, 0});              // itself: no replacement
  for (int asked = 0; asked < 2; ++asked) {  // a chain that has been walked is shorter, not another
    EXPECT_EQ(replaced.now({3, 0}), (Ref{9, 2}));
    EXPECT_EQ(replaced.now({5, 1}), (Ref{9, 2}));
    EXPECT_EQ(replaced.now({7, 0}), (Ref{9, 2}));
    EXPECT_EQ(replaced.now({3, 1}), (Ref{4, 0}));
    EXPECT_EQ(replaced.now({5, 0}), (Ref{5, 0}));
    EXPECT_EQ(replaced.now({8, 0}), (Ref{8, 0}));
    EXPECT_EQ(replaced.now({100, 0}), (Ref{100, 0}));
  }
  replaced.add({3, 1}, {2, 0});  // the later one counts
  EXPECT_EQ(replaced.now({3, 1}), (Ref{2, 0}));
}

// Facts that a graph keeps about itself must not hide a change from the next compact().
TEST(GraphCompact, SeesEveryChangeSinceTheLastTime) {
  Graph graph;
  const Value x = graph.input("x", f32, {4});
  const Value a = x + 1.0, b = a * 2.0;
  graph.fetch("y", b);
  graph.compact();
  const NodeId size = graph.size();
  (void)tanh(a);  // nobody reads it
  EXPECT_GT(graph.size(), size);
  graph.compact();
  EXPECT_EQ(graph.size(), size);
  graph.mutable_node(graph.fetches()[0].ref.node).inputs[0] = x.ref();
  graph.compact();
  EXPECT_LT(graph.size(), size);  // the sum is gone
  graph.mutable_fetches()[0].ref = {graph.inputs()[0], 0};
  graph.compact();
  EXPECT_EQ(graph.size(), 1);
}

// Nodes keep their order where they can, and inputs that a rewrite put behind their readers come in front.
TEST(GraphCompact, PutsNodesBehindTheirInputs) {
  Graph graph;
  const Value x = graph.input("x", f32, {4});
  const Value first = exp(x), second = tanh(first);
  graph.fetch("y", second);
  const Value late = sqrt(abs(x));
  graph.replace(first.ref(), late.ref());
  graph.compact();
  ASSERT_EQ(graph.size(), 4);
  std::vector<std::string> ops;
  for (NodeId id = 0; id < graph.size(); ++id) {
    ops.push_back(graph.node(id).op->name);
    for (const Ref& ref : graph.node(id).inputs) EXPECT_LT(ref.node, id);
  }
  EXPECT_EQ(ops, (std::vector<std::string>{"input", "abs", "sqrt", "tanh"}));
  EXPECT_EQ(graph.fetches()[0].ref, (Ref{3, 0}));
}

}  // namespace
}  // namespace paoding
