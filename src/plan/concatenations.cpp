// SPDX-License-Identifier: Apache-2.0
// Concatenations and pads go the other way round than views: their parts are written where they belong, also through
// views that only rename elements (the reshape in a stack), and padding is written beside them.
#include <algorithm>
#include <map>

#include "base/check.h"
#include "group/lower.h"
#include "ops/views.h"
#include "plan/planner.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::size_t kMostGaps = 4;  // launches to fill around a part, instead of filling everything and copying it

std::size_t at(int axis) { return static_cast<std::size_t>(axis); }

Ints start_at(int rank, int axis, std::int64_t index) {
  Ints start(at(rank), 0);
  start[at(axis)] = index;
  return start;
}

// The boxes around the part of a pad without interior: along each axis those before and after, within the part's
// range of the axes before it.
std::vector<Operand> gaps(const Operand& whole, const Padding& padding, const Shape& part) {
  std::vector<Operand> boxes;
  Ints start(padding.before.size(), 0);
  Shape shape = whole.layout.type.shape;
  for (int axis = 0; axis < part.rank(); ++axis) {
    const std::int64_t before = padding.before[at(axis)], behind = before + part[axis];
    for (const auto& [first, extent] : {std::pair(std::int64_t{0}, before), std::pair(behind, shape[axis] - behind)}) {
      start[at(axis)] = first;
      const Shape box = shape.with_dim(axis, extent);
      if (box.elements() > 0) boxes.push_back(sub_range(whole, start, box));
    }
    start[at(axis)] = before;
    shape = shape.with_dim(axis, part[axis]);
  }
  return boxes;
}

// Where the elements of a pad's input are in its result.
Operand inside(const Operand& whole, const Padding& padding, const Shape& shape) {
  Operand part = sub_range(whole, padding.before, shape);
  for (int axis = 0; axis < shape.rank(); ++axis) part.layout.strides[at(axis)] *= padding.interior[at(axis)] + 1;
  return part;
}

// `where` as the source of the view `node` sees it, if the view has every element once; nullopt otherwise.
std::optional<Operand> through(const Node& node, const Type& source, const Operand& where) {
  Operand operand = where;
  const ViewForm view = node.op->view;
  if (view == ViewForm::reshaped) {
    const auto layout = reshape_layout(where.layout, source.shape);
    if (!layout) return std::nullopt;
    operand.layout = *layout;
    return operand;
  }
  if (view == ViewForm::transposed) {
    operand.layout = transpose_layout(where.layout, inverse(permutation_of(node)));
    return operand;
  }
  const bool is_whole = view == ViewForm::sliced && source.shape == node.types[0].shape;
  if (!is_whole || source.shape.elements() == 0) return std::nullopt;
  const SliceRange range = slice_range(node);  // the whole, perhaps reversed
  for (int axis = 0; axis < source.shape.rank(); ++axis) {
    if (range.step[at(axis)] > 0 || source.shape[axis] <= 1) continue;
    const std::int64_t stride = where.layout.strides[at(axis)];
    operand.offset += (source.shape[axis] - 1) * stride * size_bytes(source.dtype);
    operand.layout.strides[at(axis)] = -stride;
  }
  return operand;
}

// How often each value is read, by nodes and by fetches: of one with several outputs, each for itself.
std::map<Ref, int> uses_of_values(const Graph& graph) {
  std::map<Ref, int> uses;
  for (NodeId id = 0; id < graph.size(); ++id) {
    for (const Ref& ref : graph.node(id).inputs) ++uses[ref];
  }
  for (const Graph::Fetch& fetch : graph.fetches()) ++uses[fetch.ref];
  return uses;
}

// Whether `ref` is a transposed view of a value that others read as well, products as a rule: they want it as it is
// made.
bool is_transposed_for_one(const Graph& graph, Ref ref, const std::map<Ref, int>& uses) {
  bool is_transposed = false, is_shared = false;
  for (const Node* node = &graph.node(ref.node); node->op->kind == OpKind::view && node->inputs.size() == 1;
       node = &graph.node(ref.node)) {
    is_transposed |= node->op->view == ViewForm::transposed;
    ref = node->inputs[0];
    is_shared |= uses.at(ref) > 1;
  }
  return is_transposed && is_shared;
}

// Whether it is an output of a scan that no carry's history holds.
bool is_only_stacked(const Node& scan, std::int32_t output) {
  const ScanView view(scan);
  if (output < view.carries) return false;
  const auto& fetches = view.body.fetches();
  const Ref value = fetches[static_cast<std::size_t>(output)].ref;
  if (view.body.node(value.node).op->is(OpRole::source)) return false;
  const auto is_carried = [&](const Graph::Fetch& next) { return next.ref == value; };
  return std::none_of(fetches.begin(), fetches.begin() + view.carries, is_carried);
}

}  // namespace

