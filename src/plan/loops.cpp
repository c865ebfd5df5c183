// SPDX-License-Identifier: Apache-2.0
// A scan becomes a loop step whose operands move with the turn. Nothing is copied between steps: a carry that is also
// stacked lives in its history, one entry per step and one for the start; any other alternates between two entries.
#include <algorithm>

#include "base/check.h"
#include "group/lower.h"
#include "plan/planner.h"

namespace paoding {
namespace {

// Entry `index` of a slot that holds many values of one type.
Operand entry(int slot, const Type& type, std::int64_t index) {
  return {slot, index * size_bytes(type), {}, Layout::dense(type)};
}

}  // namespace

void Planner::plan_scan(Frame& outer, NodeId id) {
  const Node& node = outer.graph.node(id);
  const ScanView view(node);
  const std::int64_t length = view.length;
  const int loop = plan_.loops++;
  std::vector<Step> body_steps;
  Frame frame{view.body, {}, {}, &body_steps, &node};
  const auto fetch_ref = [&](int i) { return view.body.fetches()[static_cast<std::size_t>(i)].ref; };
  const auto input_ref = [&](int i) { return Ref{view.body.inputs()[static_cast<std::size_t>(i)], 0}; };
  const auto output_type = [&](int i) { return node.types[static_cast<std::size_t>(i)]; };
  const auto outer_place = [&](int i) { return place(outer, node.inputs[static_cast<std::size_t>(i)]); };

  std::map<int, Operand> targets;  // per fetch of the body: where the step has to leave it
  std::map<int, Operand> results;  // per output of the node: where it is after the loop
  const int fetches = view.carries + view.outputs;
  std::map<Ref, std::vector<int>> stacked_from;  // by the body's value: the outputs that stack it
  for (int k = view.carries; k < fetches; ++k) stacked_from[fetch_ref(k)].push_back(k);

  for (int i = 0; i < view.carries; ++i) {
    const Type& type = output_type(i);
    const std::int64_t bytes = size_bytes(type);
    std::vector<int> after, before;  // outputs that stack the carry after, or before, each step
    if (options_.alias_views) {
      for (int k : stacked_from[fetch_ref(i)]) {
        if (!targets.contains(k)) after.push_back(k);
      }
      before = stacked_from[input_ref(i)];
    }
    const bool has_history = !after.empty() || !before.empty();
    if (bytes > 0 && length + 1 > kMaxPlanBytes / bytes) {
      fail(ErrorKind::unsupported, "scan: {} steps of carry {}, {}, are more than 2^47 bytes{}", length, i,
           to_string(type), node.scope.empty() ? "" : fmt::format(" (in {})", node.scope.str()));
    }
    const int slot = new_slot(SlotKind::arena, node.title() + (has_history ? " history" : " carry"),
                              bytes * (has_history ? length + 1 : 2));
    // A history is in order of time, so a reverse scan fills it from its end.
    const std::int64_t start = has_history && view.is_reverse ? length : 0;
    const std::int64_t direction = view.is_reverse ? -bytes : bytes;
    Operand now = entry(slot, type, start), next = now;
    if (has_history) {
      now.terms.push_back({loop, direction, 0, 0});
      next.offset += direction;
      next.terms.push_back({loop, direction, 0, 0});
    } else {
      now.terms.push_back({loop, bytes, 0, 2});
      next.terms.push_back({loop, bytes, 1, 2});
    }
    const Node& source = outer.graph.node(node.inputs[static_cast<std::size_t>(i)].node);
    const Operand first = entry(slot, type, start);
    if (is_generated(source)) {
      fill(outer, lower_generated(source, first.layout), first, node);
    } else {
      copy(outer, outer_place(i), first, node, "scan_start");
    }
    frame.places[input_ref(i)] = now;
    targets[i] = next;
    const std::int64_t last = has_history ? (view.is_reverse ? 0 : length) : length % 2;
    results[i] = entry(slot, type, last);
    for (int k : after) {
      results[k] = entry(slot, type, view.is_reverse ? 0 : 1);
      results[k].layout = Layout::dense(output_type(k));
      targets[k] = next;
    }
    for (int k : before) {
      results[k] = entry(slot, type, view.is_reverse ? 1 : 0);
      results[k].layout = Layout::dense(output_type(k));
      targets[k] = now;
    }
  }

  for (int i = view.first_sequence(); i < view.first_constant(); ++i) {
    const Operand whole = outer_place(i);
    const std::int64_t stride = whole.layout.strides[0] * size_bytes(whole.layout.type.dtype);
    Operand element = whole;
    element.layout.type.shape = whole.layout.type.shape.with_removed(0);
    std::copy(whole.layout.strides.begin() + 1, whole.layout.strides.end(), element.layout.strides.begin());
    if (view.is_reverse) element.offset += (length - 1) * stride;
    element.terms.push_back({loop, view.is_reverse ? -stride : stride, 0, 0});
    frame.places[input_ref(i)] = options_.alias_views ? element : dense_copy(frame, element, node, "scan_element");
  }
  for (int i = view.first_constant(); i < static_cast<int>(node.inputs.size()); ++i) {
    frame.places[input_ref(i)] = outer_place(i);
  }

  for (int k = view.carries; k < fetches; ++k) {
    if (targets.contains(k)) continue;
    const Ref outer_ref{id, k};
    const Operand stacked = result_place(outer, outer_ref);
    const std::int64_t stride = stacked.layout.strides[0] * size_bytes(stacked.layout.type.dtype);
    Operand element = stacked;
    element.layout.type.shape = stacked.layout.type.shape.with_removed(0);
    std::copy(stacked.layout.strides.begin() + 1, stacked.layout.strides.end(), element.layout.strides.begin());
    if (view.is_reverse) element.offset += (length - 1) * stride;
    element.terms.push_back({loop, view.is_reverse ? -stride : stride, 0, 0});
    targets[k] = element;
    results[k] = stacked;
  }

  if (options_.alias_views) {
    for (int k = 0; k < fetches; ++k) {
      propose_destination(frame, fetch_ref(k), targets[k]);
    }
  }
  plan_nodes(frame);
  for (int k = 0; k < fetches; ++k) {
    const Operand& made = place(frame, fetch_ref(k));
    if (!is_same_place(made, targets[k]))
      copy(frame, made, targets[k], node, k < view.carries ? "scan_carry" : "scan_stack");
  }

  Step step;
  step.kind = Step::Kind::loop;
  step.label = label_of(outer, id);
  step.loop = loop;
  step.length = length;
  step.is_reverse = view.is_reverse;
  step.body = std::move(body_steps);
  if (!step.body.empty()) outer.steps->push_back(std::move(step));
  for (auto& [k, operand] : results) {
    const Ref ref{id, k};
    if (outer.destinations.contains(ref) && !is_same_place(operand, outer.destinations[ref])) {
      copy(outer, operand, outer.destinations[ref], node, "scan_result");
      outer.places[ref] = outer.destinations[ref];
    } else {
      outer.places[ref] = operand;
    }
  }
}

}  // namespace paoding
