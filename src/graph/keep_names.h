// SPDX-License-Identifier: Apache-2.0
// Restores a graph's scope, origin and placement when it ends, also when code that names nodes in between throws. Given
// a node, new nodes are named and placed as it is until then.
#pragma once

#include "paoding/graph.h"

namespace paoding {

class KeepNames {
 public:
  explicit KeepNames(Graph& graph)
      : graph_(graph), scope_(graph.scope), origin_(graph.origin), placement_(graph.placement) {}
  KeepNames(Graph& graph, const Node& like) : KeepNames(graph) {
    graph.scope = like.scope;
    graph.origin = like.origin;
    graph.placement = like.placement;
  }
  ~KeepNames() {
    graph_.scope = scope_;
    graph_.origin = origin_;
    graph_.placement = placement_;
  }
  KeepNames(const KeepNames&) = delete;
  KeepNames& operator=(const KeepNames&) = delete;

 private:
  Graph& graph_;
  Name scope_, origin_;
  Placement placement_;
};

}  // namespace paoding