// Nodes that write their result themselves can write it anywhere; views and inputs cannot.
bool Planner::can_write_to(const Frame& frame, Ref ref) const {
  const Node& node = frame.graph.node(ref.node);
  if (is_generated(node)) return false;
  if (node.op->is(OpRole::concatenate) || node.op->bodies == BodyUse::one_chosen) return true;
  if (node.op->is_scan()) return is_only_stacked(node, ref.output);
  return (is_groupable(node) && node.op->kind != OpKind::view) || node.op->is_run_by_kernel();
}

void Planner::propose_destination(Frame& frame, Ref ref, const Operand& where) const {
  std::optional<Operand> place = where;
  while (place && !frame.destinations.contains(ref)) {
    if (can_write_to(frame, ref)) {
      frame.destinations.emplace(ref, *place);
      return;
    }
    const Node& node = frame.graph.node(ref.node);
    if (node.op->kind != OpKind::view || node.op->view == ViewForm::broadcast) return;
    ref = node.inputs[0];
    place = through(node, frame.graph.type(ref), *place);
  }
}

void Planner::assign_destinations(Frame& frame) {
  if (!options_.alias_views) return;
  const std::map<Ref, int> uses = uses_of_values(frame.graph);
  for (NodeId id = frame.graph.size() - 1; id >= 0; --id) {
    const Node& node = frame.graph.node(id);
    const Ref self{id, 0};
    if (node.op->view == ViewForm::padded) {
      const Padding padding = padding_of(node);
      const Type& part = frame.graph.type(node.inputs[0]);
      const auto place = frame.destinations.find(self);
      const Operand whole =
          place != frame.destinations.end() ? place->second : Operand{0, 0, {}, Layout::dense(node.types[0])};
      if (!padding.is_plain() || gaps(whole, padding, part.shape).size() > kMostGaps) continue;
      if (place == frame.destinations.end()) frame.destinations[self] = new_operand(frame, self);
      propose_destination(frame, node.inputs[0], inside(frame.destinations[self], padding, part.shape));
    }
    const auto is_transposed = [&](Ref ref) { return frame.graph.node(ref.node).op->view == ViewForm::transposed; };
    if (node.op->view == ViewForm::reshaped && is_transposed(node.inputs[0])) {
      // Heads put side by side again: written in the order that the reshape wants, the transposed value needs no copy.
      const Node& transposed = frame.graph.node(node.inputs[0].node);
      const Layout made = Layout::dense(frame.graph.type(transposed.inputs[0]));
      const Layout seen = transpose_layout(made, permutation_of(transposed));
      if (!reshape_layout(seen, node.types[0].shape)) propose_destination(frame, self, new_operand(frame, self));
    }
    if (node.op->view != ViewForm::concatenated) continue;
    if (!frame.destinations.contains(self)) frame.destinations[self] = new_operand(frame, self);
    const Operand whole = frame.destinations[self];
    const int axis = concat_axis(node);
    std::int64_t index = 0;
    for (const Ref& ref : node.inputs) {
      const Shape& shape = frame.graph.type(ref).shape;
      if (!is_transposed_for_one(frame.graph, ref, uses)) {
        propose_destination(frame, ref, sub_range(whole, start_at(shape.rank(), axis, index), shape));
      }
      index += shape[axis];
    }
  }
}

void Planner::plan_concat(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  const Operand whole = result_place(frame, {id, 0});
  const int axis = concat_axis(node);
  std::int64_t index = 0;
  for (const Ref& ref : node.inputs) {
    const Shape& shape = frame.graph.type(ref).shape;
    const Operand target = sub_range(whole, start_at(shape.rank(), axis, index), shape);
    index += shape[axis];
    if (shape.elements() == 0) continue;
    if (const Node& source = frame.graph.node(ref.node); is_generated(source) && !frame.places.contains(ref)) {
      fill(frame, lower_generated(source, target.layout), target, node);
    } else if (!is_same_place(place(frame, ref), target)) {  // else it was written there
      copy(frame, place(frame, ref), target, node, node.title());
    }
  }
  frame.places[{id, 0}] = whole;
}

void Planner::plan_pad(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  const Padding padding = padding_of(node);
  const Operand whole = result_place(frame, {id, 0});
  const Shape& shape = frame.graph.type(node.inputs[0]).shape;
  const Operand target = inside(whole, padding, shape);
  const Operand source = place(frame, node.inputs[0]);
  const bool is_there = is_same_place(source, target);
  std::vector<Operand> filled{whole};
  if (padding.is_plain()) {
    std::vector<Operand> beside = gaps(whole, padding, shape);
    if (is_there || beside.size() <= kMostGaps) filled = std::move(beside);
  }
  for (const Operand& box : filled) fill(frame, lower_fill(padding.value, box.layout), box, node);
  if (!is_there) copy(frame, source, target, node, node.title());
  frame.places[{id, 0}] = whole;
}

}  // namespace paoding
