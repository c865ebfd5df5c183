// SPDX-License-Identifier: Apache-2.0
// How often values are read, by the nodes that make them.
#pragma once

#include <vector>

#include "paoding/graph.h"

namespace paoding {

/// For each node, how often nodes and fetches of the graph use its outputs. Bodies have nodes of their own.
inline std::vector<int> count_uses(const Graph& graph) {
  std::vector<int> counts(static_cast<std::size_t>(graph.size()), 0);
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (const Ref& ref : graph.node(id).inputs) ++counts[static_cast<std::size_t>(ref.node)];
  }
  for (const Graph::Fetch& fetch : graph.fetches()) ++counts[static_cast<std::size_t>(fetch.ref.node)];
  return counts;
}

}  // namespace paoding
