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

#include "base/check.h"
#include "graph/number_everywhere.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

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
      if (graph_.node(id).op->name != "conv2d") continue;
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
      const std::string& op = node.op->name;
      const bool is_first = !node.inputs.empty() && node.inputs[0].node == at;
      if (!(node.types[0].shape == image) || !is_float(node.types[0].dtype)) break;
      if (op != "cast") {
        if (op != "add" && op != "mul" && (op != "sub" || !is_first)) break;
        if (!is_per_channel(node.inputs[is_first ? 1 : 0], image)) break;
      }
      chain.steps.push_back(at = *user);
      if (op == "mul") last_factor = chain.steps.size();
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
      const bool is_first = node.inputs[0].node == before;
      before = step;
      const std::string& op = node.op->name;
      if (op == "cast") continue;
      const Value other = cast(graph_.value(rewriter.now(node.inputs[is_first ? 1 : 0])), dtype);
      if (op == "mul") {
        factor = factor.valid() ? factor * other : other;
        if (shift.valid()) shift = shift * other;
      } else if (op == "add") {
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
      if (rewriter_.enter(id).op->name == "sub") from_zero(id);
    }
    rewriter_.finish();
    if (count_ > 0) notes_.add(fmt::format("statistics of {} convolutions are sums from 0", count_));
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  bool is(NodeId id, std::string_view op) const { return id >= 0 && graph_.node(id).op->name == op; }
  const std::set<NodeId>& users(NodeId id) const {
    static const std::set<NodeId> none;
    const auto found = users_.find({id, 0});
    return found == users_.end() ? none : found->second;
  }
  /// The only user, of that op; -1 where it is not so.
  NodeId only(NodeId id, std::string_view op) const {
    return users(id).size() == 1 && is(*users(id).begin(), op) ? *users(id).begin() : -1;
  }
  /// The two users of these ops.
  bool are(NodeId id, std::string_view a, std::string_view b, NodeId* first, NodeId* second) const {
    if (users(id).size() != 2) return false;
    *first = *users(id).begin(), *second = *users(id).rbegin();
    if (!is(*first, a)) std::swap(*first, *second);
    return is(*first, a) && is(*second, b);
  }
  Ref uncast(Ref ref) const {
    while (node(ref).op->name == "cast") ref = node(ref).inputs[0];
    return ref;
  }
  /// The mean of a sum; -1 where the sum becomes something else.
  NodeId mean_of(NodeId sum, const Shape& shape) const {
    const NodeId mean = only(sum, "div");
    if (mean < 0 || !(graph_.node(mean).inputs[0] == Ref{sum, 0})) return -1;
    const auto& type = graph_.node(sum).types[0];
    const double count = static_cast<double>(shape.elements()) / static_cast<double>(type.shape.elements());
    return is_everywhere(graph_, graph_.node(mean).inputs[1], count) ? mean : -1;
  }

  void from_zero(NodeId distance) {
    const Ref image = graph_.node(distance).inputs[0], near = graph_.node(distance).inputs[1];
    const Shape& shape = graph_.type(image).shape;
    const Ref conv = uncast(image);
    const DType stored = notes_.precision() != f32 ? notes_.precision() : graph_.type(conv).dtype;
    if (node(conv).op->name != "conv2d" || size_bytes(stored) != 2 || graph_.type(image).dtype != f32) return;
    Ref first = uncast(near);
    if (node(first).op->name != "slice" || shape.elements() == graph_.type(near).shape.elements()) return;
    while (node(first).op->name == "slice") first = uncast(node(first).inputs[0]);
    NodeId sum, square, same, center, mean, squared_mean;
    if (!(first == conv) || !are(distance, "sum", "square", &sum, &square)) return;
    if (!are(near.node, "sub", "add", &same, &center) || same != distance) return;
    const NodeId sum_of_squares = only(square, "sum");
    if (sum_of_squares < 0 || (mean = mean_of(sum, shape)) < 0 || !are(mean, "add", "square", &same, &squared_mean))
      return;
    const NodeId mean_square = mean_of(sum_of_squares, shape);
    const NodeId variance = mean_square < 0 ? -1 : only(mean_square, "sub");
    if (same != center || variance < 0 || only(squared_mean, "sub") != variance) return;
    if (!(graph_.node(variance).inputs[0] == Ref{mean_square, 0})) return;
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
  for_each_graph(graph, [&](Graph& each) { NormFolding(each, notes).run(); });
  if (!notes.target().is_gpu()) return;
  for_each_graph(graph, [&](Graph& each) { SumsFromZero(each, notes).run(); });
}

}  // namespace paoding
