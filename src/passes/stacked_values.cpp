// SPDX-License-Identifier: Apache-2.0
#include "passes/stacked_values.h"

#include <algorithm>
#include <numeric>

#include "graph/equal_attrs.h"
#include "graph/lift.h"
#include "ops/views.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

// Slices of one value that are equal but for where they begin along one axis.
struct Slices {
  Ref of;
  SliceRange range;  // of the first
  int axis;
  std::int64_t stride;  // from one to the next
  std::int64_t extent;  // of each along the axis
};

bool are_all(const Graph& graph, const std::vector<Ref>& values, ViewForm form) {
  return std::ranges::all_of(values, [&](Ref ref) { return graph.node(ref.node).op->view == form; });
}

std::optional<Slices> slices_of_one(const Graph& graph, const std::vector<Ref>& values) {
  if (values.size() < 2 || !are_all(graph, values, ViewForm::sliced)) return std::nullopt;
  const auto node = [&](std::size_t t) -> const Node& { return graph.node(values[t].node); };
  const SliceRange first = slice_range(node(0)), second = slice_range(node(1));
  std::optional<int> axis;
  for (std::size_t a = 0; a < first.start.size(); ++a) {
    if (first.start[a] == second.start[a]) continue;
    if (axis) return std::nullopt;
    axis = static_cast<int>(a);
  }
  if (!axis) return std::nullopt;
  const auto at = static_cast<std::size_t>(*axis);
  const Slices found{node(0).inputs[0], first, *axis, second.start[at] - first.start[at], first.extent(*axis)};
  const std::int64_t step = first.step[at];
  const bool is_tiled = found.extent == 1 || (step == 1 && std::abs(found.stride) == found.extent);
  if (!is_tiled || graph.type(values[0]).shape.elements() == 0) return std::nullopt;
  for (std::size_t t = 0; t < values.size(); ++t) {
    SliceRange expected = first;
    set_axis(&expected, *axis, first.start[at] + static_cast<std::int64_t>(t) * found.stride, found.extent, step);
    SliceRange range = slice_range(node(t));
    set_axis(&range, *axis, range.start[at], range.extent(*axis), step);  // an end may be written in several ways
    if (!(node(t).inputs[0] == found.of) || !(range == expected)) return std::nullopt;
  }
  return found;
}

// The same view of different values. Slices that lie at different places are none: slices_of_one() knows them.
bool are_equal_views(const Graph& graph, const std::vector<Ref>& values) {
  const Node& first = graph.node(values[0].node);
  if (first.op->view == ViewForm::none || first.inputs.size() != 1) return false;
  return std::ranges::all_of(values, [&](Ref ref) {
    const Node& node = graph.node(ref.node);
    return node.op == first.op && equal_attrs(node.attrs, first.attrs) &&
           graph.type(node.inputs[0]) == graph.type(first.inputs[0]);
  });
}

std::vector<Ref> inputs_of(const Graph& graph, const std::vector<Ref>& values) {
  std::vector<Ref> inputs;
  for (const Ref& ref : values) inputs.push_back(graph.node(ref.node).inputs[0]);
  return inputs;
}

// The axis `from` becomes the outermost.
Value moved_to_front(const Value& value, int from) {
  std::vector<int> permutation(static_cast<std::size_t>(value.shape().rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::rotate(permutation.begin(), permutation.begin() + from, permutation.begin() + from + 1);
  return from == 0 ? value : transpose(value, permutation);
}

Value stacked(Graph& graph, const Slices& slices, std::int64_t count, const Shape& shape) {
  SliceRange range = slices.range;
  const auto at = static_cast<std::size_t>(slices.axis);
  const Value source = graph.value(slices.of);
  if (slices.extent == 1) {
    set_axis(&range, slices.axis, range.start[at], count, slices.stride);
    return reshape(moved_to_front(slice(source, range), slices.axis), shape.with_inserted(0, count));
  }
  const bool is_backwards = slices.stride < 0;
  const std::int64_t start = is_backwards ? range.start[at] + (count - 1) * slices.stride : range.start[at];
  set_axis(&range, slices.axis, start, count * slices.extent, 1);
  const Value together = slice(source, range);
  Shape parts = together.shape()
                    .with_removed(slices.axis)
                    .with_inserted(slices.axis, slices.extent)
                    .with_inserted(slices.axis, count);
  const Value forwards = moved_to_front(reshape(together, parts), slices.axis);
  return is_backwards ? flip(forwards, std::array<std::int64_t, 1>{0}) : forwards;
}

bool is_from_outside(const Graph& graph, Ref ref) {
  const Node* node = &graph.node(ref.node);
  while (node->op->view != ViewForm::none && node->inputs.size() == 1) node = &graph.node(node->inputs[0].node);
  return node->op->is(OpRole::source);
}

}  // namespace

int direction_of(const Graph& graph, const std::vector<Ref>& values) {
  if (const auto slices = slices_of_one(graph, values)) return slices->stride < 0 ? -1 : 1;
  return are_equal_views(graph, values) ? direction_of(graph, inputs_of(graph, values)) : 0;
}

std::optional<Value> as_view_of_one(Graph& graph, const std::vector<Ref>& values) {
  if (const auto slices = slices_of_one(graph, values)) {
    return stacked(graph, *slices, static_cast<std::int64_t>(values.size()), graph.type(values[0]).shape);
  }
  if (!are_equal_views(graph, values)) return std::nullopt;
  const auto inner = as_view_of_one(graph, inputs_of(graph, values));
  if (!inner) return std::nullopt;
  std::string why_not;
  const Node& node = graph.node(values[0].node);
  const auto lifted = lift_node(graph, node, {{*inner, true}}, static_cast<std::int64_t>(values.size()), &why_not);
  if (!lifted || !(*lifted)[0].has_time) return std::nullopt;
  return (*lifted)[0].value;
}

std::optional<Value> stack_turns(Graph& graph, const std::vector<Ref>& values) {
  if (const auto view = as_view_of_one(graph, values)) return view;
  Values parts;
  for (const Ref& ref : values) {
    if (is_from_outside(graph, ref)) return std::nullopt;
    parts.push_back(graph.value(ref));
  }
  return stack(parts, 0);
}

Value side_by_side(const Value& stacked, int axis) {
  const Shape& shape = stacked.shape();
  std::vector<int> permutation(static_cast<std::size_t>(shape.rank()));
  std::iota(permutation.begin(), permutation.end(), 0);
  std::rotate(permutation.begin(), permutation.begin() + 1, permutation.begin() + axis + 1);
  const Shape turn = shape.with_removed(0);
  return reshape(axis == 0 ? stacked : transpose(stacked, permutation),
                 turn.with_removed(axis).with_inserted(axis, shape[0] * turn[axis]));
}

}  // namespace paoding
