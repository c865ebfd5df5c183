// SPDX-License-Identifier: Apache-2.0
// Whether a pass has anything to look for in a graph.
#pragma once

#include "paoding/graph.h"
#include "paoding/op.h"

namespace paoding {

/// Whether `is` holds for some node of the graph, bodies left out.
template <class Is>
bool has_node(const Graph& graph, const Is& is) {
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (is(graph.node(id))) return true;
  }
  return false;
}

inline bool has_convolution(const Graph& graph) {
  return has_node(graph, [](const Node& node) { return node.op->convolution.has_value(); });
}

}  // namespace paoding
