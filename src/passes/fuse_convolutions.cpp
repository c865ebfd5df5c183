// SPDX-License-Identifier: Apache-2.0
// fuse_convolutions: ops after a convolution become a part of it, and the mask of a max pool's gradient is applied
// before the gradient is scattered, not to every element after.
//
//   a = conv2d(x, w);  b = add(a, reshape(bias));  r = maximum(0, b);  y, i = max_pool2d(r)
//   dr = max_pool2d_grad(dy, i);  db = select(less_equal(b, 0), 0, dr);  dbias = sum(db, axes = [0, 2, 3])
// becomes
//   r = conv2d_bias(x, w, bias) {activation = "relu"};  y, i = max_pool2d(r)
//   d = select(less_equal(y, 0), 0, dy);  db = max_pool2d_grad(d, i);  dbias = sum(d, axes = [0, 2, 3])
//
// The sign of a ReLU's result is that of its argument, so b is not needed; an element that gets a gradient from a
// window is the window's largest, so a mask of elements is a mask of windows; and every window gives to exactly one
// element, so the sums are the same.
#include <algorithm>
#include <array>
#include <optional>

#include "base/check.h"
#include "graph/number_everywhere.h"
#include "ops/axes.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/formula_patterns.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

class ConvolutionFusion {
 public:
  ConvolutionFusion(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes) {}

  void run() {
    // Each walk sees the graph as the one before has left it.
    walk(&ConvolutionFusion::mask_by_result);
    walk(&ConvolutionFusion::mask_windows);
    walk(&ConvolutionFusion::sum_windows);
    walk(&ConvolutionFusion::fuse);
  }

 private:
  using Rule = Value (ConvolutionFusion::*)(Rewriter&, Ref);

  void walk(Rule rule) {
    Rewriter rewriter(graph_);
    find_relus();
    for (NodeId id = 0; id < rewriter.first_new; ++id) {
      if (rewriter.enter(id).types.size() != 1) continue;
      const Value made = (this->*rule)(rewriter, {id, 0});
      if (made.valid()) rewriter.replace({id, 0}, made.ref());
    }
    rewriter.finish();
  }

  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  Ref input(Ref ref, std::size_t i = 0) const { return node(ref).inputs[i]; }
  const Shape& shape(Ref ref) const { return graph_.type(ref).shape; }

  bool is_zero(Ref ref) const { return is_everywhere(graph_, ref, 0); }
  bool is_biased_convolution(Ref ref) const {
    const auto& convolution = node(ref).op->convolution;
    return convolution && convolution->is_biased();
  }

  // The argument when `ref` is a ReLU of a value of its shape; else invalid.
  Ref relu_argument(Ref ref) const {
    const Ref argument = rectified(graph_, ref);
    return argument.valid() && shape(argument) == shape(ref) ? argument : Ref();
  }

  bool is_relu6(Ref ref) const { return limits_of(graph_, node(ref)) == std::pair(0.0, 6.0); }

