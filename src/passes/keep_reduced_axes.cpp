// SPDX-License-Identifier: Apache-2.0
// keep_reduced_axes: values computed from a reduction of the last axis keep that axis as extent 1, so that they stay
// aligned with the reduced value and fuse_groups can make one kernel of both.
//
//   before:  %2 = max(%0, axes = [1])  : f32[8]             after:  %2 = max(%0, axes = [1], keepdims)  : f32[8,1]
//            %3 = sub(%1, %2)          : f32[8]                     %3 = reshape(%1)                    : f32[8,1]
//            %4 = reshape(%3)          : f32[8,1]                   %4 = sub(%3, %2)                    : f32[8,1]
//            %5 = mul(%0, %4)          : f32[8,100]                 %5 = mul(%0, %4)                    : f32[8,100]
//
// Reshapes that put in or leave out extents of 1 move no data.
#include <algorithm>
#include <array>

#include "ops/axes.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "passes/pass.h"
#include "passes/rewriter.h"

namespace paoding {
namespace {

constexpr int kMostLifted = 32;  // ops in a row that a reshape moves up through

// Whether `longer` is `shape` with more extents of 1 in it.
bool adds_extents_of_one(const Shape& shape, const Shape& longer) {
  if (longer.rank() <= shape.rank()) return false;
  int axis = 0;
  for (int at = 0; at < longer.rank(); ++at) {
    const int missing = shape.rank() - axis, left = longer.rank() - at;
    if (axis < shape.rank() && longer[at] == shape[axis] && (longer[at] != 1 || missing == left)) {
      ++axis;
    } else if (longer[at] != 1) {
      return false;
    }
  }
  return axis == shape.rank();
}

class AxisKeeper {
 public:
  explicit AxisKeeper(Graph& graph) : graph_(graph), rewriter_(graph) {
    has_formula_user_.resize(static_cast<std::size_t>(graph.size()), 0);
    for (NodeId id = 0; id < graph.size(); ++id) {
      const Node& node = graph.node(id);
      if (node.op->kind != OpKind::formula) continue;
      for (const Ref& ref : node.inputs) has_formula_user_[static_cast<std::size_t>(ref.node)] = 1;
    }
    meets_its_source_.resize(static_cast<std::size_t>(graph.size()), 0);
    for (NodeId id = graph.size() - 1; id >= 0; --id) {
      const Node& node = graph.node(id);
      const bool is_formula = node.op->kind == OpKind::formula;
      if (!is_formula && node.op->view != ViewForm::reshaped) continue;
      for (const Ref& ref : node.inputs) {
        const bool meets = is_formula ? meets_its_source_[static_cast<std::size_t>(id)] != 0
                                      : adds_extents_of_one(graph.type(ref).shape, node.types[0].shape);
        meets_its_source_[static_cast<std::size_t>(ref.node)] |= meets ? 1 : 0;
      }
    }
  }

  void run() {
    for (NodeId id = 0; id < rewriter_.first_new; ++id) {
      const Node& node = rewriter_.enter(id);
      if (node.types.size() != 1) continue;
      if (node.op->kind == OpKind::reduction) keep_reduction(id);
      if (node.op->kind == OpKind::formula) keep_formula(id);
      if (node.op->view == ViewForm::reshaped) keep_reshape(id);
    }
    rewriter_.finish();
  }

 private:
  const Shape& shape(Ref ref) const { return graph_.type(ref).shape; }
  Value value(Ref ref) { return graph_.value(ref); }

  // Makes `kept` stand for node `id`, whose users see it without the extents of 1.
  void put(NodeId id, const Value& kept) {
    const Value back = reshape(kept, graph_.node(id).types[0].shape);
    kept_[back.ref()] = kept.ref();
    rewriter_.replace({id, 0}, back.ref());
  }

