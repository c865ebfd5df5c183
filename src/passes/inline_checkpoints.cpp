// SPDX-License-Identifier: Apache-2.0
// inline_checkpoints: a checkpoint's body takes the node's place, once its gradient has been made. It cannot be
// switched off: nothing else runs a checkpoint.
//
//   y = checkpoint(x, w) [ x = input; w = input; a = matmul(x, w); b = tanh(a); fetch b ]
// becomes
//   a = matmul(x, w);  y = tanh(a)
#include "graph/keep_names.h"
#include "ops/control/bodies.h"
#include "paoding/op.h"
#include "passes/pass.h"

namespace paoding {

void inline_checkpoints(Graph& graph, PassNotes& notes) {
  int inlined = 0;
  for_each_graph(graph, [&](Graph& each) {
    std::map<Ref, Ref> replaced;
    const NodeId size = each.size();
    for (NodeId id = 0; id < size; ++id) {
      const Node& node = each.node(id);
      if (node.op->bodies != BodyUse::inlined) continue;
      const Graph& body = *node.bodies[0];
      std::map<Ref, Ref> known;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) known[{body.inputs()[i], 0}] = node.inputs[i];
      std::vector<Ref> wanted;
      for (const Graph::Fetch& fetch : body.fetches()) wanted.push_back(fetch.ref);
      for (NodeId effect : body.effects()) wanted.push_back({effect, 0});
      const KeepNames keep(each, node);
      copy_into(&each, body, wanted, &known);
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
        replaced[{id, k}] = known.at(wanted[static_cast<std::size_t>(k)]);
      }
      each.forget_effect(id);
      ++inlined;
    }
    each.replace(replaced);
    each.compact();
  });
  if (inlined > 0) notes.add(std::to_string(inlined) + " checkpoints are ordinary nodes now");
}

}  // namespace paoding
