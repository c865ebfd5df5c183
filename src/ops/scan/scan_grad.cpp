// SPDX-License-Identifier: Apache-2.0
// The gradient of scan is a scan in the other direction whose body is the gradient of the body.
//
// The adjoint of each carry is carried back; the adjoint of each constant is carried as a sum over the steps (the pass
// sum_over_time turns that into one product after the loop); adjoints of sequence elements are stacked. Values of the
// forward step that the gradient needs and cannot see are stacked by the forward scan and fed as a sequence.
#include <map>

#include "base/check.h"
#include "ops/composition_gradient.h"
#include "ops/control/bodies.h"
#include "ops/recurrence/recognize.h"
#include "ops/scan/scan.h"
#include "paoding/autodiff.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

Value zeros_like(Graph& graph, const Type& type) {
  const Value zero = full(graph, {}, 0, type.dtype);
  return expand(zero, type.shape);
}

// The backward body under construction and its inputs.
struct BackwardScan {
  std::shared_ptr<Graph> body = std::make_shared<Graph>();
  Values carries, sequences, constants;  // of the outer graph
};

class ScanGradient {
 public:
  explicit ScanGradient(const GradCall& call)
      : call_(call), view_(call.node), step_(view_.body.clone()), forward_size_(step_->size()) {
    step_->scope = call.node.scope;  // of sums of gradients, which belong to no op
    for (NodeId id : view_.body.inputs()) input_of_.emplace(id, static_cast<int>(input_of_.size()));
  }

  Values run() {
    differentiate_step();
    adopt_saved_outputs(*step_, &view_.body, forward_size_);
    find_residuals();
    return build();
  }

 private:
  bool is_float_input(int i) const { return is_float(view_.body.type({view_.body.inputs()[at(i)], 0}).dtype); }
  static std::size_t at(int i) { return static_cast<std::size_t>(i); }

  // Adds the gradient of one step to a copy of the body: seeds_ are its new inputs, wrt_ the inputs it is for.
  void differentiate_step() {
    Values outputs, seeds, inputs;
    const auto add_seed = [&](int fetch, std::string name) {
      const Ref ref = step_->fetches()[at(fetch)].ref;
      outputs.push_back(step_->value(ref));
      do name = "d_" + name;
      while (step_->find(name).valid());  // the gradient of a gradient has a d_carry0 already
      seeds.push_back(step_->input(name, step_->type(ref).dtype, step_->type(ref).shape));
      seeds_.push_back(seeds.back().ref());
    };
    for (int i = 0; i < view_.carries; ++i) {
      if (!is_float_input(i)) continue;
      float_carries_.push_back(i);
      add_seed(i, fmt::format("carry{}", i));
    }
    for (int i = 0; i < view_.outputs; ++i) {
      if (!call_.grads[at(view_.carries + i)].valid()) continue;
      seeded_outputs_.push_back(i);
      add_seed(view_.carries + i, fmt::format("out{}", i));
    }
    wrt_ = float_carries_;
    for (int i = view_.first_sequence(); i < view_.carries + view_.sequences + view_.constants; ++i) {
      if (is_float_input(i) && call_.wanted[at(i)]) wrt_.push_back(i);
    }
    for (int i : wrt_) inputs.push_back(step_->value({step_->inputs()[at(i)], 0}));
    gradients_ = gradients(outputs, inputs, seeds);
  }

  // Every forward value that a gradient node reads, in order.
  void find_residuals() {
    std::map<NodeId, bool> seen;
    std::vector<NodeId> open;
    const auto use = [&](Ref ref) {
      if (ref.node < forward_size_) {
        residuals_.try_emplace(ref, Ref{});
      } else if (!seen[ref.node]) {
        seen[ref.node] = true;
        open.push_back(ref.node);
      }
    };
    for (const Value& gradient : gradients_) use(gradient.ref());
    while (!open.empty()) {
      const NodeId id = open.back();
      open.pop_back();
      for (const Ref& ref : step_->node(id).inputs) use(ref);
    }
  }

  Value backward_input(BackwardScan* scan, Values* list, const Value& outer, bool is_sequence, std::string_view name) {
    list->push_back(outer);
    const Shape shape = is_sequence ? outer.shape().with_removed(0) : outer.shape();
    return scan->body->input(name, outer.dtype(), shape);
  }