  void keep_reduction(NodeId id) {
    const Node& node = graph_.node(id);
    const Value source = value(node.inputs[0]);
    const int rank = source.shape().rank();
    if (node.attrs.get_bool("keepdims")) return;
    const std::vector<int> axes = plain_axes(node.attrs.get_ints("axes"), rank);
    if (axes.empty() || axes.back() != rank - 1 || !has_formula_user_[static_cast<std::size_t>(id)]) return;
    // The rest is columns: no group reads their sums as its own, and an update of them is one of any parameter.
    const bool is_of_rows = axes.back() - axes.front() + 1 == static_cast<int>(axes.size());
    if (!is_of_rows && meets_its_source_[static_cast<std::size_t>(id)] == 0) return;
    const std::vector<std::int64_t> list(axes.begin(), axes.end());
    put(id, call(*node.op, std::array{source}, {{"axes", list}, {"keepdims", true}}).front());
  }

  // The op on inputs that are all seen as `longer`, as far as they are not scalars; invalid when they do not fit.
  Value lengthened(const Node& node, const Shape& longer, int depth) {
    const Shape& whole = node.types[0].shape;
    for (const Ref ref : node.inputs) {
      if (!(shape(ref) == whole) && shape(ref).rank() != 0) return {};
    }
    Values inputs;
    const std::vector<Ref> refs = node.inputs;
    const OpDef& op = *node.op;
    const Attrs attrs = node.attrs;
    for (const Ref ref : refs) {
      inputs.push_back(shape(ref).rank() == 0 && whole.rank() != 0 ? value(ref) : lift(ref, longer, depth));
    }
    const Value made = call(op, inputs, attrs).front();
    return made.shape() == longer ? made : Value();
  }

  // `ref` with the extents of 1 that make it `longer`: before the ops that only it needs.
  Value lift(Ref ref, const Shape& longer, int depth) {
    if (const auto it = kept_.find(ref); it != kept_.end() && shape(it->second) == longer) return value(it->second);
    const Node& node = graph_.node(ref.node);
    if (depth < kMostLifted && node.op->kind == OpKind::formula && ref.node < rewriter_.first_new &&
        rewriter_.uses(ref.node) == 1) {
      if (const Value made = lengthened(node, longer, depth + 1); made.valid()) return made;
    }
    return reshape(value(ref), longer);
  }

  void keep_formula(NodeId id) {
    const Node& node = graph_.node(id);
    for (const Ref ref : node.inputs) {
      const auto it = kept_.find(ref);
      if (it == kept_.end() || !(shape(ref) == node.types[0].shape)) continue;
      // Only values that are per row already are lengthened; the rest is seen through a reshape.
      if (const Value made = lengthened(node, shape(it->second), kMostLifted); made.valid()) put(id, made);
      return;
    }
  }

  void keep_reshape(NodeId id) {
    const Ref from = graph_.node(id).inputs[0];
    const Shape& target = shape({id, 0});
    if (adds_extents_of_one(target, shape(from))) {
      const OpKind kind = graph_.node(from.node).op->kind;
      const bool is_per_row = shape(from)[shape(from).rank() - 1] == 1;
      if (is_per_row && (kind == OpKind::formula || kind == OpKind::reduction)) {
        kept_[{id, 0}] = from;
      }
    } else if (adds_extents_of_one(shape(from), target) && shape(from).rank() > 0) {
      const Shape longer = target;
      rewriter_.replace({id, 0}, lift(from, longer, 0).ref());
    }
  }

  Graph& graph_;
  Rewriter rewriter_;
  std::vector<char> has_formula_user_;
  std::vector<char> meets_its_source_;  // is seen with more extents of 1 later, perhaps beside the reduced value
  std::map<Ref, Ref> kept_;             // a value, and the same with more extents of 1
};

}  // namespace

void keep_reduced_axes(Graph& graph, PassNotes&) {
  for_each_graph(graph, [](Graph& each) { AxisKeeper(each).run(); });
}

}  // namespace paoding
