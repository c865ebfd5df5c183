// SPDX-License-Identifier: Apache-2.0
#include "plan/layer_pipelines.h"

#include <algorithm>
#include <set>

#include "ops/recurrence/cell.h"
#include "passes/count_uses.h"
#include "plan/order.h"

namespace paoding {
namespace {

// A recurrence over time that a kernel runs as a whole: no other op has a kernel that works step by step.
bool is_layer(const Node& node) { return cell_over_time(*node.op) != nullptr; }

bool is_plain_product(const Node& node) {
  if (!node.op->contracts || node.op->is_wide()) return false;
  return !node.attrs.get_bool("transpose_a") && !node.attrs.get_bool("transpose_b");
}

// Compares the inputs that are no floats, which are the lengths of their rows.
bool have_same_lengths(const Graph& graph, NodeId a, NodeId b) {
  return std::ranges::equal(graph.node(a).inputs, graph.node(b).inputs,
                            [&](Ref x, Ref y) { return is_float(graph.type(x).dtype) || x == y; });
}

// The layer below, and all that is between: the nodes on the way, the upper one first.
struct Below {
  NodeId layer = -1;  // there is none
  std::vector<NodeId> between;
  NodeId product = -1;
};

Below below(const Graph& graph, NodeId layer, const std::vector<int>& uses) {
  Below found;
  const auto is_used_once = [&](Ref ref) { return uses[static_cast<std::size_t>(ref.node)] == 1; };
  const auto go_through_views = [&](Ref ref, bool only_used_once) {
    for (;; ref = graph.node(ref.node).inputs[0]) {
      const Node& node = graph.node(ref.node);
      if (node.op->kind != OpKind::view || node.inputs.size() != 1 || (only_used_once && !is_used_once(ref)))
        return ref;
      found.between.push_back(ref.node);
    }
  };
  const Ref product = go_through_views(graph.node(layer).inputs[0], true);
  if (!is_plain_product(graph.node(product.node)) || !is_used_once(product)) return found;
  found.between.push_back(product.node), found.product = product.node;
  const Ref states = go_through_views(graph.node(product.node).inputs[0], false);
  const bool are_states =
      states.output == 0 && is_layer(graph.node(states.node)) && are_alike(graph, states.node, layer) &&
      graph.node(states.node).attrs == graph.node(layer).attrs && have_same_lengths(graph, states.node, layer);
  if (are_states) found.layer = states.node;
  return found;
}

// Brings the nodes of a pipeline together: nodes that do not depend on them come in front. False where one of them
// needs another node that does.
bool bring_together(const Graph& graph, const std::set<NodeId>& members, std::vector<NodeId>* order) {
  const auto is_member = [&](NodeId id) { return members.contains(id); };
  const auto begin = std::ranges::find_if(*order, is_member);
  const auto end = std::find_if(order->rbegin(), order->rend(), is_member).base();
  std::set<NodeId> behind;
  for (auto it = begin; it != end; ++it) {
    const auto& inputs = graph.node(*it).inputs;
    const bool is_behind = std::ranges::any_of(inputs, [&](Ref ref) { return behind.contains(ref.node); });
    if (is_member(*it) && is_behind) return false;
    if (!is_member(*it) && (is_behind || std::ranges::any_of(inputs, [&](Ref ref) { return is_member(ref.node); }))) {
      behind.insert(*it);
    }
  }
  std::stable_sort(begin, end, [&](NodeId a, NodeId b) {
    const auto rank = [&](NodeId id) { return is_member(id) ? 1 : behind.contains(id) ? 2 : 0; };
    return rank(a) < rank(b);
  });
  return true;
}

}  // namespace

std::map<NodeId, PipelinePlace> bring_layer_pipelines_together(const Graph& graph, std::vector<NodeId>* order) {
  struct Layers {
    std::set<NodeId> members;
    std::vector<NodeId> steps;  // layers and products
    NodeId highest;
  };
  const std::vector<int> uses = count_uses(graph);
  std::vector<Layers> pipelines;
  for (NodeId layer = 0; layer < graph.size(); ++layer) {
    if (!is_layer(graph.node(layer))) continue;
    const Below found = below(graph, layer, uses);
    const auto& others = graph.node(layer).inputs;
    const bool needs_more =
        std::any_of(others.begin() + 1, others.end(), [&](Ref ref) { return ref.node == found.layer; });
    if (found.layer < 0 || needs_more) continue;
    auto pipeline = std::ranges::find(pipelines, found.layer, &Layers::highest);
    if (pipeline == pipelines.end()) {
      const bool has_another_above =
          std::ranges::any_of(pipelines, [&](const Layers& each) { return each.members.contains(found.layer); });
      if (has_another_above) continue;
      pipelines.push_back({{found.layer}, {found.layer}, found.layer});
      pipeline = pipelines.end() - 1;
    }
    pipeline->members.insert(found.between.begin(), found.between.end());
    pipeline->members.insert(layer);
    pipeline->steps.insert(pipeline->steps.end(), {found.product, layer});
    pipeline->highest = layer;
  }
  std::map<NodeId, PipelinePlace> places;
  for (std::size_t i = 0; i < pipelines.size(); ++i) {
    if (!bring_together(graph, pipelines[i].members, order)) continue;
    const auto layers = static_cast<std::int64_t>(pipelines[i].steps.size() / 2 + 1);
    for (const NodeId step : pipelines[i].steps) places[step] = {static_cast<int>(i), layers};
  }
  return places;
}

}  // namespace paoding
