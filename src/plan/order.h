// SPDX-License-Identifier: Apache-2.0
// The order in which a graph's nodes run: any in which a node follows its inputs gives the same numbers, but not the
// same memory.
#pragma once

#include <map>
#include <vector>

#include "paoding/graph.h"

namespace paoding {

enum class NodeOrder {
  as_built,  // by number
  forward,   // from the first step on: next what adds least to what is live
  backward,  // from the last step back: before it what leaves least live
};

/// All nodes of `graph` (not of its bodies) in this order. Deterministic; ties go by number.
std::vector<NodeId> node_order(const Graph& graph, NodeOrder order);

/// Whether two nodes do the same with values of the same types.
bool are_alike(const Graph& graph, NodeId a, NodeId b);

/// Moves what a kernel has claimed as a whole, such as a layer over time, to the next of its kind and shapes that does
/// not depend on it, as the two directions of a layer do not: neighbours may share a launch. Of those that have such
/// neighbours, how many they are together.
std::map<NodeId, std::int64_t> bring_together(const Graph& graph, std::vector<NodeId>* order);

}  // namespace paoding
