// SPDX-License-Identifier: Apache-2.0
// The verifier: the rules of the IR, one line each.
#include "graph/verify.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/formula.h"

namespace paoding {

void verify(const Graph& graph, std::string_view when) {
  std::set<std::string> names;
  std::set<NodeId> assigned;
  std::vector<char> is_kept(static_cast<std::size_t>(graph.size()), 0);
  for (NodeId id : graph.effects()) {
    if (id < graph.size()) is_kept[static_cast<std::size_t>(id)] = 1;
  }
  for (NodeId id = 0; id < graph.size(); ++id) {
    const Node& node = graph.node(id);
    auto illegal = [&](const std::string& what) {
      throw InternalError(fmt::format("paoding bug: illegal graph after {}: node {} ({}): {}", when, id,
                                      node.op ? node.op->name : "no op", what));
    };
    if (node.op == nullptr) illegal("has no op");
    if (node.op->is_expanded_at_once()) illegal("a composed op without a gradient rule is never a node");
    std::vector<Type> types;
    for (const Ref& ref : node.inputs) {
      if (ref.node < 0 || ref.node >= id) illegal(fmt::format("input {} does not stand before it", ref.node));
      const auto outputs = static_cast<std::int32_t>(graph.node(ref.node).types.size());
      if (ref.output < 0 || ref.output >= outputs)
        illegal(fmt::format("input {} has no output {}", ref.node, ref.output));
      types.push_back(graph.type(ref));
    }
    if (!node.op->takes(types.size())) illegal(fmt::format("has {} inputs", types.size()));
    if (node.op->attrs.size() != node.attrs.entries().size()) illegal("attributes are not complete");
    for (std::size_t i = 0; i < node.op->attrs.size(); ++i) {
      if (node.attrs.entries()[i].first != node.op->attrs[i].name) illegal("attributes are not in declared order");
    }
    if (!node.name.empty() && !names.insert(node.name.str()).second) illegal("its name is taken");
    if (node.op->is(OpRole::update)) {
      if (!graph.node(node.inputs[0].node).op->is_kept) illegal("assigns to what is no parameter");
      if (!assigned.insert(node.inputs[0].node).second) illegal("assigns to a parameter that is assigned already");
    }
    if (has_effect(node) && !is_kept[static_cast<std::size_t>(id)]) illegal("its effect would be lost");
    for (const auto& body : node.bodies) verify(*body, when);
    if (node.op->is(OpRole::source)) continue;
    try {
      if (infer_types({*node.op, types, node.attrs, node.bodies, node.scope}) != node.types) {
        illegal("its types are not those its op infers");
      }
    } catch (const Error& error) {
      if (error.kind() == ErrorKind::cancelled) throw;  // the composition that is checked may be long
      illegal(error.what());
    }
  }
  for (const Graph::Fetch& fetch : graph.fetches()) {
    if (fetch.ref.node < 0 || fetch.ref.node >= graph.size()) {
      throw InternalError(
          fmt::format("paoding bug: illegal graph after {}: fetch '{}' has no node", when, one_line(fetch.name)));
    }
  }
}

}  // namespace paoding
