// SPDX-License-Identifier: Apache-2.0
// The reverse walk: adjoints from outputs to inputs, contributions summed, broadcasts summed away.
#include <algorithm>
#include <map>

#include "autodiff/formula_gradient.h"
#include "base/check.h"
#include "base/one_line.h"
#include "graph/body_scope.h"
#include "graph/follow_by_none.h"
#include "graph/keep_names.h"
#include "graph/number_everywhere.h"
#include "graph/primitive_form.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// A gradient of a broadcast input has the broadcast shape; summing it back is the driver's work, never an op's.
Value sum_to(const Value& gradient, const Shape& shape) {
  const Shape& from = gradient.shape();
  if (from == shape) return gradient;
  Shape both;
  if (broadcast(from, shape, &both) && both == shape) return expand(gradient, shape);  // one value for many elements
  std::vector<std::int64_t> axes;
  const int extra = from.rank() - shape.rank();
  for (int axis = 0; axis < from.rank(); ++axis) {
    if (axis < extra || (shape[axis - extra] == 1 && from[axis] != 1)) axes.push_back(axis);
  }
  return reshape(axes.empty() ? gradient : sum(gradient, axes), shape);
}

// Ends the lists that a rule sees. It is invalid, like a Value(), but a rule may not give it for an input.
const Value kBehind(nullptr, {-1, -1});

class ReverseWalk {
 public:
  ReverseWalk(Graph& graph, std::span<const Value> outputs, std::span<const Value> inputs) : graph_(graph) {
    std::vector<NodeId> open;
    const auto reach = [&](NodeId id) {
      const auto [it, is_new] = reached_.try_emplace(id);
      if (!is_new) return;
      it->second.adjoints.resize(graph.node(id).types.size());
      open.push_back(id);
    };
    for (const Value& output : outputs) reach(output.ref().node);
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const Ref& ref : graph.node(id).inputs) reach(ref.node);
    }
    for (const Value& input : inputs) {
      if (const auto it = reached_.find(input.ref().node); it != reached_.end()) it->second.is_influenced = true;
    }
    for (auto& [id, node] : reached_) {
      for (const Ref& ref : graph.node(id).inputs) node.is_influenced |= reached_.at(ref.node).is_influenced;
    }
  }

  void seed(Ref ref, const Value& gradient) { adjoint(ref).add(gradient, false); }

  // The sum of the adjoints collected for `ref`; invalid when there are none.
  Value total(Ref ref) {
    if (!reached_.contains(ref.node)) return {};
    Values& terms = adjoint(ref).terms;
    if (terms.size() > 1) terms = {add_n(terms)};
    return terms.empty() ? Value() : terms[0];
  }

  void run() {
    for (auto it = reached_.rbegin(); it != reached_.rend(); ++it) {
      if (it->second.is_influenced && !graph_.node(it->first).inputs.empty()) visit(it->first);
    }
  }

 private:
  // The adjoints collected for a value.
  struct Adjoint {
    Values terms;
    bool is_chosen = true;  // all of them are (FormulaGradient::is_chosen)
    void add(const Value& term, bool is_choice) { terms.push_back(term), is_chosen &= is_choice; }
  };
  // A node that an output depends on.
  struct Reached {
    bool is_influenced = false;     // depends on an input
    std::vector<Adjoint> adjoints;  // per output
  };

  Adjoint& adjoint(Ref ref) { return reached_.at(ref.node).adjoints[static_cast<std::size_t>(ref.output)]; }

  void visit(NodeId id) {
    const Node& node = graph_.node(id);
    const KeepNames keep(graph_);
    graph_.origin = node.label() + "_grad";
    graph_.scope = node.scope;
    graph_.placement = node.placement;
    GradCall call{graph_, id, node, {}, {}, {}, {}};
    bool has_gradient = false, is_chosen = true;
    // Types may grow while the rule runs (scan stacks its saved values), so this is taken before.
    const auto outputs = static_cast<std::int32_t>(reached_.at(id).adjoints.size());
    for (std::int32_t k = 0; k < outputs; ++k) {
      call.outputs.push_back(graph_.value({id, k}));
      call.grads.push_back(total({id, k}));
      if (!call.grads.back().valid()) continue;
      has_gradient = true, is_chosen &= adjoint({id, k}).is_chosen;
    }
    if (has_gradient) {
      for (const Ref& ref : node.inputs) {
        call.inputs.push_back(graph_.value(ref));
        call.wanted.push_back(reached_.at(ref.node).is_influenced && is_float(graph_.type(ref).dtype));
      }
      for (Values* list : {&call.inputs, &call.outputs, &call.grads}) follow_by_none(list, kBehind);
      follow_by_none(&call.wanted);
      apply_rule(call, is_chosen);
    }
  }

  // The adjoints that an op's own rule gives for inputs. Where adjoints of a choice are passed on element by element, 0
  // stays 0.
  static FormulaGradient by_own_rule(const GradCall& call, bool is_chosen) {
    const OpDef& op = *call.node.op;
    FormulaGradient made{op.gradient(call), std::vector<bool>(call.inputs.size())};
    if (made.adjoints.size() != call.inputs.size()) return made;
    // Not through sums: products of repeated operands stay such, which passes turn into large products.
    const bool is_passed_on = op.kind == OpKind::view || op.kind == OpKind::formula;
    for (std::size_t i = 0; i < made.adjoints.size(); ++i) {
      Value& value = made.adjoints[i];
      if (!call.wanted[i] || !value.valid() || value == kBehind) continue;
      const bool keeps_zeros = is_zero_with(call.grads[0], value);
      if (op.kind == OpKind::formula && is_chosen && !keeps_zeros) {
        value = where(equal(call.grads[0], 0.0), 0.0, value);
      }
      const bool chooses = keeps_zeros && computes(value.graph().node(value.ref().node), Prim::select);
      made.is_chosen[i] = (is_chosen && is_passed_on) || chooses;
    }
    return made;
  }

  // Whether `value` is `g`, converted, scaled or where a condition says so, and else 0.
  static bool is_zero_with(const Value& g, const Value& value) {
    if (value == g || is_everywhere(value.graph(), value.ref(), 0)) return true;
    const Node& node = value.graph().node(value.ref().node);
    return is_zero_with_inputs(value.graph(), node,
                               [&](std::size_t k) { return is_zero_with(g, value.graph().value(node.inputs[k])); });
  }

  void apply_rule(const GradCall& call, bool is_chosen) {
    const OpDef& op = *call.node.op;
    if (std::none_of(call.wanted.begin(), call.wanted.end(), [](bool wanted) { return wanted; })) return;
    if (!op.gradient && op.kind != OpKind::formula) {
      fail(ErrorKind::unsupported, "{}: has no gradient, but one is needed{}", op.name,
           in_scope(call.node.scope.str()));
    }
    const FormulaGradient made = op.gradient ? by_own_rule(call, is_chosen) : formula_gradient(call, is_chosen);
    const Values& results = made.adjoints;
    if (results.size() != call.inputs.size()) {
      fail(ErrorKind::argument, "{}: its gradient rule gives {} values, one is needed for each of {} inputs", op.name,
           results.size(), call.inputs.size());
    }
    for (std::size_t i = 0; i < results.size(); ++i) {
      if (results[i] == kBehind) {
        fail(ErrorKind::argument,
             "{}: its gradient rule reads more inputs, outputs or gradients than there are: {}, {} "
             "and {}",
             op.name, call.inputs.size(), call.outputs.size(), call.grads.size());
      }
      if (!call.wanted[i] || !results[i].valid()) continue;
      const Value& input = call.inputs[i];
      check_gradient(op, i, results[i].type(), input.type());
      const Value gradient = graph_.capture(results[i]);
      adjoint(input.ref()).add(cast(sum_to(gradient, input.shape()), input.dtype()), made.is_chosen[i]);
    }
  }

  static void check_gradient(const OpDef& op, std::size_t i, const Type& made, const Type& needed) {
    Shape both;
    const bool fits = broadcast(made.shape, needed.shape, &both) && (both == made.shape || both == needed.shape);
    if (fits && is_float(made.dtype)) return;
    fail(fits ? ErrorKind::dtype : ErrorKind::shape,
         "{}: its gradient rule gives {} for input {}, which is {}; needed is the input's shape, or one that it "
         "broadcasts to",
         op.name, to_string(made), i, to_string(needed));
  }

  Graph& graph_;
  std::map<NodeId, Reached> reached_;  // none that the walk makes
};

