// SPDX-License-Identifier: Apache-2.0
// hoist_products: a product in a loop that does not depend on the carried state is the same work for all steps at
// once; outside the loop it is one large product.
//
//   scan(h0, xs, w, u) [ .. matmul(x, w) + matmul(h, u) .. ]
// becomes
//   p = matmul(xs, w);  scan(h0, p, u) [ .. p + matmul(h, u) .. ]
//
// Elementwise ops are hoisted only where a hoisted product needs them: on their own they would cost a pass over memory
// that the step's fused kernel does for free. Products of many rows stay: see large_product.h.
#include <map>

#include "base/check.h"
#include "graph/lift.h"
#include "paoding/op.h"
#include "passes/large_product.h"
#include "passes/pass.h"
#include "passes/scan_parts.h"

namespace paoding {
namespace {

// Marks products that do not depend on a carry, and every node they need.
std::vector<char> hoistable(const ScanParts& parts) {
  const std::vector<char> depends = depends_on_carries(parts);
  std::vector<char> marked(static_cast<std::size_t>(parts.body.size()), 0);
  for (NodeId id = parts.body.size() - 1; id >= 0; --id) {
    const Node& node = parts.body.node(id);
    const auto at = static_cast<std::size_t>(id);
    if (node.op->is(OpRole::source) || depends[at]) continue;
    if (node.op->is_run_by_kernel() && !has_many_rows(node)) marked[at] = 1;
    if (!marked[at]) continue;
    for (const Ref& ref : node.inputs) marked[static_cast<std::size_t>(ref.node)] = 1;
  }
  return marked;
}

void hoist_from(Graph& graph, NodeId id, std::map<Ref, Ref>* replaced, PassNotes& notes) {
  ScanParts parts(graph, id);
  const std::vector<char> marked = hoistable(parts);
  std::map<Ref, Lifted> outside;
  for (const auto& argument : parts.sequences) outside[argument.input] = {graph.value(argument.outer), true};
  for (const auto& argument : parts.constants) outside[argument.input] = {graph.value(argument.outer), false};

  int products = 0;
  const NodeId body_size = parts.body.size();
  for (NodeId inner = 0; inner < body_size; ++inner) {
    const Node& node = parts.body.node(inner);
    if (!marked[static_cast<std::size_t>(inner)] || node.op->is(OpRole::source)) continue;
    std::vector<Lifted> inputs;
    for (const Ref& ref : node.inputs) {
      const auto it = outside.find(ref);
      if (it == outside.end()) break;  // its producer was declined
      inputs.push_back(it->second);
    }
    if (inputs.size() != node.inputs.size()) continue;
    std::string why_not;
    const auto lifted = lift_node(graph, node, inputs, parts.length, &why_not);
    if (!lifted) {
      notes.add(fmt::format("kept {} in the loop: {}", node.label(), why_not));
      continue;
    }
    if (node.op->is_run_by_kernel()) {
      ++products;
      notes.add(fmt::format("hoisted {} {} out of {} steps", node.op->name, to_string(node.types[0]), parts.length));
    }
    for (std::size_t k = 0; k < lifted->size(); ++k) {
      outside[{inner, static_cast<std::int32_t>(k)}] = (*lifted)[k];
    }
  }
  if (products == 0) return;

  // Uses of hoisted values by nodes that stay become uses of new arguments of the scan.
  std::map<Ref, Ref> argument_of;
  const auto stays = [&](NodeId inner) { return !outside.contains({inner, 0}); };
  const auto redirect = [&](Ref ref) {
    const auto it = outside.find(ref);
    if (it == outside.end() || parts.body.node(ref.node).op->is(OpRole::source)) return ref;
    auto [made, is_new] = argument_of.try_emplace(ref);
    if (is_new) {
      const Ref outer = it->second.value.ref();
      made->second = it->second.has_time ? parts.add_sequence(outer) : parts.add_constant(outer);
    }
    return made->second;
  };
  for (NodeId inner = 0; inner < body_size; ++inner) {
    if (!stays(inner)) continue;
    for (Ref& ref : parts.body.mutable_node(inner).inputs) ref = redirect(ref);
  }
  for (auto& carry : parts.carries) carry.next = redirect(carry.next);
  for (auto& output : parts.outputs) output.value = redirect(output.value);
  parts.rebuild(replaced);
}

}  // namespace

void hoist_products(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    for_each_scan(each, [&](NodeId id, std::map<Ref, Ref>* replaced) { hoist_from(each, id, replaced, notes); });
  });
}

}  // namespace paoding
