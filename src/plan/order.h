// SPDX-License-Identifier: Apache-2.0
// The order in which a graph's nodes run: any in which a node follows its inputs gives the same results, but not the
// same memory.
#pragma once

#include <map>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

enum class NodeOrder {
  as_built,  // by number
  forward,   // from the first step on: next the node that adds least to the live bytes
  backward,  // from the last step back: before it the node that leaves the fewest live bytes
};

/// All nodes of `graph` (not of its bodies) in this order. Deterministic; ties go by number.
std::vector<NodeId> node_order(const Graph& graph, NodeOrder order);

/// Whether two nodes do the same with values of the same types.
bool are_alike(const Graph& graph, NodeId a, NodeId b);

/// Moves composed ops that a kernel runs as a whole, whichever they are, to the next of the same kind and shapes that
/// does not depend on them, as the two directions of a recurrent layer do not: neighbours may share a launch. Returns,
/// for nodes that have such neighbours, how many they are together.
std::map<NodeId, std::int64_t> bring_together(const Graph& graph, std::vector<NodeId>* order);

/// The order with collectives early: see collectives.cpp. Nodes of a graph come after their inputs.
std::vector<NodeId> collectives_early(const Graph& graph, std::vector<NodeId> order);

}  // namespace paoding
