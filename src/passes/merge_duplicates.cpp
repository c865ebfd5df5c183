// SPDX-License-Identifier: Apache-2.0
// Equal nodes become one; the first stays, with its scope and origin.
//
//   before:  %2 = tanh(%0)          after:  %2 = tanh(%0)
//            %3 = tanh(%0)                  %4 = mul(%2, %2)
//            %4 = mul(%2, %3)
//
// Inputs and parameters are never equal, nor are nodes with bodies (comparing bodies costs more than such twins would).
#include <unordered_map>

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
  std::unordered_multimap<std::size_t, NodeId> seen;
  for (NodeId id = 0; id < rewriter.first_new; ++id) {
    const Node& node = rewriter.enter(id);
    if (!node.bodies.empty() || node.op->has_effect || node.op->is(OpRole::source)) continue;
    const std::size_t hash = hash_of(node);
    NodeId twin = -1;
    for (auto [it, end] = seen.equal_range(hash); it != end && twin < 0; ++it) {
      if (equal_nodes(node, graph.node(it->second))) twin = it->second;
    }
    if (twin < 0) {
      seen.emplace(hash, id);
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
