// SPDX-License-Identifier: Apache-2.0
#include "group/lower.h"

#include <algorithm>
#include <map>

#include "base/check.h"
#include "base/half.h"
#include "base/to_odd.h"
#include "graph/formula.h"
#include "ops/axes.h"
#include "ops/group_body.h"

namespace paoding {
namespace {

// Strides of a value over an iteration space to which it broadcasts, aligned at the last axis.
std::vector<std::int64_t> strides_over(const Shape& space, const Layout& layout) {
  std::vector<std::int64_t> strides(static_cast<std::size_t>(space.rank()), 0);
  const Shape& shape = layout.type.shape;
  const int offset = space.rank() - shape.rank();
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const bool is_broadcast = shape[axis] == 1 && space[axis + offset] != 1;
    if (!is_broadcast) {
      strides[static_cast<std::size_t>(axis + offset)] = layout.strides[static_cast<std::size_t>(axis)];
    }
  }
  return strides;
}

class Lowering {
 public:
  explicit Lowering(const Shape& space) : space_(space) { lowered_.group.extents.assign(space.begin(), space.end()); }

  // The value of input i of the node, which lies as `layout` says and is made by `source`.
  std::int32_t input(std::size_t i, const Layout& layout, Ref source, const Node& producer) {
    Group& group = lowered_.group;
    const DType compute = compute_dtype(layout.type.dtype);
    if (is_generated(producer)) return generated(producer);
    const auto [it, is_new] = load_of_.try_emplace(source, group.loads.size());
    if (is_new) {
      group.loads.push_back({layout.type.dtype, strides_over(space_, layout)});
      lowered_.load_inputs.push_back(i);
    }
    return make_input(&group.expr, static_cast<std::int32_t>(it->second), compute).id();
  }

  // A load that no node stands for.
  std::int32_t load(const Layout& layout) {
    Group& group = lowered_.group;
    group.loads.push_back({layout.type.dtype, strides_over(space_, layout)});
    return make_input(&group.expr, static_cast<std::int32_t>(group.loads.size()) - 1, compute_dtype(layout.type.dtype))
        .id();
  }

  // A constant as it would be if it were stored: f16 and bf16 round it.
  template <class T>
  std::int32_t constant(T number, DType dtype) {
    Expr* const expr = &lowered_.group.expr;
    if (dtype != DType::f16 && dtype != DType::bf16) return make_constant(expr, number, compute_dtype(dtype)).id();
    const auto narrow = dtype == DType::f16 ? float_to_f16 : float_to_bf16;
    const auto exact = static_cast<double>(number);
    const auto nearest = static_cast<float>(exact), odd = to_odd(exact);
    const double said = narrow(nearest) == narrow(odd) ? exact : odd;  // it is held in f32, and rounded but once
    return convert(make_constant(expr, said, DType::f32), dtype).id();
  }

  std::int32_t generated(const Node& node) {
    const Type& type = node.types[0];
    if (node.op->is_uniform) {
      const std::int64_t* whole = std::get_if<std::int64_t>(node.attrs.find("value"));
      return whole != nullptr ? constant(*whole, type.dtype) : constant(node.attrs.get_float("value"), type.dtype);
    }
    const std::vector<std::int64_t>& strides = node.attrs.get_ints("strides");
    Layout layout{type, {}};
    std::copy(strides.begin(), strides.end(), layout.strides.begin());
    GroupIndex index{type.dtype, node.attrs.get_int("start"), strides_over(space_, layout)};
    Group& group = lowered_.group;
    auto it = std::find(group.indices.begin(), group.indices.end(), index);
    if (it == group.indices.end()) it = group.indices.insert(it, std::move(index));
    const auto place = static_cast<std::int32_t>(it - group.indices.begin());
    return group.expr.add({.prim = Prim::index, .dtype = compute_dtype(type.dtype), .index = place});
  }

  // The value of a node that is neither an input nor a reduction, from its inputs' values.
  std::int32_t value(const Graph& graph, const Node& node, std::span<const std::int32_t> args) {
    if (is_generated(node)) return generated(node);
    if (node.op->view == ViewForm::broadcast) return args[0];
    std::vector<DType> dtypes;
    for (const Ref& ref : node.inputs) dtypes.push_back(graph.type(ref).dtype);
    const TracedFormula& traced = traced_formula(*node.op, dtypes, node.attrs);
    std::vector<std::int32_t> placed;
    for (const ExprNode& source : traced.expr.nodes()) {
      if (source.prim == Prim::input) {
        placed.push_back(args[static_cast<std::size_t>(source.index)]);
        continue;
      }
      ExprNode copy = source;
      for (std::int32_t& arg : copy.args) arg = arg < 0 ? arg : placed[static_cast<std::size_t>(arg)];
      placed.push_back(lowered_.group.expr.add(copy));
    }
    const std::int32_t root = placed[static_cast<std::size_t>(traced.root)];
    // A u8 is computed in i32 and wraps where it would have been stored: that is its meaning, not a rounding to save.
    if (node.types[0].dtype != DType::u8 || lowered_.group.expr[root].prim == Prim::input) return root;
    return convert(Scalar(&lowered_.group.expr, root), DType::u8).id();
  }

  void output(std::int32_t value, const Layout& layout) {
    GroupOutput output{};
    output.dtype = layout.type.dtype;
    output.value = value;
    output.strides = strides_over(space_, layout);
    lowered_.group.outputs.push_back(std::move(output));
  }

