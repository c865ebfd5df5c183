// SPDX-License-Identifier: Apache-2.0
// fold_norms: factors and terms that a convolution's result is multiplied by and added to, channel by channel, become a
// part of its weights and its bias: a batch norm that has its statistics, outside of training.
//
//   c = conv2d(x, w);  d = sub(c, mean);  e = mul(d, factor);  y = add(e, beta)
// becomes
//   y = add(conv2d(x, mul(w, factor)), add(mul(neg(mean), factor), beta))
//
// of which fuse_convolutions makes conv2d_bias. A norm of 16 bits computes in f32, between casts: so do its factors
// then, and the weights are rounded once. The image is gone over once where it was three times; the weights are
// gone over once more, in every run where they are not parameters of a program that only reads them
// (preprocess_parameters), so they have to be the smaller of the two.
//
// In training a batch norm sums up distances from one of the row's elements, so that nothing is lost where the mean is
// large:
//
//   d = sub(c, near);  mean = add(near, m = div(sum(d), n));  variance = sub(div(sum(square(d)), n), square(m))
//
// A convolution's result of 16 bits has lost more by its own rounding, so there they are distances from 0: the sums
// wait for no element, and a kernel may add them up while it makes the result (plan/epilogues.h).
#include <map>
#include <optional>
#include <set>
#include <utility>

#include "base/check.h"
#include "graph/number_everywhere.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/formula_patterns.h"
#include "passes/has_node.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

bool is_plain_convolution(const Node& node) { return node.op->convolution && node.op->convolution->is_plain(); }

// Whether it multiplies the value of a node by another, adds that, or subtracts it.
bool scales_or_shifts(const Node& node, NodeId value) {
  if (argument(node, 0).node == argument(node, 1).node) return false;  // a square
  if (computes_of_two(node, Prim::add) || computes_of_two(node, Prim::mul)) return true;
  return computes_of_two(node, Prim::sub) && argument(node, 0).node == value;
}
// The other one.
Ref other_than(const Node& node, NodeId value) { return argument(node, argument(node, 0).node == value ? 1 : 0); }

// Kinds of ops that the statistics of a norm consist of.
bool is_sum_over_axes(const Node& node) { return node.op->reduces_with == Prim::add; }
bool is_sum_of_two(const Node& node) { return computes_of_two(node, Prim::add); }
bool is_difference(const Node& node) { return computes_of_two(node, Prim::sub); }
bool is_quotient(const Node& node) { return computes_of_two(node, Prim::div); }
bool is_square(const Node& node) { return computes_of_two(node, Prim::mul) && argument(node, 0) == argument(node, 1); }

class NormFolding {
 public:
  NormFolding(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes) {}

  void run() {
    Rewriter rewriter(graph_);
    find_users(rewriter);
    for (NodeId id = 0; id < rewriter.first_new; ++id) {
      rewriter.enter(id);
      if (const auto found = convs_.find(id); found != convs_.end()) fold(rewriter, id, found->second);
    }
    rewriter.finish();
    if (folded_ > 0) notes_.add(fmt::format("{} convolutions took in factors of their channels", folded_));
  }

 private:
  // [O], where it is one element a channel of [N, O, H, W]; or a scalar for all.
  bool is_per_channel(Ref ref, const Shape& image) const {
    const Shape& extents = graph_.type(ref).shape;
    const int rank = extents.rank();
    return extents.elements() == 1 ||
           (rank >= 3 && rank <= 4 && extents.elements() == image[1] && extents[rank - 3] == image[1]);
  }

  // The ops on the result of a convolution, up to where somebody else sees it.
  struct Chain {
    NodeId conv = 0;
    std::vector<NodeId> steps;
  };

  // The only node that reads output 0 of `id`, once.
  std::optional<NodeId> only_user(const Rewriter& rewriter, NodeId id) const {
    const auto found = users_.find(id);
    if (rewriter.uses(id) != 1 || found == users_.end() || found->second.size() != 1) return std::nullopt;
    return found->second.front();
  }

