// SPDX-License-Identifier: Apache-2.0
#include "passes/readers.h"

#include <gtest/gtest.h>

#include <map>

#include "paoding/ops.h"

namespace paoding {
namespace {

TEST(Readers, AreThoseThatAWalkOverTheGraphFinds) {
  Graph graph;
  const Value x = graph.input("x", f32, {2, 8}), unread = graph.input("unread", f32, {2, 8});
  const auto best = topk(x, 3);
  const Value y = best.values * best.values + cast(best.indices, f32);
  graph.fetch("y", y + tanh(y));
  const Readers readers(graph);
  std::map<Ref, std::vector<NodeId>> expected;
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (const Ref& ref : graph.node(id).inputs) expected[ref].push_back(id);
  }
  bool has_two_outputs = false;
  for (NodeId id = 0; id < graph.size(); ++id) {
    std::vector<NodeId> of_node;
    const auto outputs = static_cast<std::int32_t>(graph.node(id).types.size());
    has_two_outputs |= outputs == 2;
    for (std::int32_t k = 0; k < outputs; ++k) {
      const auto found = readers.of(Ref{id, k});
      EXPECT_EQ(std::vector<NodeId>(found.begin(), found.end()), (expected[{id, k}]));
      of_node.insert(of_node.end(), found.begin(), found.end());
    }
    const auto found = readers.of(id);
    EXPECT_EQ(std::vector<NodeId>(found.begin(), found.end()), of_node);
  }
  EXPECT_TRUE(has_two_outputs);
  EXPECT_TRUE(readers.of(unread.ref()).empty());
  const Value newer = tanh(y);
  EXPECT_TRUE(readers.of(newer.ref()).empty());
}

}  // namespace
}  // namespace paoding
