// SPDX-License-Identifier: Apache-2.0
// pool_convolutions: a max pool of windows side by side becomes a part of the convolution in front, where a kernel does
// both, and its gradient a part of the gradient's readers.
//
//   r = conv2d_bias(x, w, bias) {activation = "relu"};  y, i = max_pool2d(r)
//   d = select(less_equal(y, 0), 0, dy);  dr = max_pool2d_grad(d, i);  dbias = sum(d, axes = [0, 2, 3])
//   dw = conv2d_grad_weight(x, dr);  dx = conv2d_grad_input(dr, w)
// becomes
//   y, j = conv2d_pool(x, w, bias) {activation = "relu"}
//   dw, dbias = conv2d_pool_grad_weight(x, dy, j);  dx = conv2d_pool_grad_input(dy, j, w)
//
// where j names no window where the relu gives 0, so that nobody has to ask for that. In mixed precision y is compared,
// and d summed up, in f32, and dw is f32 (conv2d_grad_weight_wide), which conv2d_pool_grad_weight is told.
#include <fmt/format.h>

#include <algorithm>
#include <map>
#include <vector>

#include "graph/number_everywhere.h"
#include "ops/axes.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/claimed_by.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

class ConvolutionPooling {
 public:
  ConvolutionPooling(Graph& graph, PassNotes& notes) : graph_(graph), notes_(notes), rewriter_(graph) {}

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      for (const Ref& ref : graph_.node(id).inputs) users_[ref].push_back(id);
    }
    for (const Graph::Fetch& fetch : graph_.fetches()) fetched_.push_back(fetch.ref);
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      const std::string& op = rewriter_.enter(id).op->name;
      if (op == "max_pool2d") pool(id);
      if (op == "conv2d_grad_weight" || op == "conv2d_grad_weight_wide") grad_weight(id);
      if (op == "conv2d_grad_input") grad_input(id);
    }
    rewriter_.finish();
    if (pools_ > 0) notes_.add(fmt::format("{} convolutions pool their windows", pools_));
    if (gradients_ > 0) notes_.add(fmt::format("{} gradients are spread by what reads them", gradients_));
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  bool is(Ref ref, std::string_view op) const { return node(ref).op->name == op; }
  /// Whether `ref` is the value, or the value in f32.
  bool is_read_as(Ref ref, Ref value) const {
    return ref == value ||
           ((is(ref, "cast") || is(ref, "store_as")) && graph_.type(ref).dtype == f32 && node(ref).inputs[0] == value);
  }
  bool is_fetched(Ref ref) const { return std::find(fetched_.begin(), fetched_.end(), ref) != fetched_.end(); }
  std::span<const NodeId> users(Ref ref) const {
    const auto found = users_.find(ref);
    return found == users_.end() ? std::span<const NodeId>() : std::span<const NodeId>(found->second);
  }

  /// The node, if a kernel claims it.
  Values claimed(const char* op, std::initializer_list<Value> inputs, const Attrs& attrs) {
    const Values made = call(*find_op(op), std::vector<Value>(inputs), attrs);
    if (claimed_by(graph_, graph_.node(made[0].ref().node), notes_) == nullptr) return {};
    return made;
  }

  static bool is_side_by_side(const Attrs& attrs) {
    return attrs.get_ints("stride") == attrs.get_ints("kernel") && attrs.get_ints("padding") == Ints{0, 0, 0, 0} &&
           attrs.get_ints("dilation") == Ints{1, 1};
  }

  /// The gradient without its mask, which is the pool's result above 0; invalid where it is not masked so.
  Ref unmasked(Ref gradient, Ref y) const {
    if (!is(gradient, "select")) return {};
    const auto& inputs = node(gradient).inputs;
    const Ref condition = inputs[0];
    const auto compares = [&](std::size_t value, std::size_t zero) {
      return is_read_as(node(condition).inputs[value], y) && is_everywhere(graph_, node(condition).inputs[zero], 0);
    };
    std::size_t kept = 0;
    if (is(condition, "less_equal") && compares(0, 1)) kept = 2;
    if ((is(condition, "greater") && compares(0, 1)) || (is(condition, "less") && compares(1, 0))) kept = 1;
    const bool fits = kept != 0 && is_everywhere(graph_, inputs[3 - kept], 0) &&
                      graph_.type(inputs[kept]).shape == graph_.type(y).shape;
    return fits ? inputs[kept] : Ref();
  }

  // ---- forward ----

  void pool(NodeId id) {
    const Node& pool = graph_.node(id);
    const Ref image = pool.inputs[0], y{id, 0}, index{id, 1};
    if (!is(image, "conv2d_bias") || !is_side_by_side(pool.attrs)) return;
    if (rewriter_.uses(image.node) > 1) {
      return notes_.add(fmt::format("a pool stays after {}: what it pools is needed elsewhere", node(image).label()));
    }
    const Node conv = node(image);
    const std::string& activation = std::get<std::string>(*conv.attrs.find("activation"));
    if (activation == "relu6") return notes_.add(fmt::format("a pool stays after {}: it has a limit", conv.label()));
    const bool has_relu = activation == "relu";
    // Readers of the index have to want 0 where the relu gives 0.
    for (const NodeId user : users(index)) {
      const Node& reader = graph_.node(user);
      const bool fits = reader.op->name == "max_pool2d_grad" && !(reader.inputs[0] == index) &&
                        (!has_relu || unmasked(reader.inputs[0], y).valid());
      if (fits && !is_fetched(index)) continue;
      return notes_.add(fmt::format("a pool stays after {}: its index is needed by {}", conv.label(), reader.label()));
    }
    if (is_fetched(index)) return notes_.add(fmt::format("a pool stays after {}: its index is fetched", conv.label()));
    Attrs attrs = conv.attrs;
    attrs.set("pool", pool.attrs.get_ints("kernel"));
    const Values made =
        claimed("conv2d_pool",
                {graph_.value(conv.inputs[0]), graph_.value(conv.inputs[1]), graph_.value(conv.inputs[2])}, attrs);
    if (made.empty()) return;
    ++pools_;
    rewriter_.replace(y, made[0].ref()), rewriter_.replace(index, made[1].ref());
  }

  // ---- backward ----

  /// A pool's gradient, where the pool has become a part of its convolution: of whom, and where.
  struct Spread {
    Ref masked, dy, index;
    Attrs attrs;
  };
  std::optional<Spread> spread(Ref gradient) const {
    if (!is(gradient, "max_pool2d_grad")) return std::nullopt;
    Spread found{node(gradient).inputs[0], {}, node(gradient).inputs[1], {}};
    if (!is(found.index, "conv2d_pool")) return std::nullopt;
    const Node& conv = node(found.index);
    const bool has_relu = std::get<std::string>(*conv.attrs.find("activation")) == "relu";
    found.dy = has_relu ? unmasked(found.masked, {found.index.node, 0}) : found.masked;
    if (!found.dy.valid()) return std::nullopt;
    found.attrs.set("pool", conv.attrs.get_ints("pool"));
    return found;
  }
  static Attrs together(Attrs attrs, const Attrs& others) {
    for (const auto& [name, value] : others.entries()) attrs.set(name, value);
    return attrs;
  }

  void grad_input(NodeId id) {
    const Node reader = graph_.node(id);
    const auto found = spread(reader.inputs[0]);
    if (!found) return;
    const Values made = claimed("conv2d_pool_grad_input",
                                {graph_.value(found->dy), graph_.value(found->index), graph_.value(reader.inputs[1])},
                                together(found->attrs, reader.attrs));
    if (made.empty()) return;
    ++gradients_;
    rewriter_.replace({id, 0}, made[0].ref());
  }

  void grad_weight(NodeId id) {
    const Node reader = graph_.node(id);
    const auto found = spread(reader.inputs[1]);
    if (!found) return;
    Attrs attrs = together(found->attrs, reader.attrs);
    if (reader.op->name == "conv2d_grad_weight_wide") attrs.set("wide", true);
    const Values made =
        claimed("conv2d_pool_grad_weight",
                {graph_.value(reader.inputs[0]), graph_.value(found->dy), graph_.value(found->index)}, attrs);
    if (made.empty()) return;
    ++gradients_;
    rewriter_.replace({id, 0}, made[0].ref());
    take_sums(found->masked, made[1]);
    for (const NodeId user : users(found->masked)) {
      const Ref read{user, 0};
      if (!(read == found->masked) && is_read_as(read, found->masked)) take_sums(read, made[1]);
    }
  }

  /// The gradient of the bias is there where the masked gradient is summed up.
  void take_sums(Ref masked, const Value& dbias) {
    for (const NodeId user : users(masked)) {
      const Node& sum = graph_.node(user);
      if (sum.op->name != "sum" || plain_axes(sum.attrs.get_ints("axes"), 4) != std::vector<int>{0, 2, 3}) continue;
      if (!(sum.types[0].dtype == dbias.dtype())) continue;
      rewriter_.replace({user, 0}, reshape(dbias, sum.types[0].shape).ref());
    }
  }

  Graph& graph_;
  PassNotes& notes_;
  Rewriter rewriter_;
  std::map<Ref, std::vector<NodeId>> users_;
  std::vector<Ref> fetched_;
  int pools_ = 0, gradients_ = 0;
};

}  // namespace

void pool_convolutions(Graph& graph, PassNotes& notes) {
  if (!notes.has_claims()) return;
  for_each_graph(graph, [&](Graph& each) { ConvolutionPooling(each, notes).run(); });
}

}  // namespace paoding
