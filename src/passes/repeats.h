// SPDX-License-Identifier: Apache-2.0
// Stretches of a graph in which the same nodes come again and again, as an unrolled loop leaves them.
#pragma once

#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// Which nodes do the same with other values: they have equal ops, attributes, types and bodies. Slices are of one kind
/// wherever they begin.
class NodeKinds {
 public:
  explicit NodeKinds(const Graph& graph);
  /// -1 where the node is no part of a turn: inputs, constants, views of those, barriers, and nodes with an
  /// effect.
  int of(NodeId id) const { return kinds_[static_cast<std::size_t>(id)]; }

 private:
  std::vector<int> kinds_;
};

/// nodes[i] and nodes[i + period] are of one kind for every i; there are four periods at least.
struct Repeat {
  std::vector<NodeId> nodes;
  int period;
};

inline constexpr int kFewestTurns = 4;

/// Short periods first. Repeats may overlap, and need not be loops: nothing is asked about the nodes' operands. The
/// time is linear in the graph's size: a bounded number of periods is tried, those that most nodes come again after.
std::vector<Repeat> find_repeats(const Graph& graph, const NodeKinds& kinds);

}  // namespace paoding