  void find_users(const Rewriter& rewriter) {
    for (NodeId id = 0; id < graph_.size(); ++id) {
      for (const Ref& ref : graph_.node(id).inputs) users_[ref.node].push_back(id);
    }
    for (NodeId id = 0; id < graph_.size(); ++id) {
      if (!is_plain_convolution(graph_.node(id))) continue;
      const Chain chain = chain_of(rewriter, id);
      if (!chain.steps.empty()) convs_[chain.steps.back()] = chain;
    }
  }

  Chain chain_of(const Rewriter& rewriter, NodeId conv) const {
    const Shape& image = graph_.node(conv).types[0].shape;
    Chain chain;
    chain.conv = conv;
    std::size_t last_factor = 0;
    NodeId at = conv;
    while (const auto user = only_user(rewriter, at)) {
      const Node& node = graph_.node(*user);
      if (!(node.types[0].shape == image) || !is_float(node.types[0].dtype)) break;
      if (node.op->conversion != Conversion::value) {
        if (!scales_or_shifts(node, at)) break;
        if (!is_per_channel(other_than(node, at), image)) break;
      }
      chain.steps.push_back(at = *user);
      if (computes(node, Prim::mul)) last_factor = chain.steps.size();
    }
    // The chain ends in the dtype of the convolution; sums alone are a bias already.
    const DType dtype = graph_.node(conv).types[0].dtype;
    while (!chain.steps.empty() && graph_.node(chain.steps.back()).types[0].dtype != dtype) chain.steps.pop_back();
    if (last_factor == 0 || chain.steps.size() < last_factor) chain.steps.clear();
    return chain;
  }

  void fold(Rewriter& rewriter, NodeId end, const Chain& chain) {
    const Node conv = graph_.node(chain.conv);
    const Type type = conv.types[0];
    const Ref weights = conv.inputs[1];
    if (type.shape.elements() < graph_.type(weights).shape.elements()) {
      notes_.add(fmt::format("factors stay after {}: its weights are larger than its result", conv.label()));
      return;
    }
    DType dtype = type.dtype;  // the widest that is computed in
    for (const NodeId step : chain.steps) {
      const DType made = graph_.node(step).types[0].dtype;
      if (size_bytes(made) > size_bytes(dtype)) dtype = made;
    }
    Value factor, shift;
    NodeId before = chain.conv;
    for (const NodeId step : chain.steps) {
      const Node node = graph_.node(step);
      const NodeId of = std::exchange(before, step);
      if (node.op->conversion == Conversion::value) continue;
      const Value other = cast(graph_.value(rewriter.now(other_than(node, of))), dtype);
      if (computes(node, Prim::mul)) {
        factor = factor.valid() ? factor * other : other;
        if (shift.valid()) shift = shift * other;
      } else if (computes(node, Prim::add)) {
        shift = shift.valid() ? shift + other : other;
      } else {
        shift = shift.valid() ? shift - other : neg(other);
      }
    }
    const std::int64_t outputs = type.shape[1];
    // [O, 1, 1, 1], or a scalar.
    const auto beside_weights = [&](const Value& value) {
      return value.shape().elements() == 1 && outputs != 1 ? reshape(value, Shape{})
                                                           : reshape(value, Shape{outputs, 1, 1, 1});
    };
    Value made =
        call(*conv.op,
             std::array{graph_.value(rewriter.now(conv.inputs[0])),
                        cast(cast(graph_.value(rewriter.now(weights)), dtype) * beside_weights(factor), type.dtype)},
             conv.attrs)
            .front();
    if (shift.valid()) {
      shift = cast(shift, type.dtype);
      const bool is_number = shift.shape().elements() == 1 && outputs != 1;
      made = made + (is_number ? expand(reshape(shift, Shape{1, 1, 1}), Shape{outputs, 1, 1})
                               : reshape(shift, Shape{outputs, 1, 1}));
    }
    rewriter.replace({end, 0}, made.ref());
    ++folded_;
  }

  Graph& graph_;
  PassNotes& notes_;
  std::map<NodeId, std::vector<NodeId>> users_;
  std::map<NodeId, Chain> convs_;  // by the last of their steps
  int folded_ = 0;
};

