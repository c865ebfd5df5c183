// SPDX-License-Identifier: Apache-2.0
// Shared by passes that replace values by values: nodes are visited in order, each sees its inputs as already
// rewritten, and replacements are appended; finish() puts the uses and the order right.
#pragma once

#include <optional>
#include <utility>
#include <vector>

#include "base/cancel_poll.h"
#include "graph/keep_names.h"
#include "graph/replacements.h"
#include "paoding/graph.h"
#include "passes/count_uses.h"

namespace paoding {

class Rewriter {
 public:
  explicit Rewriter(Graph& graph)
      : graph(graph), first_new(graph.size()), names_(std::in_place, graph), uses_(count_uses(graph)) {}
  Rewriter(const Rewriter&) = delete;
  Rewriter& operator=(const Rewriter&) = delete;

  /// Brings the inputs of `id` up to date and makes new nodes take its scope and origin.
  const Node& enter(NodeId id) {
    poll_();
    if (!replaced_.empty()) {
      for (Ref& ref : graph.mutable_node(id).inputs) ref = now(ref);
    }
    const Node& node = graph.node(id);
    graph.scope = node.scope;
    graph.origin = node.origin;
    graph.placement = node.placement;
    return node;
  }
  void replace(Ref from, Ref to) { replaced_.add(from, to); }
  /// The current replacement of `ref`.
  Ref now(Ref ref) { return replaced_.now(ref); }
  /// Uses of a node by nodes and fetches before the pass; new nodes count as used once.
  int uses(NodeId id) const { return id < first_new ? uses_[static_cast<std::size_t>(id)] : 1; }

  /// Applies the replacements and compacts.
  void finish() {
    names_.reset();
    graph.replace(replaced_);
    graph.compact();
  }

  Graph& graph;
  const NodeId first_new;

 private:
  const CancelPoll poll_;
  std::optional<KeepNames> names_;  // until finish()
  std::vector<int> uses_;
  Replacements replaced_;
};

}  // namespace paoding
