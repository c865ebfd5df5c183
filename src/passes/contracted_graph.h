// SPDX-License-Identifier: Apache-2.0
// ContractedGraph: the nodes of a graph gathered into units that will become one node each, without ever making a
// cycle. Units keep a topological order (D. J. Pearce, P. H. J. Kelly: A Dynamic Topological Sort Algorithm for
// Directed Acyclic Graphs, 2006), so that whether two may be merged is found by looking only at the units between them.
#pragma once

#include <vector>

#include "paoding/graph.h"

namespace paoding {

class ContractedGraph {
 public:
  /// Every node is a unit of its own, named by its id.
  explicit ContractedGraph(const Graph& graph);

  int unit_of(NodeId id) const { return unit_of_[static_cast<std::size_t>(id)]; }
  /// In graph order; empty for a unit that was merged into another.
  const std::vector<NodeId>& members(int unit) const { return members_[static_cast<std::size_t>(unit)]; }
  /// Nodes that read the node, each once.
  const std::vector<NodeId>& users(NodeId id) const { return users_[static_cast<std::size_t>(id)]; }

  enum class Answer { merged, cycle, too_far };
  /// Puts the nodes of `from` into `into`, unless a third unit stands on a path between them. Gives up when more than
  /// kMostVisited units have to be looked at: that keeps the whole near linear in the size of the graph.
  Answer merge(int from, int into);

  static constexpr std::size_t kMostVisited = 1024;
  static constexpr std::size_t kMostSteps = 16 * kMostVisited;  // from unit to unit

 private:
  bool is_visited(int unit) const { return visited_[static_cast<std::size_t>(unit)] == round_; }
  enum class Found { cycle, none, too_far };
  Found look_before(int first, int last, std::vector<int>* before);
  Answer find_behind(int first, int last, std::vector<int>* behind);
  bool find_before(int first, int last, std::vector<int>* before);
  void reorder(int first, int last, int into, std::vector<int> before, std::vector<int> behind);

  const Graph& graph_;
  std::vector<int> unit_of_;                  // per node
  std::vector<std::vector<NodeId>> members_;  // per unit
  std::vector<std::vector<NodeId>> users_;    // per node
  std::vector<int> place_;                    // per unit: its place in the topological order
  std::vector<int> visited_;                  // per unit: the round that visited it last
  int round_ = 0;
};

}  // namespace paoding
