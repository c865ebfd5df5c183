// SPDX-License-Identifier: Apache-2.0
// Random merges against a search through the whole graph.
#include "passes/contracted_graph.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

#include "paoding/ops.h"

namespace paoding {
namespace {

std::set<int> units_read_by(const Graph& graph, const ContractedGraph& units, int unit) {
  std::set<int> sources;
  for (const NodeId member : units.members(unit)) {
    for (const Ref& ref : graph.node(member).inputs) {
      if (units.unit_of(ref.node) != unit) sources.insert(units.unit_of(ref.node));
    }
  }
  return sources;
}

// Whether `to` can be reached from `from` through at least one other unit.
bool goes_around(const Graph& graph, const ContractedGraph& units, int from, int to) {
  std::set<int> seen;
  std::vector<int> open;
  const auto look_at = [&](int unit) {
    for (const int source : units_read_by(graph, units, unit)) {
      if (source == from ? unit != to : false) return true;
      if (source != from && source != to && seen.insert(source).second) open.push_back(source);
    }
    return false;
  };
  if (look_at(to)) return true;
  while (!open.empty()) {
    const int unit = open.back();
    open.pop_back();
    if (look_at(unit)) return true;
  }
  return false;
}

TEST(ContractedGraph, MergesWhateverMakesNoCycle) {
  std::mt19937 random(3);
  for (int trial = 0; trial < 200; ++trial) {
    Graph g;
    Values made{g.input("x", f32, {2})};
    const int size = 2 + static_cast<int>(random() % 30);
    while (g.size() < size) {
      const Value a = made[random() % made.size()],
                  b = made[made.size() - 1 - random() % std::min<std::size_t>(4, made.size())];
      made.push_back(a + b);
    }
    ContractedGraph units(g);
    for (int i = 0; i < 60; ++i) {
      const int a = units.unit_of(static_cast<NodeId>(random() % static_cast<unsigned>(g.size())));
      const int b = units.unit_of(static_cast<NodeId>(random() % static_cast<unsigned>(g.size())));
      if (a == b) continue;
      const bool is_cycle = goes_around(g, units, a, b) || goes_around(g, units, b, a);
      const std::size_t members = units.members(a).size() + units.members(b).size();
      const auto answer = units.merge(a, b);
      ASSERT_EQ(answer, is_cycle ? ContractedGraph::Answer::cycle : ContractedGraph::Answer::merged)
          << "trial " << trial;
      if (is_cycle) continue;
      ASSERT_EQ(units.members(b).size(), members);
      ASSERT_TRUE(units.members(a).empty());
      ASSERT_TRUE(std::is_sorted(units.members(b).begin(), units.members(b).end()));
      for (const NodeId id : units.members(b)) ASSERT_EQ(units.unit_of(id), b);
    }
  }
}

TEST(ContractedGraph, GivesUpWhereTooMuchStandsBetween) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  const Value first = tanh(x);
  Value before = x;
  for (int i = 0; i < 5000; ++i) before = tanh(before), tanh(first);
  const Value last = tanh(before);
  ContractedGraph units(g);
  EXPECT_EQ(units.merge(first.ref().node, last.ref().node), ContractedGraph::Answer::too_far);
}

TEST(ContractedGraph, SeesAtOnceThatNothingStandsBefore) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  const Value first = tanh(x);
  Value behind = first;
  for (int i = 0; i < 5000; ++i) behind = tanh(behind);
  const Value last = first + x;
  ContractedGraph units(g);
  EXPECT_EQ(units.merge(last.ref().node, first.ref().node), ContractedGraph::Answer::merged);
  EXPECT_EQ(units.merge(behind.ref().node, first.ref().node), ContractedGraph::Answer::too_far) << "or a cycle";
}

}  // namespace
}  // namespace paoding
