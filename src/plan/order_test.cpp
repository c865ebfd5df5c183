// SPDX-License-Identifier: Apache-2.0
#include "plan/order.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// Recurrences of as many rows each, of inputs of their own, whose results are used at once.
struct Recurrences {
  Graph graph;
  std::vector<NodeId> layers, uses;
  std::vector<NodeId> order;

  NodeId add(std::int64_t rows, const Value& h0 = {}) {
    const Value xw = expand(full(graph, {}, 0.5), Shape{4, rows, 8}), u = graph.input(name("u"), f32, {8, 8});
    const Value start = h0.valid() ? h0 : graph.input(name("h"), f32, {rows, 8});
    const RnnRecurrence made = rnn_recurrence(tanh(xw), u, start);
    layers.push_back(made.states.ref().node);
    uses.push_back(square(made.states).ref().node);
    last_h = made.last_h;
    return layers.back();
  }
  void bring() {
    order = node_order(graph, NodeOrder::as_built);
    together = bring_together(graph, &order);
  }
  std::ptrdiff_t place(NodeId id) const { return std::ranges::find(order, id) - order.begin(); }
  void expect_inputs_first() const {
    for (const NodeId id : order) {
      for (const Ref& ref : graph.node(id).inputs) EXPECT_LT(place(ref.node), place(id));
    }
    EXPECT_EQ(order.size(), static_cast<std::size_t>(graph.size()));
  }
  std::string name(const char* what) const { return what + std::to_string(layers.size()); }

  Value last_h;
  std::map<NodeId, std::int64_t> together;
};

TEST(NodeOrder, BringsLayersTogetherThatDoNotDependOnEachOther) {
  Recurrences all;
  for (int i = 0; i < 3; ++i) all.add(2);
  all.bring();
  all.expect_inputs_first();
  EXPECT_EQ(all.place(all.layers[1]), all.place(all.layers[0]) + 1);
  EXPECT_EQ(all.place(all.layers[2]), all.place(all.layers[0]) + 2);
  for (const NodeId use : all.uses) EXPECT_GT(all.place(use), all.place(all.layers[2]));
  for (const NodeId layer : all.layers) EXPECT_EQ(all.together.at(layer), 3);
}

TEST(NodeOrder, LeavesLayersApartThatDependOnEachOtherOrAreUnlike) {
  Recurrences all;
  all.add(2);
  const Value first_h = all.last_h;
  all.add(3);           // of other shapes
  all.add(2, first_h);  // begins where the first ended
  all.add(2);           // goes with the first
  all.bring();
  all.expect_inputs_first();
  EXPECT_EQ(all.place(all.layers[3]), all.place(all.layers[0]) + 1);
  EXPECT_GT(all.place(all.layers[2]), all.place(all.layers[0]));
}

// A collective comes right after the nodes that it needs, and those in front of the others.
TEST(NodeOrder, HasCollectivesEarly) {
  Graph g;
  const Value x = g.input("x", f32, {4}), other = exp(x), first = tanh(x), second = sin(first);
  const Value late = all_reduce(second * other), early = all_reduce(first);
  for (const auto& [name, value] : {std::pair("late", late), std::pair("early", early)}) g.fetch(name, value);
  const std::vector<NodeId> order = collectives_early(g, node_order(g, NodeOrder::as_built));
  const auto place = [&](const Value& value) { return std::ranges::find(order, value.ref().node) - order.begin(); };
  EXPECT_EQ(static_cast<NodeId>(order.size()), g.size());
  EXPECT_EQ(place(early), place(first) + 1);
  EXPECT_LT(place(early), place(other));
  EXPECT_LT(place(other), place(late));
  EXPECT_EQ(place(late), g.size() - 1);
}

}  // namespace
}  // namespace paoding
