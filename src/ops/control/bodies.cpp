// SPDX-License-Identifier: Apache-2.0
#include "ops/control/bodies.h"

#include "base/check.h"
#include "graph/keep_names.h"

namespace paoding {

std::string free_input_name(Graph& body, std::string stem) {
  while (stem.empty() || body.find(stem).valid()) stem += "_";
  return stem;
}

void copy_into(Graph* to, const Graph& from, const std::vector<Ref>& wanted, std::map<Ref, Ref>* known) {
  std::vector<char> is_needed(static_cast<std::size_t>(from.size()), 0);
  std::vector<NodeId> open;
  const auto need = [&](Ref ref) {
    char& seen = is_needed[static_cast<std::size_t>(ref.node)];
    if (!known->contains(ref) && !seen) seen = 1, open.push_back(ref.node);
  };
  for (const Ref& ref : wanted) need(ref);
  while (!open.empty()) {
    const Node& node = from.node(open.back());
    open.pop_back();
    PD_ASSERT(!node.op->is(OpRole::source), "an input of a body that nothing stands for");
    for (const Ref& ref : node.inputs) need(ref);
  }
  const KeepNames keep(*to);
  for (NodeId id = 0; id < from.size(); ++id) {
    if (!is_needed[static_cast<std::size_t>(id)]) continue;
    Node copy = from.node(id);
    for (Ref& ref : copy.inputs) ref = known->at(ref);
    for (auto& body : copy.bodies) body = body->clone();
    const auto outputs = static_cast<std::int32_t>(copy.types.size());
    const NodeId copied = to->add(std::move(copy));
    for (std::int32_t k = 0; k < outputs; ++k) known->try_emplace({id, k}, Ref{copied, k});
  }
}

std::vector<Type> infer_from_body(const OpCall& call) {
  if (call.bodies.size() != 1) call.fail(ErrorKind::argument, "needs one body");
  const Graph& body = *call.bodies[0];
  if (body.inputs().size() != call.inputs.size()) {
    call.fail(ErrorKind::argument,
              fmt::format("has {} inputs, but its body has {}", call.inputs.size(), body.inputs().size()));
  }
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Type& inside = body.type({body.inputs()[i], 0});
    if (!(inside == call.inputs[i])) {
      call.fail(ErrorKind::shape, fmt::format("input {} of the body is {}, but gets {}", i, to_string(inside),
                                              to_string(call.inputs[i])));
    }
  }
  if (body.fetches().empty()) call.fail(ErrorKind::argument, "its body fetches nothing");
  std::vector<Type> types;
  for (const Graph::Fetch& fetch : body.fetches()) types.push_back(body.type(fetch.ref));
  return types;
}

std::shared_ptr<Graph> rebuild_body(const Graph& from, const std::vector<BodyInput>& inputs,
                                    const std::vector<Ref>& fetches) {
  auto body = std::make_shared<Graph>();
  std::map<Ref, Ref> known;
  for (const BodyInput& input : inputs) {
    const std::string name =
        free_input_name(*body, input.name.empty() ? fmt::format("in{}", body->inputs().size()) : input.name);
    const Value made = body->input(name, input.type.dtype, input.type.shape);
    for (const Ref& ref : input.stands_for) known.try_emplace(ref, made.ref());
  }
  std::vector<Ref> wanted = fetches;
  for (NodeId id : from.effects()) wanted.push_back({id, 0});
  copy_into(body.get(), from, wanted, &known);
  for (const Ref& ref : fetches) body->fetch(fmt::format("out{}", body->fetches().size()), body->value(known.at(ref)));
  return body;
}

std::vector<bool> read_inputs(const Graph& body) {
  std::vector<bool> is_read_node(static_cast<std::size_t>(body.size()), false);
  for (NodeId id = 0; id < body.size(); ++id) {
    for (const Ref& ref : body.node(id).inputs) is_read_node[static_cast<std::size_t>(ref.node)] = true;
  }
  for (const Graph::Fetch& fetch : body.fetches()) is_read_node[static_cast<std::size_t>(fetch.ref.node)] = true;
  std::vector<bool> is_read;
  for (NodeId id : body.inputs()) is_read.push_back(is_read_node[static_cast<std::size_t>(id)]);
  return is_read;
}

void adopt_saved_outputs(const Graph& copy, Graph* original, NodeId size) {
  for (NodeId id = 0; id < size; ++id) {
    const Node& grown = copy.node(id);
    Node& mine = original->mutable_node(id);
    if (grown.types.size() == mine.types.size()) continue;
    mine.types = grown.types;
    mine.attrs = grown.attrs;
    mine.bodies.clear();
    for (const auto& body : grown.bodies) mine.bodies.push_back(body->clone());
  }
}

}  // namespace paoding
