// SPDX-License-Identifier: Apache-2.0
// checkpoint: a part of the model of which the backward pass keeps the inputs only. A node with a body until gradients
// have been made; then the pass inline_checkpoints puts the body in its place. The gradient is computed by a copy of
// the body after a barrier, which keeps the copy from being recognised as the computation before, and which waits for
// the incoming gradient, so that the copy runs no earlier than it is needed.
#include "base/check.h"
#include "graph/body_scope.h"
#include "ops/control/bodies.h"
#include "ops/families.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

std::vector<Type> infer_checkpoint(const OpCall& call) {
  const std::vector<Type> types = infer_from_body(call);
  if (!call.bodies[0]->parameters().empty()) {
    call.fail(ErrorKind::argument, "its body declares a parameter; declare it outside");
  }
  return types;
}

Values checkpoint_gradient(const GradCall& call) {
  const auto body = call.node.bodies[0]->clone();
  Values outputs, seeds, outer_seeds, wanted;
  for (std::size_t k = 0; k < call.grads.size(); ++k) {
    if (!call.grads[k].valid()) continue;
    outputs.push_back(body->value(body->fetches()[k].ref));
    const std::string name = free_input_name(*body, fmt::format("d_out{}", k));
    seeds.push_back(body->input(name, outputs.back().dtype(), outputs.back().shape()));
    outer_seeds.push_back(call.grads[k]);
  }
  std::vector<std::size_t> wrt;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    if (call.wanted[i]) wrt.push_back(i), wanted.push_back(body->value({body->inputs()[i], 0}));
  }
  const Values made = gradients(outputs, wanted, seeds);

  Values fenced, behind = call.inputs;
  std::vector<std::size_t> at;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    // Parameters need no barrier: nothing is recomputed for them.
    if (call.graph.node(call.inputs[i].ref().node).op->name == "parameter") continue;
    fenced.push_back(call.inputs[i]);
    at.push_back(i);
  }
  fenced.insert(fenced.end(), outer_seeds.begin(), outer_seeds.end());
  const Values passed = paoding::call(*find_op("barrier"), fenced, {}, {}, &call.graph);
  for (std::size_t i = 0; i < at.size(); ++i) behind[at[i]] = passed[i];
  std::map<Ref, Ref> known;
  for (std::size_t i = 0; i < behind.size(); ++i) known[{body->inputs()[i], 0}] = behind[i].ref();
  for (std::size_t k = 0; k < seeds.size(); ++k) known[seeds[k].ref()] = passed[at.size() + k].ref();
  std::vector<Ref> refs;
  for (const Value& gradient : made) refs.push_back(gradient.ref());
  copy_into(&call.graph, *body, refs, &known);
  Values result(call.inputs.size());
  for (std::size_t i = 0; i < wrt.size(); ++i) result[wrt[i]] = call.graph.value(known.at(made[i].ref()));
  return result;
}

}  // namespace

Values checkpoint(const std::function<Values(const Values&)>& f, const Values& inputs) {
  if (inputs.empty()) fail(ErrorKind::argument, "checkpoint: needs at least one input");
  Graph* graph = nullptr;
  for (const Value& value : inputs) {
    if (!value.valid()) fail(ErrorKind::argument, "checkpoint: an input is a Value without a node");
    if (graph == nullptr || graph->encloses(value.graph())) graph = &value.graph();
  }
  graph = &BodyScope::home(*graph);
  auto body = std::make_shared<Graph>();
  body->parent = graph;
  body->scope = graph->scope;
  body->placement = graph->placement;
  Values inside;
  for (const Value& value : inputs) {
    inside.push_back(body->input(fmt::format("x{}", inside.size()), value.dtype(), value.shape()));
  }
  for (const Value& value : f(inside)) {
    body->fetch(fmt::format("out{}", body->fetches().size()), body->capture(value));
  }
  Graph& home = *body->parent;
  body->parent = nullptr;
  Values all = inputs;
  all.insert(all.end(), body->captured().begin(), body->captured().end());
  return call(*find_op("checkpoint"), all, {}, {body}, &home);
}

void register_checkpoint() {
  register_op({
      .name = "checkpoint",
      .summary = "its body's results; the backward pass computes the body again instead of keeping its values",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .bodies = BodyUse::inlined,
      .infer = infer_checkpoint,
      .gradient = checkpoint_gradient,
  });
  register_op({
      .name = "barrier",
      .summary = "its inputs, none of them before all of them are there; nothing is merged or fused across it",
      .kind = OpKind::structural,
      .inputs = {"values..."},
      .role = OpRole::passed_on,
      .infer = [](const OpCall& call) { return std::vector<Type>(call.inputs.begin(), call.inputs.end()); },
      .gradient = [](const GradCall& call) { return call.grads; },
      .cases = {{.shapes = {{2, 3}, {4}}}, {.shapes = {{}}}},
  });
}

}  // namespace paoding
