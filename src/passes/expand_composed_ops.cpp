// SPDX-License-Identifier: Apache-2.0
// expand_composed_ops: a composed op with a gradient rule of its own stays one node until gradients have been taken;
// then it becomes what it consists of, and nothing behind this pass knows that there are such ops.
#include "graph/formula.h"
#include "paoding/op.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

void expand_in(Graph& graph, PassNotes& notes) {
  Rewriter rewriter(graph);
  for (NodeId id = 0; id < graph.size(); ++id) {  // also what a composition is made of may be composed
    const Node& node = rewriter.enter(id);
    if (node.op->kind != OpKind::composed) continue;
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
