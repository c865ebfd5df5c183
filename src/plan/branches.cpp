// SPDX-License-Identifier: Apache-2.0
// Branches and loops without a length. Every branch writes the results where they are wanted, so that none is copied;
// values that only one branch needs share memory with those that only another needs. A loop keeps one entry per carried
// value.
#include <algorithm>
#include <set>

#include "base/check.h"
#include "group/lower.h"
#include "ops/control/branch.h"
#include "plan/planner.h"

namespace paoding {

namespace {

// The branch that alone gives an output, which then is an alternative of a Variant; -1 where several do.
int only_giver(const BranchView& view, int output) {
  int giver = -1;
  for (int k = 0; k < view.branches(); ++k) {
    const std::vector<int> given = view.outputs_of(k);
    if (std::ranges::find(given, output) == given.end()) continue;
    if (giver >= 0) return -1;
    giver = k;
  }
  return giver;
}

}  // namespace

void Planner::deliver(Frame& frame, Ref ref, const Operand& target, const Node& why, std::string_view label) {
  const Node& source = frame.graph.node(ref.node);
  if (is_generated(source) && !frame.places.contains(ref)) {
    return fill(frame, lower_generated(source, target.layout), target, why);
  }
  const Operand& made = place(frame, ref);
  const bool is_there = made.slot == target.slot && made.offset == target.offset && made.terms == target.terms &&
                        made.layout.strides == target.layout.strides;
  if (!is_there) copy(frame, made, target, why, label);
}

void Planner::plan_branch(Frame& outer, NodeId id) {
  const Node& node = outer.graph.node(id);
  const BranchView view(node);
  Step step;
  step.kind = Step::Kind::branch;
  step.label = label_of(outer, id);
  step.operands = {place(outer, node.inputs[0])};
  step.reads = 1;
  std::vector<Operand> values, results;
  for (std::size_t i = 1; i < node.inputs.size(); ++i) values.push_back(place(outer, node.inputs[i]));
  std::set<int> constants;  // outputs that are there, whatever is chosen
  for (int k = 0; k < view.outputs(); ++k) {
    const int giver = outer.destinations.contains({id, k}) ? -1 : only_giver(view, k);
    const auto constant = giver < 0 ? std::nullopt : made_constant(view.body(giver).node(view.value_of(giver, k).node));
    if (constant) constants.insert(k);
    results.push_back(constant ? *constant : result_place(outer, {id, k}));
  }
  for (int k = 0; k < view.branches(); ++k) {
    const Graph& body = view.body(k);
    std::vector<Step>& steps = step.branches.emplace_back();
    Frame frame{body, {}, {}, &steps, &node};
    for (std::size_t i = 0; i < values.size(); ++i) frame.places[{body.inputs()[i], 0}] = values[i];
    const std::vector<int> given = view.outputs_of(k);
    for (const int output : given) {
      if (!options_.alias_views) break;
      const Ref ref = view.value_of(k, output);
      if (can_write_to(frame, ref)) frame.destinations.try_emplace(ref, results[static_cast<std::size_t>(output)]);
    }
    plan_nodes(frame);
    for (const int output : given) {
      if (constants.contains(output)) continue;
      deliver(frame, view.value_of(k, output), results[static_cast<std::size_t>(output)], node, "branch_result");
    }
  }
  const auto is_empty = [](const std::vector<Step>& steps) { return steps.empty(); };
  if (!std::ranges::all_of(step.branches, is_empty)) outer.steps->push_back(std::move(step));
  for (int k = 0; k < view.outputs(); ++k) outer.places[{id, k}] = results[static_cast<std::size_t>(k)];
}

void Planner::plan_while(Frame& outer, NodeId id) {
  const Node& node = outer.graph.node(id);
  const auto carries = static_cast<std::size_t>(node.attrs.get_int("carries"));
  std::vector<Operand> places;
  for (std::size_t i = 0; i < node.inputs.size(); ++i) {
    if (i >= carries) {
      places.push_back(place(outer, node.inputs[i]));
      continue;
    }
    const Type& type = node.types[i];
    const int slot = new_slot(SlotKind::arena, node.title() + " carry", size_bytes(type));
    places.push_back({slot, 0, {}, Layout::dense(type)});
    deliver(outer, node.inputs[i], places.back(), node, "while_start");
    outer.places[{id, static_cast<std::int32_t>(i)}] = places.back();
  }
  Step step;
  step.kind = Step::Kind::repeat;
  step.label = label_of(outer, id);
  const auto open = [&](const Graph& body, std::vector<Step>* steps) {
    Frame frame{body, {}, {}, steps, &node};
    for (std::size_t i = 0; i < places.size(); ++i) frame.places[{body.inputs()[i], 0}] = places[i];
    plan_nodes(frame);
    return frame;
  };
  Frame condition = open(*node.bodies[0], &step.condition);
  step.operands = {place(condition, node.bodies[0]->fetches()[0].ref)};
  step.reads = 1;
  Frame body = open(*node.bodies[1], &step.body);
  std::vector<Write> writes;
  for (std::size_t i = 0; i < carries; ++i) {
    const Ref ref = node.bodies[1]->fetches()[i].ref;
    if (ref == Ref{node.bodies[1]->inputs()[i], 0}) continue;  // stays as it is
    writes.push_back({place(body, ref), places[i], &node, "while_carry"});
  }
  write_back(body, std::move(writes));
  outer.steps->push_back(std::move(step));
}

// print and barrier: the value is where it was.
void Planner::plan_passed(Frame& frame, NodeId id) {
  const Node& node = frame.graph.node(id);
  for (std::size_t k = 0; k < node.inputs.size(); ++k) {
    const Operand same = place(frame, node.inputs[k]);
    frame.places[{id, static_cast<std::int32_t>(k)}] = same;
  }
  if (!node.op->is(OpRole::shown)) return;
  Step step;
  step.kind = Step::Kind::print;
  step.label = label_of(frame, id);
  step.message = std::get<std::string>(*node.attrs.find("message"));
  step.operands = {frame.places.at({id, 0})};
  step.reads = 1;
  frame.steps->push_back(std::move(step));
}

}  // namespace paoding
