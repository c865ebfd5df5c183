// SPDX-License-Identifier: Apache-2.0
// A scan becomes a loop step whose operands move with the turn. Nothing is copied between steps: a carry that is also
// stacked lives in its history, one entry per step and one for the start; any other alternates between two entries. A
// carry that a step concatenates with other values lives in that concatenation: a step writes its part of the next
// entry.
#include <algorithm>
#include <set>

#include "base/check.h"
#include "base/one_line.h"
#include "group/lower.h"
#include "ops/views.h"
#include "plan/planner.h"

namespace paoding {
namespace {

// A slot of many entries of one type, one per turn, and the part of an entry where a value of the body lives.
struct Home {
  int slot = -1;
  Type entry;
  bool has_history = false;
  std::vector<std::int64_t> start;  // of the part
  Shape shape;

  Operand at(std::int64_t index) const {
    return sub_range({slot, index * size_bytes(entry), {}, Layout::dense(entry)}, start, shape);
  }
  /// The values of all steps, the first of which is in entry `index`.
  Operand stacked(std::int64_t index, const Type& type) const {
    const Operand first = at(index);
    Operand all{slot, first.offset, {}, Layout{type, {}}};
    all.layout.strides[0] = entry.shape.elements();
    std::copy(first.layout.strides.begin(), first.layout.strides.end() - 1, all.layout.strides.begin() + 1);
    return all;
  }
};

// Concatenations of the body that carries live in, and the starts of their parts.
struct CarriedConcatenation {
  Ref ref;
  std::vector<std::pair<Ref, std::vector<std::int64_t>>> parts;
  bool is_stacked = false;  // or one of its parts is
};

bool is_stacked(const ScanView& view, Ref ref) {
  for (int k = view.carries; k < view.carries + view.outputs; ++k) {
    if (view.body.fetches()[static_cast<std::size_t>(k)].ref == ref) return true;
  }
  return false;
}

// The values of a carry: in front of the step, and after it.
std::pair<Ref, Ref> carried(const ScanView& view, int i) {
  const auto at = static_cast<std::size_t>(i);
  return {{view.body.inputs()[at], 0}, view.body.fetches()[at].ref};
}

// The ones that may lie anywhere, and whose history, if there has to be one, is at most twice the stacked part of it.
std::vector<CarriedConcatenation> concatenations_of_carries(const ScanView& view) {
  std::set<NodeId> is_placed;  // by another concatenation, a pad or a carry; a carry once it lives in one
  for (NodeId id = 0; id < view.body.size(); ++id) {
    const Node& node = view.body.node(id);
    if (!node.op->is(OpRole::concatenate)) continue;
    for (const Ref& ref : node.inputs) {
      if (view.body.node(ref.node).op->view == ViewForm::concatenated) is_placed.insert(ref.node);
    }
  }
  for (int i = 0; i < view.carries; ++i) is_placed.insert(carried(view, i).second.node);
  std::vector<CarriedConcatenation> concatenations;
  for (NodeId id = 0; id < view.body.size(); ++id) {
    const Node& node = view.body.node(id);
    if (node.op->view != ViewForm::concatenated || is_placed.contains(id)) continue;
    const Type& type = node.types[0];
    CarriedConcatenation concatenation{{id, 0}, {}, is_stacked(view, {id, 0})};
    std::int64_t stacked_bytes = concatenation.is_stacked ? size_bytes(type) : 0;
    std::vector<std::int64_t> start(static_cast<std::size_t>(type.shape.rank()), 0);
    std::vector<NodeId> here;
    for (const Ref& ref : node.inputs) {
      const Type& part = view.body.type(ref);
      for (int i = 0; i < view.carries; ++i) {
        const auto [before, after] = carried(view, i);
        if (!(before == ref) || is_placed.contains(ref.node)) continue;
        here.push_back(ref.node);
        if (!is_stacked(view, before) && is_stacked(view, after)) stacked_bytes += size_bytes(part);
      }
      if (is_stacked(view, ref)) stacked_bytes += size_bytes(part);
      concatenation.parts.emplace_back(ref, start);
      start[static_cast<std::size_t>(concat_axis(node))] += part.shape[concat_axis(node)];
    }
    concatenation.is_stacked = stacked_bytes > 0;
    if (here.empty() || size_bytes(type) == 0 || (concatenation.is_stacked && 2 * stacked_bytes < size_bytes(type)))
      continue;
    is_placed.insert(here.begin(), here.end());
    concatenations.push_back(std::move(concatenation));
  }
  return concatenations;
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

  std::map<Ref, Home> homes;  // of carries, by their value in front of the step
  const auto new_home = [&](const Type& type, bool has_history, std::string_view what) {
    const std::int64_t bytes = size_bytes(type);
    if (bytes > 0 && length + 1 > kMaxPlanBytes / bytes) {
      fail(ErrorKind::unsupported, "scan: {} steps of {}, {}, are more than 2^47 bytes{}", length, what,
           to_string(type), in_scope(node.scope.str()));
    }
    Home home{new_slot(SlotKind::arena, node.title() + (has_history ? " history" : " carry"),
                       bytes * (has_history ? length + 1 : 2)),
              type, has_history, std::vector<std::int64_t>(static_cast<std::size_t>(type.shape.rank()), 0), type.shape};
    return home;
  };
  // A history is in order of time, so a reverse scan fills it from its end.
  const auto first_entry = [&](const Home& home) { return home.has_history && view.is_reverse ? length : 0; };
  const auto now_in = [&](const Home& home) {
    const std::int64_t bytes = size_bytes(home.entry);
    Operand now = home.at(first_entry(home));
    now.terms.push_back(home.has_history ? LoopTerm{loop, view.is_reverse ? -bytes : bytes, 0, 0}
                                         : LoopTerm{loop, bytes, 0, 2});
    return now;
  };
  const auto next_in = [&](const Home& home) {
    Operand next = now_in(home);
    if (home.has_history) {
      next.offset += next.terms.back().stride;
    } else {
      next.terms.back().shift = 1;
    }
    return next;
  };
  const auto stack_in = [&](const Home& home, int k, bool is_after) {
    targets[k] = is_after ? next_in(home) : now_in(home);
    results[k] = home.stacked(is_after != view.is_reverse ? 1 : 0, output_type(k));
  };

  if (options_.alias_views) {
    for (const CarriedConcatenation& concatenation : concatenations_of_carries(view)) {
      const Home whole =
          new_home(view.body.type(concatenation.ref), concatenation.is_stacked, "a concatenation with a carry");
      frame.destinations[concatenation.ref] = now_in(whole);
      for (int k = view.carries; k < fetches; ++k) {
        if (fetch_ref(k) == concatenation.ref) stack_in(whole, k, false);
      }
      for (const auto& [ref, start] : concatenation.parts) {
        Home part = whole;
        part.start = start;
        part.shape = view.body.type(ref).shape;
        if (view.body.node(ref.node).op->is(OpRole::source)) {
          homes.emplace(ref, part);
          continue;
        }
        for (int k = view.carries; k < fetches; ++k) {
          if (fetch_ref(k) == ref && !targets.contains(k)) stack_in(part, k, false);
        }
      }
    }
  }
  for (int i = 0; i < view.carries; ++i) {
    const Type& type = output_type(i);
    std::vector<int> after, before;  // outputs that stack the carry after, or before, each step
    if (options_.alias_views) {
      for (int k : stacked_from[fetch_ref(i)]) {
        if (!targets.contains(k)) after.push_back(k);
      }
      before = stacked_from[input_ref(i)];
    }
    const bool has_history = !after.empty() || !before.empty();
    const auto concatenated = homes.find(input_ref(i));
    const Home home =
        concatenated != homes.end() ? concatenated->second : new_home(type, has_history, fmt::format("carry {}", i));
    const Node& source = outer.graph.node(node.inputs[static_cast<std::size_t>(i)].node);
    const Operand first = home.at(first_entry(home));
    if (is_generated(source)) {
      fill(outer, lower_generated(source, first.layout), first, node);
    } else {
      copy(outer, outer_place(i), first, node, "scan_start");
    }
    frame.places[input_ref(i)] = now_in(home);
    targets[i] = next_in(home);
    results[i] = home.at(home.has_history ? (view.is_reverse ? 0 : length) : length % 2);
    for (int k : after) stack_in(home, k, true);
    for (int k : before) stack_in(home, k, false);
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
