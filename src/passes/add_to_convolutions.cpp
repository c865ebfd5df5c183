// SPDX-License-Identifier: Apache-2.0
// add_to_convolutions: an image that is added to a convolution's result, and the ReLU after that, become a part of the
// convolution, where the kernel that would run it does both:
//
//   a = conv2d_bias(x, w, bias);  s = add(a, r);  y = relu(s)
// becomes
//   y = conv2d_add(x, w, bias, r) {activation = "relu"}
#include <fmt/format.h>

#include <map>
#include <set>

#include "ops/decision.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/formula_patterns.h"
#include "passes/has_node.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

class ConvolutionAddition {
 public:
  ConvolutionAddition(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), rewriter_(graph) {}

  void run() {
    for (const Graph::Fetch& fetch : graph_.fetches()) fetched_.insert(fetch.ref);
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      if (const Ref argument = relu_argument(id); argument.valid()) relu_of_[argument] = id;
    }
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      const Node& node = rewriter_.enter(id);
      if (computes_of_two(node, Prim::add)) add(id);
      activate(id);
    }
    rewriter_.finish();
    if (additions_ > 0) {
      notes_.add(fmt::format("{} convolutions add an image to their result, {} of them with a relu", additions_,
                             activations_));
    }
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }

  // A faster kernel for the convolution saves more than the addition costs, so the kernel has to stay the same.
  bool is_run_alike(NodeId conv, NodeId made) {
    const KernelImplementation* const before = decide(graph_, conv, notes_.kernel_setting()).kernel();
    const KernelImplementation* const after = decide(graph_, made, notes_.kernel_setting()).kernel();
    return before != nullptr && after != nullptr && before->name == after->name;
  }

  // The argument, if it is a ReLU of a value of its type; else invalid.
  Ref relu_argument(NodeId id) const {
    const Ref argument = rectified(graph_, {id, 0});
    return argument.valid() && graph_.type(argument) == graph_.node(id).types[0] ? argument : Ref{};
  }

  // A result that is only fetched is written in the caller's layout, and the added image has another one.
  bool is_only_fetched(NodeId sum) const {
    const auto relu = relu_of_.find({sum, 0});
    const NodeId last = rewriter_.uses(sum) == 1 && relu != relu_of_.end() ? relu->second : sum;
    return rewriter_.uses(last) == 1 && fetched_.contains({last, 0});
  }

  void add(NodeId id) {
    if (is_only_fetched(id)) return;
    // With an odd number of channels a GPU reads images in their own layout (choose_layouts).
    const Shape& shape = graph_.node(id).types[0].shape;
    if (notes_.target().is_gpu() && (shape.rank() != 4 || shape[1] % 2 != 0)) return;
    const Ref inputs[] = {argument(graph_.node(id), 0), argument(graph_.node(id), 1)};
    for (std::size_t i = 0; i < 2; ++i) {
      const Ref conv = inputs[i], added = inputs[1 - i];
      const auto& convolution = node(conv).op->convolution;
      if (!convolution || !convolution->is_biased() || !(graph_.type(conv) == graph_.type(added))) continue;
      const Node before = node(conv);
      if (std::get<std::string>(*before.attrs.find("activation")) != "none") continue;
      if (rewriter_.uses(conv.node) > 1) {
        notes_.add(fmt::format("a sum stays after {}: the convolution is needed elsewhere", before.label()));
        continue;
      }
      const Value made = call("conv2d_add",
                              {graph_.value(before.inputs[0]), graph_.value(before.inputs[1]),
                               graph_.value(before.inputs[2]), graph_.value(added)},
                              before.attrs);
      if (!is_run_alike(conv.node, made.ref().node)) continue;
      uses_[made.ref().node] = rewriter_.uses(id);
      ++additions_;
      return rewriter_.replace({id, 0}, made.ref());
    }
  }

  void activate(NodeId id) {
    const Ref argument = relu_argument(id);
    if (!argument.valid()) return;
    const auto uses = uses_.find(argument.node);
    if (uses == uses_.end() || uses->second > 1) return;
    const Node conv = node(argument);
    Attrs attrs = conv.attrs;
    attrs.set("activation", std::string("relu"));
    Values inputs;
    for (const Ref& ref : conv.inputs) inputs.push_back(graph_.value(ref));
    ++activations_;
    rewriter_.replace({id, 0}, call(*conv.op, inputs, attrs).front().ref());
  }

  Graph& graph_;
  PassNotes& notes_;
  Rewriter rewriter_;
  std::map<Ref, NodeId> relu_of_;
  std::set<Ref> fetched_;
  std::map<NodeId, int> uses_;  // of a conv2d_add, those of the sum that it takes the place of
  int additions_ = 0, activations_ = 0;
};

}  // namespace

void add_to_convolutions(Graph& graph, PassNotes& notes) {
  if (!notes.has_claims()) return;
  for_each_graph(graph, [&](Graph& each) {
    if (has_convolution(each)) ConvolutionAddition(each, notes).run();
  });
}

}  // namespace paoding