  void reduced_output(const Node& reduction, std::int32_t value, const Layout& layout) {
    GroupOutput output{};
    output.dtype = layout.type.dtype;
    output.value = value;
    output.combine = combine_of(reduction);
    output.strides.assign(static_cast<std::size_t>(space_.rank()), 0);
    const std::vector<int> axes = plain_axes(reduction.attrs.get_ints("axes"), space_.rank());
    const bool keepdims = reduction.attrs.get_bool("keepdims");
    int at = 0;  // axis of the result
    for (int axis = 0; axis < space_.rank(); ++axis) {
      if (std::binary_search(axes.begin(), axes.end(), axis)) {
        output.reduce_mask |= 1u << axis;
        at += keepdims;
      } else {
        output.strides[static_cast<std::size_t>(axis)] = layout.strides[static_cast<std::size_t>(at++)];
      }
    }
    if (output.reduce_mask == 0) output.combine = Combine::none;  // of a scalar
    lowered_.group.outputs.push_back(std::move(output));
  }

  // A reduction that the group itself reads.
  std::int32_t reduced(const Node& reduction, std::int32_t value, std::uint32_t row_axes) {
    Group& group = lowered_.group;
    const auto place = static_cast<std::int32_t>(group.reductions.size());
    group.reductions.push_back({value, combine_of(reduction), row_axes});
    const std::int32_t leaf =
        group.expr.add({.prim = Prim::reduced, .dtype = group.expr.dtype_of(value), .index = place});
    if (reduction.types[0].dtype != DType::u8) return leaf;
    return convert(Scalar(&group.expr, leaf), DType::u8).id();  // wraps, as in value()
  }

  // A value with one element per row.
  void row_output(std::int32_t value, const Layout& layout, std::uint32_t row_axes) {
    output(value, layout);
    lowered_.group.outputs.back().reduce_mask = row_axes;
  }

  LoweredGroup take() { return std::move(lowered_); }

 private:
  Shape space_;
  LoweredGroup lowered_;
  std::map<Ref, std::size_t> load_of_;
};

LoweredGroup lower_body(const Graph& graph, const Node& group, std::span<const Layout> inputs,
                        std::span<const Layout> outputs) {
  const Graph& body = *group.bodies[0];
  const GroupBody read = read_body(body, [](ErrorKind, const std::string& what) { PD_ASSERT(false, what.c_str()); });
  Lowering lowering(read.space);
  std::map<Ref, std::int32_t> value;
  for (std::size_t i = 0; i < body.inputs().size(); ++i) {
    const Ref source = group.inputs[i];
    value[{body.inputs()[i], 0}] = lowering.input(i, inputs[i], source, graph.node(source.node));
  }
  for (NodeId id = 0; id < body.size(); ++id) {
    const Node& node = body.node(id);
    if (node.op->is(OpRole::source)) continue;
    if (node.op->kind == OpKind::reduction) {
      if (!read.is_read[static_cast<std::size_t>(id)]) continue;
      value[{id, 0}] = lowering.reduced(node, value.at(node.inputs[0]), read.row_axes);
      continue;
    }
    std::vector<std::int32_t> args;
    for (const Ref& ref : node.inputs) args.push_back(value.at(ref));
    value[{id, 0}] = lowering.value(body, node, args);
  }
  for (std::size_t i = 0; i < body.fetches().size(); ++i) {
    const Ref ref = body.fetches()[i].ref;
    const Node& node = body.node(ref.node);
    if (read.is_per_row(body, ref)) {
      lowering.row_output(value.at(ref), outputs[i], read.row_axes);
    } else if (node.op->kind == OpKind::reduction) {
      lowering.reduced_output(node, value.at(node.inputs[0]), outputs[i]);
    } else {
      lowering.output(value.at(ref), outputs[i]);
    }
  }
  return lowering.take();
}

}  // namespace

bool is_groupable(const Node& node) {
  const OpDef& op = *node.op;
  return op.kind == OpKind::formula || op.kind == OpKind::reduction || op.view == ViewForm::broadcast ||
         op.is_fusion_group() || is_generated(node);
}

bool is_generated(const Node& node) { return node.op->is(OpRole::generated); }

Combine combine_of(const Node& reduction) {
  switch (reduction.op->reduces_with.value_or(Prim::constant)) {
    case Prim::add: return Combine::sum;
    case Prim::maximum: return Combine::max;
    case Prim::minimum: return Combine::min;
    case Prim::mul: return Combine::prod;
    default: PD_ASSERT(false, "a reduction that no group can compute"); return Combine::none;
  }
}

LoweredGroup lower(const Graph& graph, const Node& node, std::span<const Layout> inputs,
                   std::span<const Layout> outputs) {
  PD_ASSERT(is_groupable(node), "this op is not computed by a group");
  if (node.op->is_fusion_group()) return lower_body(graph, node, inputs, outputs);
  Lowering lowering(space_of(graph, node));
  std::vector<std::int32_t> args;
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    args.push_back(lowering.input(i, inputs[i], node.inputs[i], graph.node(node.inputs[i].node)));
  }
  if (node.op->kind == OpKind::reduction) {
    lowering.reduced_output(node, args[0], outputs[0]);
  } else {
    lowering.output(lowering.value(graph, node, args), outputs[0]);
  }
  return lowering.take();
}

Group lower_copy(const Layout& from, const Layout& to) {
  Lowering lowering(to.type.shape);
  lowering.output(lowering.load(from), to);
  return lowering.take().group;
}

Group lower_fill(double number, const Layout& to) {
  Lowering lowering(to.type.shape);
  lowering.output(lowering.constant(number, to.type.dtype), to);
  return lowering.take().group;
}

Group lower_generated(const Node& node, const Layout& to) {
  Lowering lowering(to.type.shape);
  lowering.output(lowering.generated(node), to);
  return lowering.take().group;
}

}  // namespace paoding
