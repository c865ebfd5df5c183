// SPDX-License-Identifier: Apache-2.0
// The gradient of a branch is a branch on the same index whose bodies are the gradients of the bodies. Values of the
// forward body that a gradient needs and cannot see are saved by the forward branch, as results of that body alone:
// only the one taken computes and stores anything. Views and constants are made again instead.
#include <algorithm>

#include "base/check.h"
#include "ops/control/bodies.h"
#include "ops/control/branch.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

class BranchGradient {
 public:
  explicit BranchGradient(const GradCall& call) : call_(call), view_(call.node), saved_(call.graph, call.id) {
    for (int k = 0; k < view_.branches(); ++k) {
      std::map<NodeId, std::size_t>& positions = input_of_.emplace_back();
      for (const NodeId id : view_.body(k).inputs()) positions.emplace(id, positions.size());
    }
    for (std::size_t i = 1; i < call.inputs.size(); ++i) {
      if (call.wanted[i]) wrt_.push_back(static_cast<int>(i) - 1);
    }
  }

  Values run() {
    for (int k = 0; k < view_.branches(); ++k) differentiate(k);
    saved_.finish();
    std::vector<std::shared_ptr<Graph>> bodies;
    for (const Differentiated& made : differentiated_) {
      std::vector<BodyInput> inputs;
      for (std::size_t i = 0; i < outer_.size(); ++i) {
        const auto it = made.stands_for.find(i);
        inputs.push_back({outer_[i].type(), it == made.stands_for.end() ? std::vector<Ref>() : it->second});
      }
      bodies.push_back(rebuild_body(*made.step, inputs, made.gradients));
    }
    const Values made = add_branch(call_.graph, call_.inputs[0], outer_, static_cast<int>(wrt_.size()), {}, bodies);
    Values result(call_.inputs.size());
    for (std::size_t i = 0; i < wrt_.size(); ++i) result[static_cast<std::size_t>(wrt_[i]) + 1] = made[i];
    return result;
  }

 private:
  struct Differentiated {
    std::unique_ptr<Graph> step;
    std::vector<Ref> gradients;                          // per wrt_
    std::map<std::size_t, std::vector<Ref>> stands_for;  // input of the gradient's bodies: values of `step`
  };

  void differentiate(int k) {
    Graph& body = view_.body(k);
    Differentiated made{body.clone(), {}, {}};
    Graph& step = *made.step;
    const NodeId forward_size = step.size();
    Values outputs, seeds, inputs;
    for (const int output : view_.outputs_of(k)) {
      const Value& gradient = call_.grads[static_cast<std::size_t>(output)];
      if (!gradient.valid()) continue;
      const Value out = step.value(view_.value_of(k, output));
      if (!is_float(out.dtype())) continue;
      outputs.push_back(out);
      seeds.push_back(step.input(free_input_name(step, fmt::format("d_out{}", output)), out.dtype(), out.shape()));
      made.stands_for[position(gradient)].push_back(seeds.back().ref());
    }
    for (int i : wrt_) inputs.push_back(step.value({step.inputs()[static_cast<std::size_t>(i)], 0}));
    const Values gradients_made = outputs.empty() ? zeros(step, inputs) : gradients(outputs, inputs, seeds);
    adopt_saved_outputs(step, &body, forward_size);
    for (const Value& gradient : gradients_made) made.gradients.push_back(gradient.ref());
    save_residuals(k, forward_size, &made);
    differentiated_.push_back(std::move(made));
  }

  static Values zeros(Graph& step, const Values& inputs) {
    Values list;
    for (const Value& input : inputs) list.push_back(full(step, input.shape(), 0, input.dtype()));
    return list;
  }

  // Every forward value that the gradient reads comes in from outside, but for those that are cheaper to make again.
  void save_residuals(int k, NodeId forward_size, Differentiated* made) {
    const Graph& step = *made->step;
    std::vector<char> seen(static_cast<std::size_t>(step.size()), 0);
    std::vector<Ref> open = made->gradients;
    while (!open.empty()) {
      const Ref ref = open.back();
      open.pop_back();
      const Node& node = step.node(ref.node);
      if (ref.node < forward_size) {
        if (node.op->is(OpRole::source)) {
          const std::size_t at = input_of_[static_cast<std::size_t>(k)].at(ref.node);
          made->stands_for[position(call_.inputs[at + 1])].push_back(ref);
          continue;
        }
        const bool is_cheap = node.inputs.empty() || (node.op->kind == OpKind::view && node.inputs.size() == 1);
        if (!is_cheap) {
          made->stands_for[position(call_.graph.value(saved_.add(k, ref)))].push_back(ref);
          continue;
        }
      }
      if (seen[static_cast<std::size_t>(ref.node)]) continue;
      seen[static_cast<std::size_t>(ref.node)] = 1;
      open.insert(open.end(), node.inputs.begin(), node.inputs.end());
    }
  }

  // The position of an outer value among the inputs of the gradient's bodies.
  std::size_t position(const Value& outer) {
    const auto [it, is_new] = position_.try_emplace(outer.ref(), outer_.size());
    if (is_new) outer_.push_back(outer);
    return it->second;
  }

  const GradCall& call_;
  const BranchView view_;                                // before this saves anything
  BranchOutputs saved_;                                  // results of the forward branch for the gradient
  std::vector<std::map<NodeId, std::size_t>> input_of_;  // per body: position of an input node among the inputs
  std::vector<int> wrt_;                                 // of the bodies' inputs
  std::vector<Differentiated> differentiated_;
  Values outer_;
  std::map<Ref, std::size_t> position_;
};

}  // namespace

Values branch_gradient(const GradCall& call) { return BranchGradient(call).run(); }

}  // namespace paoding
