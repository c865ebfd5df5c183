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
#include "graph/primitive_form.h"
#include "passes/pass.h"
#include "scalar/primitive.h"

namespace paoding {
namespace {

// Compares to the bit, since x - (-0) is not x where x is -0.
bool is_exactly(std::optional<double> found, std::optional<double> number) {
  return found && number && has_same_bits(*found, *number);
}

// The input that `node` gives back; invalid when it computes something.
Ref same_as(const Graph& graph, const Node& node) {
  const Prim prim = node.op->primitive.prim;
  if (prim == Prim::constant) return {};              // it is no primitive
  if (prim == Prim::input) return argument(node, 0);  // gradients are made before passes run
  const Primitive& row = primitive(prim);
  for (const std::size_t k : {0, 1}) {
    if (row.identity[k] && is_exactly(number_at(graph, node, k), row.identity[k])) return argument(node, 1 - k);
  }
  const Ref inner = argument(node, 0);
  if (!row.is_involution || !inner.valid() || !computes(graph.node(inner.node), prim)) return {};
  return argument(graph.node(inner.node), 0);
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
