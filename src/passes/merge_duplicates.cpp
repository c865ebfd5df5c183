// SPDX-License-Identifier: Apache-2.0
// Equal nodes become one; the first stays, with its scope and origin.
//
//   before:  %2 = tanh(%0)          after:  %2 = tanh(%0)
//            %3 = tanh(%0)                  %4 = mul(%2, %2)
//            %4 = mul(%2, %3)
//
// Inputs and parameters are never equal, nor are nodes with bodies (comparing bodies costs more than such twins would).
#include <bit>
#include <utility>
#include <vector>

#include "graph/equal_attrs.h"
#include "paoding/op.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

std::size_t hash_of(const Node& node) {
  std::size_t hash = std::hash<const void*>()(node.op);
  for (const Ref& ref : node.inputs) {
    mix(&hash, static_cast<std::size_t>(ref.node));
    mix(&hash, static_cast<std::size_t>(ref.output));
  }
  mix(&hash, hash_of(node.attrs));
  return hash;
}

bool equal_nodes(const Node& a, const Node& b) {
  return a.op == b.op && a.inputs == b.inputs && a.types == b.types && equal_attrs(a.attrs, b.attrs);
}

void merge_in(Graph& graph) {
  Rewriter rewriter(graph);
  // Open addressing, at most half full; -1: free.
  std::vector<std::pair<std::size_t, NodeId>> seen(std::bit_ceil(2 * static_cast<std::size_t>(rewriter.first_new) + 2),
                                                   {0, -1});
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (!node.bodies.empty() || node.op->has_effect || node.op->is(OpRole::source)) continue;
    const std::size_t hash = hash_of(node);
    const auto is_twin = [&](const std::pair<std::size_t, NodeId>& other) {
      return other.first == hash && equal_nodes(node, graph.node(other.second));
    };
    std::size_t at = hash & (seen.size() - 1);
    while (seen[at].second >= 0 && !is_twin(seen[at])) at = (at + 1) & (seen.size() - 1);
    const NodeId twin = seen[at].second;
    if (twin < 0) {
      seen[at] = {hash, id};
      continue;
    }
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
      rewriter.replace({id, k}, {twin, k});
    }
  }
  rewriter.finish();
}

}  // namespace

void merge_duplicates(Graph& graph, PassNotes&) { for_each_graph(graph, merge_in); }

}  // namespace paoding
