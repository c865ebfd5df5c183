// SPDX-License-Identifier: Apache-2.0
// Graphs with their scans unrolled: the nodes of a body once for each of its steps, as tracing a loop in Python leaves
// them.
#pragma once

#include <map>

#include "ops/scan/scan.h"
#include "paoding/ops.h"

namespace paoding {

/// Copies the nodes of `from` to `to`; `known` says which values of `to` its inputs are, and gets those of all other
/// values.
inline void unroll_into(Graph& to, const Graph& from, std::map<Ref, Ref>* known) {
  for (NodeId id = 0; id < from.size(); ++id) {
    if (known->contains({id, 0})) continue;
    const Node& node = from.node(id);
    to.scope = node.scope;
    if (!node.op->is_scan()) {
      Node copy = node;
      for (Ref& ref : copy.inputs) ref = known->at(ref);
      for (auto& body : copy.bodies) body = body->clone();
      const NodeId made = to.add(std::move(copy));
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) (*known)[{id, k}] = {made, k};
      continue;
    }
    const ScanView scan(node);
    std::vector<Ref> carries;
    std::vector<Values> outputs(static_cast<std::size_t>(scan.outputs));
    for (int i = 0; i < scan.carries; ++i) carries.push_back(known->at(node.inputs[static_cast<std::size_t>(i)]));
    for (std::int64_t turn = 0; turn < scan.length; ++turn) {
      const std::int64_t t = scan.is_reverse ? scan.length - 1 - turn : turn;
      std::map<Ref, Ref> inside;
      for (std::size_t i = 0; i < node.inputs.size(); ++i) {
        const Ref input{scan.body.inputs()[i], 0};
        const Ref outer = known->at(node.inputs[i]);
        const bool is_element =
            static_cast<int>(i) >= scan.first_sequence() && static_cast<int>(i) < scan.first_constant();
        inside[input] = static_cast<int>(i) < scan.carries ? carries[i]
                        : is_element ? reshape(slice(to.value(outer), 0, t, t + 1), scan.body.type(input).shape).ref()
                                     : outer;
      }
      unroll_into(to, scan.body, &inside);
      for (std::size_t k = 0; k < scan.body.fetches().size(); ++k) {
        const Ref made = inside.at(scan.body.fetches()[k].ref);
        if (k < carries.size()) {
          carries[k] = made;
        } else {
          Values& all = outputs[k - carries.size()];
          all.insert(scan.is_reverse ? all.begin() : all.end(), to.value(made));
        }
      }
    }
    for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) {
      const auto at = static_cast<std::size_t>(k);
      const Type& type = node.types[at];
      (*known)[{id, k}] = at < carries.size() ? carries[at]
                          : scan.length == 0  ? full(to, type.shape, 0, type.dtype).ref()
                                              : stack(outputs[at - carries.size()]).ref();
    }
  }
}

inline std::unique_ptr<Graph> unrolled(const Graph& graph) {
  auto made = std::make_unique<Graph>();
  std::map<Ref, Ref> known;
  unroll_into(*made, graph, &known);
  for (const Graph::Fetch& fetch : graph.fetches()) made->fetch(fetch.name, made->value(known.at(fetch.ref)));
  return made;
}

}  // namespace paoding
