// SPDX-License-Identifier: Apache-2.0
#include "ops/composition_gradient.h"

#include "base/check.h"
#include "graph/formula.h"
#include "ops/control/bodies.h"
#include "paoding/autodiff.h"

namespace paoding {

Values composition_gradient(const GradCall& call) {
  return gradient_through(call, [&](Graph& graph, const Values& inputs) {
    return expand_composed(graph, *call.node.op, inputs, call.node.attrs);
  });
}

// In a graph of its own: gradients for one input must not flow on into the values that another is made of.
Values gradient_through(const GradCall& call, const std::function<Values(Graph&, const Values&)>& compose) {
  Graph apart;
  apart.scope = call.node.scope;
  apart.placement = call.node.placement;
  Values inputs, outputs, seeds, wanted;
  std::map<Ref, Ref> known;
  const auto add_input = [&](const Value& outer) {
    const Value made = apart.input(fmt::format("in{}", apart.size()), outer.dtype(), outer.shape());
    known[made.ref()] = outer.ref();
    return made;
  };
  for (const Value& input : call.inputs) inputs.push_back(add_input(input));
  const Values made = compose(apart, inputs);
  for (std::size_t k = 0; k < made.size(); ++k) {
    if (!call.grads[k].valid()) continue;
    outputs.push_back(made[k]);
    seeds.push_back(add_input(call.grads[k]));
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (call.wanted[i]) wanted.push_back(inputs[i]);
  }
  apart.origin = call.graph.origin;
  const Values found = gradients(outputs, wanted, seeds);
  std::vector<Ref> refs;
  for (const Value& gradient : found) refs.push_back(gradient.ref());
  copy_into(&call.graph, apart, refs, &known);
  Values result(call.inputs.size());
  std::size_t next = 0;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (call.wanted[i]) result[i] = call.graph.value(known.at(refs[next++]));
  }
  return result;
}

}  // namespace paoding
