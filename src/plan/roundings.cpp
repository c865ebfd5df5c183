// SPDX-License-Identifier: Apache-2.0
// Roundings of a group's outputs to 16 bits, which its store does as well. Those of its formulas are fused; its sums
// are not in the space that formulas are computed in.
#include <algorithm>

#include "plan/planner.h"

namespace paoding {

bool Planner::is_rounding(const Node& node) {
  if (node.op->conversion == Conversion::none) return false;
  return node.types[0].dtype == DType::bf16 || node.types[0].dtype == DType::f16;
}

void Planner::find_roundings(Frame& frame) const {
  if (!options_.alias_views) return;
  const Graph& graph = frame.graph;
  std::map<Ref, int> uses;  // of rounded values
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (!is_rounding(node)) continue;
    const Node& made = graph.node(node.inputs[0].node);
    const bool is_group = made.op->is_fusion_group() || made.op->kind == OpKind::reduction;
    if (!is_group || made.placement != node.placement) continue;
    if (graph.type(node.inputs[0]).dtype == DType::f32)
      frame.rounded[node.inputs[0]] = {id, 0}, uses[node.inputs[0]] = 0;
  }
  const auto count = [&](Ref ref) {
    if (const auto it = uses.find(ref); it != uses.end()) ++it->second;
  };
  for (NodeId id = 0; id < graph.size() && !uses.empty(); ++id) std::ranges::for_each(graph.node(id).inputs, count);
  for (const Graph::Fetch& fetch : graph.fetches()) count(fetch.ref);
  std::erase_if(frame.rounded, [&](const auto& each) { return uses.at(each.first) != 1; });
}

}  // namespace paoding
