// SPDX-License-Identifier: Apache-2.0
// expand_composed_ops: a composed op with a gradient rule of its own stays one node until gradients have been taken.
// Then a kernel that is registered for it may claim it, and it stays one node to the end; else its composition replaces
// it. A check of indices that a GPU leaves out goes too. After this pass a composed op is a kernel op
// (OpDef::is_run_by_kernel).
#include <fmt/format.h>

#include <algorithm>
#include <set>
#include <string>

#include "graph/formula.h"
#include "passes/claimed_by.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

using Factors = std::set<std::pair<Ref, Ref>>;

Factors factors_of_products(const Graph& graph) {
  Factors factors;
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    if (node.op->contracts) factors.emplace(node.inputs[0], node.inputs[1]);
  }
  return factors;
}

// Why a node that is one for the sake of a kernel is none after all; empty when it may be. A gradient by the
// composition is made of the composition's products: where the node is taken apart too they are the same, and a kernel
// would make them again.
std::string why_open(const Factors& factors, const Node& node, const PassNotes& notes) {
  if (!node.op->is_open_in_bodies) return "";
  if (notes.precision() != DType::f32) return fmt::format("its products are to be of {}", to_string(notes.precision()));
  const bool are_products_there = std::ranges::any_of(node.inputs, [&](Ref a) {
    return std::ranges::any_of(node.inputs, [&](Ref b) { return factors.contains({a, b}); });
  });
  return are_products_there ? "its gradient reads its products" : "";
}

void expand_in(Graph& graph, PassNotes& notes) {
  const Factors factors = factors_of_products(graph);
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {  // the parts of a composition may be composed too
    const Node& node = rewriter.enter(id);
    if (node.op->is(OpRole::check) && notes.target().is_gpu() && !node.attrs.get_bool("on_gpu")) {
      rewriter.replace({id, 0}, node.inputs[0]);
      continue;
    }
    if (node.op->kind != OpKind::composed) continue;
    if (const std::string why = why_open(factors, node, notes); !why.empty()) {
      notes.add(fmt::format("{} is taken apart: {}", node.op->name, why));
    } else if (const KernelImplementation* claimant = claimed_by(graph, id, notes)) {
      notes.add(fmt::format("{} stays whole: {} runs it", node.op->name, claimant->name));
      continue;
    }
    Values inputs;
    for (const Ref& ref : node.inputs) inputs.push_back(graph.value(ref));
    const NodeId before = graph.size();
    const Values made = expand_composed(graph, *node.op, inputs, node.attrs);
    for (std::size_t k = 0; k < made.size(); ++k) {
      rewriter.replace({id, static_cast<std::int32_t>(k)}, made[k].ref());
    }
    notes.add(node.op->name + " became " + std::to_string(graph.size() - before) + " nodes");
  }
  rewriter.finish();
}

}  // namespace

void expand_composed_ops(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) { expand_in(each, notes); });
}

}  // namespace paoding