void check_arguments(std::span<const Value> outputs, std::span<const Value> inputs, std::span<const Value> seeds) {
  if (outputs.empty()) fail(ErrorKind::argument, "gradients: there is no output to differentiate");
  Graph* graph = &outputs[0].graph();
  for (std::span<const Value> list : {outputs, inputs, seeds}) {
    for (const Value& value : list) {
      if (!value.valid() || &value.graph() != graph) {
        fail(ErrorKind::argument, "gradients: outputs, inputs and seeds must be values of one graph");
      }
    }
  }
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    if (!is_float(inputs[i].dtype())) {
      fail(ErrorKind::dtype, "gradients: input {} is {}; only floats have gradients", i, to_string(inputs[i].dtype()));
    }
  }
  if (!seeds.empty() && seeds.size() != outputs.size()) {
    fail(ErrorKind::argument, "gradients: {} outputs, but {} seeds", outputs.size(), seeds.size());
  }
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    if (!is_float(outputs[i].dtype())) {
      fail(ErrorKind::dtype, "gradients: output {} is {}; only floats have gradients", i,
           to_string(outputs[i].dtype()));
    }
    if (seeds.empty() ? outputs[i].shape().elements() != 1 : !(seeds[i].type() == outputs[i].type())) {
      fail(ErrorKind::argument, "gradients: output {} is {}, {}", i, to_string(outputs[i].type()),
           seeds.empty() ? "which is not a scalar, so it needs a seed"
                         : "but its seed is " + to_string(seeds[i].type()));
    }
  }
}

}  // namespace

Values gradients(std::span<const Value> outputs, std::span<const Value> inputs, std::span<const Value> seeds) {
  check_arguments(outputs, inputs, seeds);
  Graph& graph = outputs[0].graph();
  const BodyScope beside_the_outputs(nullptr,
                                     BodyKind::loop);  // also when a branch asks for gradients of values around it
  ReverseWalk walk(graph, outputs, inputs);
  for (std::size_t i = 0; i < outputs.size(); ++i) {
    const Value seed = seeds.empty() ? full(graph, outputs[i].shape(), 1, outputs[i].dtype()) : seeds[i];
    walk.seed(outputs[i].ref(), seed);
  }
  walk.run();
  Values results;
  for (const Value& input : inputs) {
    const Value gradient = walk.total(input.ref());
    results.push_back(gradient.valid() ? gradient : expand(full(graph, {}, 0, input.dtype()), input.shape()));
  }
  return results;
}

Values gradients(const Value& output, std::initializer_list<Value> inputs) {
  return gradients(std::array{output}, std::span(inputs.begin(), inputs.size()));
}

}  // namespace paoding