  void find_relus() {
    relu_of_.clear();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Ref ref{id, 0};
      if (graph_.node(id).types.size() != 1) continue;
      if (const Ref argument = relu_argument(ref); argument.valid()) relu_of_.try_emplace(argument, ref);
    }
  }

  // ---- comparisons of a ReLU's argument with 0 become comparisons of its result ----

  // The test of another value.
  Value comparison(Ref like, const SignTest& test, const Value& of) {
    const Node comparison = node(like);  // a copy: nodes are added
    const Value zero = full(graph_, {}, 0, of.dtype());
    Values inputs(comparison.inputs.size(), zero);
    inputs[test.input] = of;
    return call(*comparison.op, inputs, comparison.attrs).front();
  }

  Value mask_by_result(Rewriter&, Ref ref) {
    const auto test = sign_test(graph_, ref);
    if (!test) return {};
    const auto it = relu_of_.find(test->value);
    if (it == relu_of_.end() || !(shape(test->value) == shape(ref))) return {};
    return comparison(ref, *test, graph_.value(it->second));
  }

  // ---- masks and sums of a max pool's gradient ----

  // The max pool whose index the gradient node `ref` uses.
  std::optional<NodeId> pool_of(Ref gradient) const {
    if (node(gradient).op->indexing != Indexing::returns_to_picked) return std::nullopt;
    const Ref index = input(gradient, 1);
    if (node(index).op->indexing != Indexing::picks_in_windows || index.output != 1) return std::nullopt;
    return index.node;
  }

  Value scattered(Ref gradient, const Value& dy) {
    const Node like = node(gradient);  // a copy: nodes are added
    return call(*like.op, std::array{dy, graph_.value(like.inputs[1])}, like.attrs).front();
  }

  Value mask_windows(Rewriter& rewriter, Ref ref) {
    if (!is_choice(node(ref))) return {};
    const Ref condition = argument(node(ref), 0);
    for (std::size_t i = 1; i < 3; ++i) {
      const Ref gradient = argument(node(ref), i), other = argument(node(ref), 3 - i);
      const auto pool = pool_of(gradient);
      if (!pool || !is_zero(other) || !(shape(gradient) == shape(ref))) continue;
      if (rewriter.uses(gradient.node) > 1) continue;
      const auto test = sign_test(graph_, condition);
      if (!test || !(test->value == graph_.node(*pool).inputs[0])) continue;
      const Value mask = comparison(condition, *test, graph_.value({*pool, 0})), dy = graph_.value(input(gradient));
      const Value zero = full(graph_, {}, 0, dy.dtype());
      ++masks_;
      return scattered(gradient, i == 1 ? select(mask, dy, zero) : select(mask, zero, dy));
    }
    return {};
  }

  Value sum_windows(Rewriter&, Ref ref) {
    if (node(ref).op->reduces_with != Prim::add || !pool_of(input(ref))) return {};
    const std::vector<int> axes = plain_axes(node(ref).attrs.get_ints("axes"), 4);
    if (!std::binary_search(axes.begin(), axes.end(), 2) || !std::binary_search(axes.begin(), axes.end(), 3)) return {};
    return sum(graph_.value(input(input(ref))), node(ref).attrs.get_ints("axes"), node(ref).attrs.get_bool("keepdims"));
  }

  // ---- bias and activation ----

  // The [O] that lies after a bias [O, 1, 1] or [1, O, 1, 1].
  Value bias_of(Ref ref, std::int64_t channels) {
    const Shape& extents = shape(ref);
    if (extents.rank() < 3 || extents.rank() > 4 || extents.elements() != channels) return {};
    if (extents[extents.rank() - 3] != channels) return {};
    const bool is_reshaped = node(ref).op->view == ViewForm::reshaped;
    if (is_reshaped && shape(input(ref)) == Shape{channels}) return graph_.value(input(ref));
    return reshape(graph_.value(ref), Shape{channels});
  }

  // `ref` may be a bias sum, or the ReLU of one, or of a convolution that has its bias; or the ReLU6 of one that is no
  // product.
  Value fuse(Rewriter& rewriter, Ref ref) {
    if (computes_of_two(node(ref), Prim::add)) return fuse_bias(rewriter, ref);
    Ref argument = relu_argument(ref);
    bool has_limit = false;
    if (!argument.valid() && node(ref).inputs.size() == 1 && is_biased_convolution(input(ref))) {
      has_limit = is_relu6(ref);
      if (has_limit) argument = input(ref);
    }
    if (!argument.valid() || !is_biased_convolution(argument)) return {};
    const Node& conv = node(argument);
    const Shape& weights = shape(conv.inputs[1]);
    const bool is_product = conv.attrs.get_int("groups") == 1 && weights[2] * weights[3] == 1;
    if (has_limit && is_product) return {};  // a library's, which has no limit after it
    if (std::get<std::string>(*conv.attrs.find("activation")) != "none") return {};
    // A new node counts as used once; the number that matters is how often the sum that it replaces was used.
    if (uses_of_bias_[argument.node] > 1) {
      notes_.add(fmt::format("a relu stays after {}: what it is applied to is needed elsewhere", conv.label()));
      return {};
    }
    Attrs attrs = conv.attrs;
    attrs.set("activation", std::string(has_limit ? "relu6" : "relu"));
    ++relus_;
    return call(*conv.op,
                std::array{graph_.value(conv.inputs[0]), graph_.value(conv.inputs[1]), graph_.value(conv.inputs[2])},
                attrs)
        .front();
  }

  Value fuse_bias(Rewriter& rewriter, Ref ref) {
    for (std::size_t i = 0; i < 2; ++i) {
      const Ref conv = argument(node(ref), i);
      const auto& convolution = node(conv).op->convolution;
      if (!convolution || !convolution->is_plain() || !(shape(conv) == shape(ref))) continue;
      const Value bias = bias_of(argument(node(ref), 1 - i), shape(conv)[1]);
      if (!bias.valid()) continue;
      if (rewriter.uses(conv.node) > 1) {
        notes_.add(fmt::format("a bias stays outside {}: the convolution is needed elsewhere", node(conv).label()));
        continue;
      }
      Attrs attrs = node(conv).attrs;
      attrs.set("activation", std::string("none"));
      ++biases_;
      const Value made = call(*find_op("conv2d_bias"),
                              std::array{graph_.value(input(conv)), graph_.value(input(conv, 1)), bias}, attrs)
                             .front();
      uses_of_bias_[made.ref().node] = rewriter.uses(ref.node);
      return made;
    }
    return {};
  }

 public:
  int biases_ = 0, relus_ = 0, masks_ = 0;

 private:
  Graph& graph_;
  PassNotes& notes_;
  std::map<Ref, Ref> relu_of_;          // argument to result
  std::map<NodeId, int> uses_of_bias_;  // of conv2d_bias nodes
};

}  // namespace

void fuse_convolutions(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    ConvolutionFusion fusion(each, notes);
    fusion.run();
    if (fusion.biases_ > 0) {
      notes.add(
          fmt::format("{} convolutions took in their bias, {} of them a relu too", fusion.biases_, fusion.relus_));
    }
    if (fusion.masks_ > 0)
      notes.add(fmt::format("{} gradients are masked before a max pool scatters them", fusion.masks_));
  });
}

}  // namespace paoding
