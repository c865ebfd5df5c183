// SPDX-License-Identifier: Apache-2.0
// Views cost nothing where an operand can be addressed in place: they are other strides of it.
#include "ops/views.h"

#include <algorithm>

#include "base/check.h"
#include "plan/planner.h"

namespace paoding {
namespace {

std::size_t axis_slot(int axis) { return static_cast<std::size_t>(axis); }

Operand sliced(const Operand& operand, const SliceRange& range, const Shape& shape) {
  Operand part = operand;
  part.layout.type.shape = shape;
  const bool is_empty = shape.elements() == 0;  // it may start anywhere
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t stride = operand.layout.strides[axis_slot(axis)];
    if (!is_empty) part.offset += range.start[axis_slot(axis)] * stride * size_bytes(operand.layout.type.dtype);
    part.layout.strides[axis_slot(axis)] = shape[axis] > 1 ? range.step[axis_slot(axis)] * stride : stride;
  }
  return part;
}

Operand expanded(const Operand& operand, const Type& type) {
  Operand seen = operand;
  seen.layout = Layout{type, {}};
  const Shape &from = operand.layout.type.shape, &to = type.shape;
  for (int axis = 0; axis < from.rank(); ++axis) {
    const int place = axis + to.rank() - from.rank();
    if (from[axis] == to[place] && to[place] != 1) {
      seen.layout.strides[axis_slot(place)] = operand.layout.strides[axis_slot(axis)];
    }
  }
  return seen;
}

}  // namespace

// Reshapes without a copy as NumPy does: from the outermost axis on, as few old axes as new ones that hold as many
// elements; the old ones must be one run, the new ones divide it.
std::optional<Layout> reshape_layout(const Layout& layout, const Shape& shape) {
  const Shape& old = layout.type.shape;
  if (layout.is_dense() || shape.elements() == 0) return Layout::dense({layout.type.dtype, shape});
  Layout result{{layout.type.dtype, shape}, {}};
  std::vector<std::pair<std::int64_t, std::int64_t>> axes;  // extent and stride of those longer than 1
  for (int axis = 0; axis < old.rank(); ++axis) {
    if (old[axis] != 1) axes.emplace_back(old[axis], layout.strides[axis_slot(axis)]);
  }
  std::size_t next = 0;
  for (int first = 0; first < shape.rank();) {
    if (shape[first] == 1) {
      ++first;
      continue;
    }
    std::int64_t in_old = axes[next].first, in_new = shape[first];
    const std::size_t begin = next;
    int last = first;
    while (in_old != in_new) {
      if (in_old < in_new) {
        in_old *= axes[++next].first;
      } else {
        in_new *= shape[++last];
      }
    }
    for (std::size_t i = begin; i < next; ++i) {
      if (axes[i].second != axes[i + 1].second * axes[i + 1].first) return std::nullopt;
    }
    std::int64_t stride = axes[next++].second;
    for (int axis = last; axis >= first; --axis) {
      result.strides[axis_slot(axis)] = shape[axis] == 1 ? 0 : stride;
      stride *= shape[axis];
    }
    first = last + 1;
  }
  return result;
}

Layout transpose_layout(const Layout& layout, std::span<const int> permutation) {
  Layout result{{layout.type.dtype, {}}, {}};
  std::vector<std::int64_t> dims;
  for (const int axis : permutation) {
    result.strides[dims.size()] = layout.strides[axis_slot(axis)];
    dims.push_back(layout.type.shape[axis]);
  }
  result.type.shape = Shape{std::span<const std::int64_t>(dims)};
  return result;
}

bool is_same_place(const Operand& a, const Operand& b) {
  if (a.slot != b.slot || a.offset != b.offset || a.terms != b.terms || !(a.layout.type == b.layout.type)) return false;
  const Shape& shape = a.layout.type.shape;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (shape[axis] > 1 && a.layout.strides[axis_slot(axis)] != b.layout.strides[axis_slot(axis)]) return false;
  }
  return true;
}

Operand sub_range(const Operand& operand, std::span<const std::int64_t> start, const Shape& shape) {
  SliceRange range{{start.begin(), start.end()}, {}, std::vector<std::int64_t>(start.size(), 1)};
  return sliced(operand, range, shape);
}

void Planner::plan_view(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  const Ref self{id, 0};
  if (node.op->view == ViewForm::concatenated) return plan_concat(frame, id);
  if (node.op->view == ViewForm::padded) return plan_pad(frame, id);

  const Operand source = place(frame, node.inputs[0]);
  const auto as_seen = [&]() -> Operand {  // the source as this view sees it
    Operand seen = source;
    switch (node.op->view) {
      case ViewForm::sliced: return sliced(source, slice_range(node), node.types[0].shape);
      case ViewForm::broadcast: return expanded(source, node.types[0]);
      case ViewForm::transposed: seen.layout = transpose_layout(source.layout, permutation_of(node)); return seen;
      case ViewForm::reshaped:
        if (const auto layout = reshape_layout(source.layout, node.types[0].shape)) {
          seen.layout = *layout;
        } else {
          seen = dense_copy(frame, source, node, node.title());
          seen.layout = Layout::dense(node.types[0]);
        }
        return seen;
      default: PD_ASSERT(false, "a view whose form the planner does not know"); return seen;
    }
  };
  const Operand seen = as_seen();
  if (frame.destinations.contains(self)) {
    const Operand& wanted = frame.destinations[self];
    if (!is_same_place(seen, wanted)) copy(frame, seen, wanted, node, node.title());
    frame.places[self] = wanted;
  } else if (!options_.alias_views) {
    frame.places[self] = dense_copy(frame, seen, node, node.title());
  } else {
    frame.places[self] = seen;
  }
}

}  // namespace paoding
