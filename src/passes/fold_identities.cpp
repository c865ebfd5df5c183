// SPDX-License-Identifier: Apache-2.0
// fold_identities: elementwise ops that give back one of their inputs.
//
//   a = full() {value=1.0};  b = mul(x, a);  c = div(b, a);  d = sub(c, 0);  e = neg(neg(d))
// becomes
//   e = x
//
// Only identities that hold bit for bit, NaN and the sign of zero too: x + 0 stays, since -0 + 0 is +0.
#include <map>

#include "graph/number_everywhere.h"
#include "paoding/op.h"
#include "passes/pass.h"

namespace paoding {
namespace {

// Compares to the bit, since x - (-0) is not x where x is -0.
bool is_exactly(const Graph& graph, Ref ref, double number) {
  const std::optional<double> found = number_everywhere(graph, ref);
  return found && has_same_bits(*found, number);
}

// The input that `node` gives back; invalid when it computes something.
Ref same_as(const Graph& graph, const Node& node) {
  const std::string& op = node.op->name;
  if (op == "stop_gradient") return node.inputs[0];  // gradients are made before passes run
  if (op == "mul" && is_exactly(graph, node.inputs[0], 1)) return node.inputs[1];
  if ((op == "mul" || op == "div") && is_exactly(graph, node.inputs[1], 1)) return node.inputs[0];
  if (op == "sub" && is_exactly(graph, node.inputs[1], 0)) return node.inputs[0];
  if (op == "neg" && graph.node(node.inputs[0].node).op->name == "neg") {
    return graph.node(node.inputs[0].node).inputs[0];
  }
  return {};
}

}  // namespace

void fold_identities(Graph& graph, PassNotes& notes) {
  int folded = 0;
  for_each_graph(graph, [&](Graph& each) {
    std::map<Ref, Ref> replaced;
    for (NodeId id = 0; id < each.size(); ++id) {
      const Ref same = same_as(each, each.node(id));
      // A stretched input is no longer the same value.
      if (same.valid() && each.type(same) == each.node(id).types[0]) replaced[{id, 0}] = same;
    }
    folded += static_cast<int>(replaced.size());
    each.replace(replaced);
    each.compact();
  });
  if (folded > 0) notes.add(std::to_string(folded) + " ops that gave back an input are gone");
}

}  // namespace paoding
