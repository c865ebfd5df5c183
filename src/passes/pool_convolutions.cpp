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
#include "passes/formula_patterns.h"
#include "passes/has_node.h"
#include "passes/pass.h"
#include "passes/readers.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

class ConvolutionPooling {
 public:
  ConvolutionPooling(Graph& graph, PassNotes& notes)
      : graph_(graph), notes_(notes), rewriter_(graph), readers_(graph) {}

  void run() {
    for (const Graph::Fetch& fetch : graph_.fetches()) fetched_.push_back(fetch.ref);
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      const OpDef& op = *rewriter_.enter(id).op;
      if (op.indexing == Indexing::picks_in_windows) pool(id);
      if (!op.convolution || op.convolution->is_pooled) continue;
      if (op.convolution->result == Convolution::Result::weight_gradient) grad_weight(id);
      if (op.convolution->result == Convolution::Result::image_gradient) grad_input(id);
    }
    rewriter_.finish();
    if (pools_ > 0) notes_.add(fmt::format("{} convolutions pool their windows", pools_));
    if (gradients_ > 0) notes_.add(fmt::format("{} gradients are spread by what reads them", gradients_));
  }

 private:
  const Node& node(Ref ref) const { return graph_.node(ref.node); }
  const Convolution* convolution(Ref ref) const {
    const auto& found = node(ref).op->convolution;
    return found ? &*found : nullptr;
  }
  /// Whether `ref` is the value, or the value in f32.
  bool is_read_as(Ref ref, Ref value) const {
    const bool is_in_f32 = node(ref).op->conversion != Conversion::none && graph_.type(ref).dtype == f32;
    return ref == value || (is_in_f32 && node(ref).inputs[0] == value);
  }
  bool is_fetched(Ref ref) const { return std::find(fetched_.begin(), fetched_.end(), ref) != fetched_.end(); }
  std::span<const NodeId> users(Ref ref) const { return readers_.of(ref); }

  /// The node, if a kernel claims it.
  Values claimed(const char* op, std::initializer_list<Value> inputs, const Attrs& attrs) {
    const Values made = call(*find_op(op), std::vector<Value>(inputs), attrs);
    if (claimed_by(graph_, made[0].ref().node, notes_) == nullptr) return {};
    return made;
  }

  static bool is_side_by_side(const Attrs& attrs) {
    return attrs.get_ints("stride") == attrs.get_ints("kernel") && attrs.get_ints("padding") == Ints{0, 0, 0, 0} &&
           attrs.get_ints("dilation") == Ints{1, 1};
  }

  /// The gradient without its mask, which is the pool's result above 0; invalid where it is not masked so.
  Ref unmasked(Ref gradient, Ref y) const {
    if (!is_choice(node(gradient))) return {};
    const auto test = sign_test(graph_, argument(node(gradient), 0));
    if (!test || !is_read_as(test->value, y)) return {};
    const Ref kept = argument(node(gradient), test->is_above ? 1 : 2);
    const Ref other = argument(node(gradient), test->is_above ? 2 : 1);
    const bool fits = is_everywhere(graph_, other, 0) && graph_.type(kept).shape == graph_.type(y).shape;
    return fits ? kept : Ref();
  }

  // ---- forward ----

  void pool(NodeId id) {
    const Node& pool = graph_.node(id);
    const Ref image = pool.inputs[0], y{id, 0}, index{id, 1};
    if (convolution(image) == nullptr || !convolution(image)->is_biased() || !is_side_by_side(pool.attrs)) return;
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
      const bool fits = reader.op->indexing == Indexing::returns_to_picked && !(reader.inputs[0] == index) &&
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
    if (node(gradient).op->indexing != Indexing::returns_to_picked) return std::nullopt;
    Spread found{node(gradient).inputs[0], {}, node(gradient).inputs[1], {}};
    const Convolution* pooled = convolution(found.index);
    const bool is_image = pooled != nullptr && pooled->result == Convolution::Result::image;
    if (!is_image || !pooled->is_pooled) return std::nullopt;
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
    if (reader.op->is_wide()) attrs.set("wide", true);
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
      if (sum.op->reduces_with != Prim::add || plain_axes(sum.attrs.get_ints("axes"), 4) != std::vector<int>{0, 2, 3})
        continue;
      if (!(sum.types[0].dtype == dbias.dtype())) continue;
      rewriter_.replace({user, 0}, reshape(dbias, sum.types[0].shape).ref());
    }
  }

  Graph& graph_;
  PassNotes& notes_;
  Rewriter rewriter_;
  const Readers readers_;
  std::vector<Ref> fetched_;
  int pools_ = 0, gradients_ = 0;
};

}  // namespace

void pool_convolutions(Graph& graph, PassNotes& notes) {
  if (!notes.has_claims()) return;
  for_each_graph(graph, [&](Graph& each) {
    if (has_convolution(each)) ConvolutionPooling(each, notes).run();
  });
}

}  // namespace paoding