  Values build() {
    BackwardScan scan;
    Graph& body = *scan.body;
    body.scope = call_.node.scope;
    std::map<Ref, Ref> in_body;  // step_ value -> body value
    std::size_t seed = 0;
    for (int i : float_carries_) {
      const Value& last = call_.grads[at(i)];
      const Value start = last.valid() ? last : zeros_like(call_.graph, call_.node.types[at(i)]);
      in_body[seeds_[seed++]] = backward_input(&scan, &scan.carries, start, false, fmt::format("d_carry{}", i)).ref();
    }
    Values sums;  // running sums of the constants' adjoints
    for (std::size_t k = float_carries_.size(); k < wrt_.size(); ++k) {
      if (wrt_[k] < view_.first_constant()) continue;
      const Value start = zeros_like(call_.graph, call_.inputs[at(wrt_[k])].type());
      sums.push_back(backward_input(&scan, &scan.carries, start, false, fmt::format("sum{}", wrt_[k])));
    }
    for (int i : seeded_outputs_) {
      in_body[seeds_[seed++]] =
          backward_input(&scan, &scan.sequences, call_.grads[at(view_.carries + i)], true, fmt::format("d_out{}", i))
              .ref();
    }
    feed_residuals(&scan, &in_body);
    copy_gradient_nodes(&body, &in_body);

    // Next carries: adjoints of the carries, then the sums; outputs: adjoints of sequence elements.
    const auto gradient = [&](std::size_t k) { return body.value(in_body.at(gradients_[k].ref())); };
    for (std::size_t k = 0; k < float_carries_.size(); ++k) body.fetch(fmt::format("next{}", k), gradient(k));
    std::size_t next_sum = 0;
    for (std::size_t k = float_carries_.size(); k < wrt_.size(); ++k) {
      if (wrt_[k] < view_.first_constant()) continue;
      body.fetch(fmt::format("next_sum{}", k), sums[next_sum++] + gradient(k));
    }
    for (std::size_t k = float_carries_.size(); k < wrt_.size(); ++k) {
      if (wrt_[k] < view_.first_constant()) body.fetch(fmt::format("out{}", k), gradient(k));
    }

    const Values made =
        add_scan(call_.graph, scan.carries, scan.sequences, scan.constants, view_.length, !view_.is_reverse, scan.body);
    return distribute(made);
  }

  void feed_residuals(BackwardScan* scan, std::map<Ref, Ref>* in_body) {
    ScanOutputs saved(call_.graph, call_.id);
    // Constants come after all sequences, so two walks.
    for (const auto& [ref, unused] : residuals_) {
      const int input = input_index(ref);
      if (input >= view_.first_constant()) continue;
      const bool is_element = input >= view_.first_sequence();
      const Value outer = is_element ? call_.inputs[at(input)] : call_.graph.value(saved.add(ref));
      (*in_body)[ref] =
          backward_input(scan, &scan->sequences, outer, true, fmt::format("saved{}", in_body->size())).ref();
    }
    for (const auto& [ref, unused] : residuals_) {
      const int input = input_index(ref);
      if (input < view_.first_constant()) continue;
      (*in_body)[ref] =
          backward_input(scan, &scan->constants, call_.inputs[at(input)], false, fmt::format("constant{}", input))
              .ref();
    }
  }

  // Which input of the body `ref` is; -1 for a value computed in the step.
  int input_index(Ref ref) const {
    const auto it = input_of_.find(ref.node);
    return it == input_of_.end() ? -1 : it->second;
  }

  void copy_gradient_nodes(Graph* body, std::map<Ref, Ref>* in_body) {
    for (NodeId id = forward_size_; id < step_->size(); ++id) {
      const Node& node = step_->node(id);
      if (node.op->is(OpRole::source)) continue;  // a seed
      Node copy = node;
      bool is_needed = true;
      for (Ref& ref : copy.inputs) {
        const auto it = in_body->find(ref);
        if (it == in_body->end()) {
          is_needed = false;  // reads a value that no gradient needs, so neither is it
          break;
        }
        ref = it->second;
      }
      if (!is_needed) continue;
      const NodeId copied = body->add(std::move(copy));
      for (std::int32_t k = 0; k < static_cast<std::int32_t>(node.types.size()); ++k) (*in_body)[{id, k}] = {copied, k};
    }
  }

  Values distribute(const Values& made) {
    Values result(call_.inputs.size());
    std::size_t next = 0;
    for (int i : float_carries_) result[at(i)] = made[next++];
    for (std::size_t k = float_carries_.size(); k < wrt_.size(); ++k) {
      if (wrt_[k] >= view_.first_constant()) result[at(wrt_[k])] = made[next++];
    }
    for (std::size_t k = float_carries_.size(); k < wrt_.size(); ++k) {
      if (wrt_[k] < view_.first_constant()) result[at(wrt_[k])] = made[next++];
    }
    return result;
  }

  const GradCall& call_;
  const ScanView view_;
  std::unique_ptr<Graph> step_;
  const NodeId forward_size_;
  std::map<NodeId, int> input_of_;  // position of an input node among the body's inputs
  std::vector<int> float_carries_, seeded_outputs_, wrt_;
  std::vector<Ref> seeds_;
  Values gradients_;
  std::map<Ref, Ref> residuals_;
};

}  // namespace

Values scan_gradient(const GradCall& call) {
  // A recurrence that has a gradient of its own: the pass recognize_recurrences sees the scan so too.
  const ScanView scan(call.node);
  if (!recurrence_of(scan).empty()) {
    return gradient_through(call, [&](Graph&, const Values& inputs) { return as_recurrence(scan, inputs); });
  }
  return ScanGradient(call).run();
}

}  // namespace paoding
