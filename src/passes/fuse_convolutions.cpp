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
#include <optional>

#include "base/check.h"
#include "graph/number_everywhere.h"
#include "ops/axes.h"
#include "paoding/op.h"
#include "paoding/ops.h"
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
  bool is(Ref ref, std::string_view op) const { return node(ref).op->name == op; }
  Ref input(Ref ref, std::size_t i = 0) const { return node(ref).inputs[i]; }
  const Shape& shape(Ref ref) const { return graph_.type(ref).shape; }

  bool is_zero(Ref ref) const { return is_everywhere(graph_, ref, 0); }

  // The argument when `ref` is a ReLU, in whichever way it is written; else invalid.
  Ref relu_argument(Ref ref) const {
    if (is(ref, "relu")) return input(ref);
    if (!is(ref, "maximum")) return {};
    for (std::size_t i = 0; i < 2; ++i) {
      if (is_zero(input(ref, i)) && shape(input(ref, 1 - i)) == shape(ref)) return input(ref, 1 - i);
    }
    return {};
  }

  bool is_relu6(Ref ref) const {
    const Attrs& attrs = node(ref).attrs;
    return is(ref, "hardtanh") && attrs.get_float("min") == 0 && attrs.get_float("max") == 6;
  }

  void find_relus() {
    relu_of_.clear();
    for (NodeId id = 0; id < graph_.size(); ++id) {
      const Ref ref{id, 0};
      if (graph_.node(id).types.size() != 1) continue;
      if (const Ref argument = relu_argument(ref); argument.valid()) relu_of_.try_emplace(argument, ref);
    }
  }

  // ---- comparisons of a ReLU's argument with 0 become comparisons of its result ----

  // The value that `ref` compares with 0, when the comparison is the same for it and for its ReLU: a <= 0, a > 0, 0 <
  // a.
  Ref compared(Ref ref) const {
    if ((is(ref, "less_equal") || is(ref, "greater")) && is_zero(input(ref, 1))) return input(ref, 0);
    if (is(ref, "less") && is_zero(input(ref, 0))) return input(ref, 1);
    return {};
  }

  Value comparison(Ref like, const Value& of) {
    const Value zero = full(graph_, {}, 0, of.dtype());
    if (is(like, "greater")) return greater(of, zero);
    return is(like, "less_equal") ? less_equal(of, zero) : less(zero, of);
  }

  Value mask_by_result(Rewriter&, Ref ref) {
    const Ref argument = compared(ref);
    if (!argument.valid()) return {};
    const auto it = relu_of_.find(argument);
    if (it == relu_of_.end() || !(shape(argument) == shape(ref))) return {};
    return comparison(ref, graph_.value(it->second));
  }

  // ---- masks and sums of a max pool's gradient ----

  // The max pool whose index the gradient node `ref` uses.
  std::optional<NodeId> pool_of(Ref gradient) const {
    if (!is(gradient, "max_pool2d_grad")) return std::nullopt;
    const Ref index = input(gradient, 1);
    if (!is(index, "max_pool2d") || index.output != 1) return std::nullopt;
    return index.node;
  }

  Value scattered(Ref gradient, const Value& dy) {
    return call("max_pool2d_grad", {dy, graph_.value(input(gradient, 1))}, node(gradient).attrs);
  }

  Value mask_windows(Rewriter& rewriter, Ref ref) {
    if (!is(ref, "select")) return {};
    const Ref condition = input(ref, 0);
    for (std::size_t i = 1; i < 3; ++i) {
      const Ref gradient = input(ref, i), other = input(ref, 3 - i);
      const auto pool = pool_of(gradient);
      if (!pool || !is_zero(other) || !(shape(gradient) == shape(ref))) continue;
      if (rewriter.uses(gradient.node) > 1) continue;
      const Ref image = compared(condition);
      if (!image.valid() || !(image == graph_.node(*pool).inputs[0])) continue;
      const Value mask = comparison(condition, graph_.value({*pool, 0})), dy = graph_.value(input(gradient));
      const Value zero = full(graph_, {}, 0, dy.dtype());
      ++masks_;
      return scattered(gradient, i == 1 ? select(mask, dy, zero) : select(mask, zero, dy));
    }
    return {};
  }

  Value sum_windows(Rewriter&, Ref ref) {
    if (!is(ref, "sum") || !is(input(ref), "max_pool2d_grad") || !pool_of(input(ref))) return {};
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
    if (is(ref, "reshape") && shape(input(ref)) == Shape{channels}) return graph_.value(input(ref));
    return reshape(graph_.value(ref), Shape{channels});
  }

  // `ref` may be a bias sum, or the ReLU of one, or of a convolution that has its bias; or the ReLU6 of one that is no
  // product.
  Value fuse(Rewriter& rewriter, Ref ref) {
    if (is(ref, "add")) return fuse_bias(rewriter, ref);
    const bool has_limit = is_relu6(ref);
    const Ref argument = has_limit ? input(ref) : relu_argument(ref);
    if (!argument.valid() || !is(argument, "conv2d_bias")) return {};
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
      const Ref conv = input(ref, i);
      if (!is(conv, "conv2d") || !(shape(conv) == shape(ref))) continue;
      const Value bias = bias_of(input(ref, 1 - i), shape(conv)[1]);
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