class SumsFromZero {
 public:
  SumsFromZero(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), rewriter_(graph) {}

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      for (const Ref& ref : graph_.node(id).inputs) users_[ref].insert(id);
    }
    for (const Graph::Fetch& fetch : graph_.fetches()) users_[fetch.ref].insert(-1);
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      if (is_difference(rewriter_.enter(id))) from_zero(id);
    }
    rewriter_.finish();
    if (count_ > 0) notes_.add(fmt::format("statistics of {} convolutions are sums from 0", count_));
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  using Kind = bool (*)(const Node&);
  bool is(NodeId id, Kind kind) const { return id >= 0 && kind(graph_.node(id)); }
  const std::set<NodeId>& users(NodeId id) const {
    static const std::set<NodeId> none;
    const auto found = users_.find({id, 0});
    return found == users_.end() ? none : found->second;
  }
  /// The only user, of that kind; -1 where it is not so.
  NodeId only(NodeId id, Kind kind) const {
    return users(id).size() == 1 && is(*users(id).begin(), kind) ? *users(id).begin() : -1;
  }
  /// The two users of these kinds.
  bool are(NodeId id, Kind a, Kind b, NodeId* first, NodeId* second) const {
    if (users(id).size() != 2) return false;
    *first = *users(id).begin(), *second = *users(id).rbegin();
    if (!is(*first, a)) std::swap(*first, *second);
    return is(*first, a) && is(*second, b);
  }
  Ref uncast(Ref ref) const {
    while (node(ref).op->conversion == Conversion::value) ref = node(ref).inputs[0];
    return ref;
  }
  /// The mean of a sum; -1 where the sum becomes something else.
  NodeId mean_of(NodeId sum, const Shape& shape) const {
    const NodeId mean = only(sum, is_quotient);
    if (mean < 0 || !(argument(graph_.node(mean), 0) == Ref{sum, 0})) return -1;
    const auto& type = graph_.node(sum).types[0];
    const double count = static_cast<double>(shape.elements()) / static_cast<double>(type.shape.elements());
    return is_everywhere(graph_, argument(graph_.node(mean), 1), count) ? mean : -1;
  }

  void from_zero(NodeId distance) {
    const Ref image = argument(graph_.node(distance), 0), near = argument(graph_.node(distance), 1);
    const Shape& shape = graph_.type(image).shape;
    const Ref conv = uncast(image);
    const DType stored = notes_.precision() != f32 ? notes_.precision() : graph_.type(conv).dtype;
    if (!is_plain_convolution(node(conv)) || size_bytes(stored) != 2 || graph_.type(image).dtype != f32) return;
    Ref first = uncast(near);
    if (node(first).op->view != ViewForm::sliced || shape.elements() == graph_.type(near).shape.elements()) return;
    while (node(first).op->view == ViewForm::sliced) first = uncast(node(first).inputs[0]);
    NodeId sum, square, same, center, mean, squared_mean;
    if (!(first == conv) || !are(distance, is_sum_over_axes, is_square, &sum, &square)) return;
    if (!are(near.node, is_difference, is_sum_of_two, &same, &center) || same != distance) return;
    const NodeId sum_of_squares = only(square, is_sum_over_axes);
    if (sum_of_squares < 0 || (mean = mean_of(sum, shape)) < 0) return;
    if (!are(mean, is_sum_of_two, is_square, &same, &squared_mean)) return;
    const NodeId mean_square = mean_of(sum_of_squares, shape);
    const NodeId variance = mean_square < 0 ? -1 : only(mean_square, is_difference);
    if (same != center || variance < 0 || only(squared_mean, is_difference) != variance) return;
    if (!(argument(graph_.node(variance), 0) == Ref{mean_square, 0})) return;
    rewriter_.replace({distance, 0}, image);
    rewriter_.replace({center, 0}, {mean, 0});
    ++count_;
  }

  Graph& graph_;
  PassNotes& notes_;
  Rewriter rewriter_;
  std::map<Ref, std::set<NodeId>> users_;  // -1: a fetch
  int count_ = 0;
};

}  // namespace

void fold_norms(Graph& graph, PassNotes& notes) {
  for_each_graph(graph, [&](Graph& each) {
    if (has_convolution(each)) NormFolding(each, notes).run();
  });
  if (!notes.target().is_gpu()) return;
  for_each_graph(graph, [&](Graph& each) {
    if (has_convolution(each)) SumsFromZero(each, notes).run();
  });
}

}  // namespace paoding
