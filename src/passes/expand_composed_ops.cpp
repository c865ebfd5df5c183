// SPDX-License-Identifier: Apache-2.0
// expand_composed_ops: a composed op with a gradient rule of its own stays one node until gradients have been taken.
// Then a kernel that is registered for it may claim it, and it stays one node to the end; else it becomes what it
// consists of. Behind this pass a composed op is a kernel op (OpDef::is_run_by_kernel).
#include <fmt/format.h>

#include "graph/formula.h"
#include "passes/claimed_by.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

void expand_in(Graph& graph, PassNotes& notes) {
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {  // also what a composition is made of may be composed
    const Node& node = rewriter.enter(id);
    if (node.op->kind != OpKind::composed) continue;
    if (const KernelImplementation* claimant = claimed_by(graph, node, notes)) {
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
