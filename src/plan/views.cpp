// SPDX-License-Identifier: Apache-2.0
// Views cost nothing where an operand can be addressed in place. Concatenations go the other way round: their parts
// are written where they belong.
#include <algorithm>

#include "base/check.h"
#include "group/lower.h"
#include "ops/axes.h"
#include "plan/planner.h"

namespace paoding {

std::optional<Layout> reshape_layout(const Layout& layout, const Shape& shape) {
  if (layout.is_dense()) return Layout::dense({layout.type.dtype, shape});
  // Without extents of 1 both shapes must be the same; those extents may stand anywhere.
  Layout result{{layout.type.dtype, shape}, {}};
  int from = 0;
  const Shape& old = layout.type.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] == 1) continue;
    while (from < old.rank() && old[from] == 1) ++from;
    if (from == old.rank() || old[from] != shape[axis]) return std::nullopt;
    result.strides[static_cast<std::size_t>(axis)] = layout.strides[static_cast<std::size_t>(from++)];
  }
  return result;
}

Operand sub_range(const Operand& operand, std::span<const std::int64_t> start, const Shape& shape) {
  Operand part = operand;
  part.layout.type.shape = shape;
  for (std::size_t axis = 0; axis < start.size(); ++axis) {
    part.offset += start[axis] * operand.layout.strides[axis] * size_bytes(operand.layout.type.dtype);
  }
  return part;
}

namespace {

std::vector<std::int64_t> start_at(int rank, int axis, std::int64_t index) {
  std::vector<std::int64_t> start(static_cast<std::size_t>(rank), 0);
  start[static_cast<std::size_t>(axis)] = index;
  return start;
}

int concat_axis(const Node& node) {
  const std::int64_t axis = node.attrs.get_int("axis");
  return static_cast<int>(axis < 0 ? axis + node.types[0].shape.rank() : axis);
}

}  // namespace

// Nodes that write their result themselves can write it anywhere; views and what is fed cannot.
bool Planner::can_write_to(const Frame& frame, Ref ref) const {
  const Node& node = frame.graph.node(ref.node);
  if (is_generated(node)) return false;
  if (node.op->name == "concat" || node.op->name == "pad" || node.op->name == "branch") return true;
  return (is_groupable(node) && node.op->kind != OpKind::view) || node.op->kind == OpKind::kernel;
}

void Planner::assign_destinations(Frame& frame) {
  if (!options_.alias_views) return;
  for (NodeId id = frame.graph.size() - 1; id >= 0; --id) {
    const Node& node = frame.graph.node(id);
    if (node.op->name != "concat") continue;
    const Ref self{id, 0};
    if (!frame.destinations.contains(self)) frame.destinations[self] = new_operand(frame, self);
    const Operand whole = frame.destinations[self];
    const int rank = node.types[0].shape.rank();
    std::int64_t index = 0;
    for (const Ref& ref : node.inputs) {
      const Shape& shape = frame.graph.type(ref).shape;
      const std::vector<std::int64_t> start = start_at(rank, concat_axis(node), index);
      index += shape[concat_axis(node)];
      if (!can_write_to(frame, ref) || frame.destinations.contains(ref)) continue;
      frame.destinations[ref] = sub_range(whole, start, shape);
    }
  }
}

void Planner::plan_view(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  const Ref self{id, 0};
  const std::string& op = node.op->name;
  if (op == "concat" || op == "pad") {
    const Operand whole = result_place(frame, self);
    if (op == "pad") fill(frame, lower_fill(0, whole.layout), whole, node);
    std::int64_t index = 0;
    for (const Ref& ref : node.inputs) {
      const Shape& shape = frame.graph.type(ref).shape;
      const std::vector<std::int64_t> start =
          op == "pad" ? node.attrs.get_ints("before") : start_at(shape.rank(), concat_axis(node), index);
      if (op == "concat") index += shape[concat_axis(node)];
      const Operand target = sub_range(whole, start, shape);
      const Operand& source = place(frame, ref);
      // A part that was written in place is there already.
      const bool is_there = source.slot == target.slot && source.offset == target.offset &&
                            source.terms == target.terms && source.layout.strides == target.layout.strides;
      if (!is_there) copy(frame, source, target, node, node.title());
    }
    frame.places[self] = whole;
    return;
  }

  const Operand source = place(frame, node.inputs[0]);
  std::optional<Operand> seen;  // the source as this view sees it
  if (op == "slice") {
    seen = sub_range(source, node.attrs.get_ints("start"), node.types[0].shape);
  } else if (op == "reshape") {
    if (const auto layout = reshape_layout(source.layout, node.types[0].shape)) {
      seen = source;
      seen->layout = *layout;
    } else {
      seen = dense_copy(frame, source, node, node.title());
      seen->layout = Layout::dense(node.types[0]);
    }
  } else if (op == "expand") {
    seen = source;
    seen->layout = Layout{node.types[0], {}};
    const Shape &from = source.layout.type.shape, &to = node.types[0].shape;
    for (int axis = 0; axis < from.rank(); ++axis) {
      const int at = axis + to.rank() - from.rank();
      if (from[axis] == to[at] && to[at] != 1) {
        seen->layout.strides[static_cast<std::size_t>(at)] = source.layout.strides[static_cast<std::size_t>(axis)];
      }
    }
  }
  PD_ASSERT(seen.has_value(), "a view op that the planner does not know");
  if (frame.destinations.contains(self)) {
    copy(frame, *seen, frame.destinations[self], node, node.title());
    frame.places[self] = frame.destinations[self];
  } else if (!options_.alias_views) {
    frame.places[self] = dense_copy(frame, *seen, node, node.title());
  } else {
    frame.places[self] = *seen;
  }
}

}  // namespace paoding
