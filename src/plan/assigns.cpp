// SPDX-License-Identifier: Apache-2.0
// Writing parameters. Every read of a run sees what was there at its start, so a value lands in its parameter's memory
// at once only where nothing reads the old one later; what reads it in the very step that makes the new one, element by
// element, may. Else the value waits in the arena and is copied at the end.
#include <algorithm>
#include <functional>

#include "base/check.h"
#include "plan/planner.h"

namespace paoding {
namespace {

void for_each_operand(std::vector<Step>& steps, const std::function<void(Step&, std::size_t)>& visit) {
  for (Step& step : steps) {
    for (std::size_t i = 0; i < step.operands.size(); ++i) visit(step, i);
    for (std::vector<Step>* body : step.bodies()) for_each_operand(*body, visit);
  }
}

bool touches(Step& step, int slot, bool written) {
  bool found = false;
  const auto look = [&](const Step& each, std::size_t i) {
    found |= each.operands[i].slot == slot && (i >= each.reads) == written;
  };
  for (std::size_t i = 0; i < step.operands.size(); ++i) look(step, i);
  for (std::vector<Step>* body : step.bodies()) for_each_operand(*body, look);
  return found;
}

bool same_strides(const Group& group, const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  for (std::size_t axis = 0; axis < group.extents.size(); ++axis) {
    if (group.extents[axis] != 1 && a[axis] != b[axis]) return false;
  }
  return true;
}

// Whether every element of `old` that the step reads lies where the same point of the loop writes `made`.
bool is_pointwise(const Step& step, int old, int made) {
  if (step.kind != Step::Kind::group) return false;
  for (std::size_t out = step.reads; out < step.operands.size(); ++out) {
    if (step.operands[out].slot != made) continue;
    const GroupOutput& output = step.group.outputs[out - step.reads];
    for (std::size_t in = 0; in < step.reads; ++in) {
      const Operand& operand = step.operands[in];
      if (operand.slot != old) continue;
      const GroupLoad& load = step.group.loads[in];
      const bool is_same = operand.offset == 0 && operand.terms.empty() && load.dtype == output.dtype &&
                           output.reduce_mask == 0 && same_strides(step.group, load.strides, output.strides);
      if (!is_same) return false;
    }
  }
  return true;
}

}  // namespace

// Why the value in slot `made` cannot be written straight into `parameter`; empty when it can.
std::string Planner::in_place_refusal(const Operand& made, int parameter) {
  const Slot& slot = plan_.slots[static_cast<std::size_t>(made.slot)];
  if (slot.kind != SlotKind::arena) return "the value is fed";
  if (slot.is_fetched) return "the value is fetched too";
  const bool is_whole = made.offset == 0 && made.terms.empty() && made.layout.is_dense() &&
                        slot.bytes == plan_.slots[static_cast<std::size_t>(parameter)].bytes;
  if (!is_whole) return "the value is a part of another, or strided";
  bool is_written = false;
  for (Step& step : plan_.steps) {
    const bool reads_old = touches(step, parameter, false);
    const bool writes = touches(step, made.slot, true);
    if (is_written && reads_old) return "the old value is read later, by " + step.label.op;
    if (!is_written && writes && reads_old && !is_pointwise(step, parameter, made.slot)) {
      return step.label.op + " reads other elements of the old value than it writes";
    }
    is_written |= writes;
  }
  return is_written ? "" : "the value is made by no step";
}

void Planner::plan_assigns(Frame& frame) {
  struct Write {
    NodeId id;
    int parameter;
    Operand value;
  };
  std::vector<Write> writes;
  std::vector<char> is_assigned(plan_.slots.size(), 0);
  const std::vector<NodeId> assigns = frame.graph.assigns();
  const auto parameter_of = [&](NodeId id) { return frame.places.at(frame.graph.node(id).inputs[0]); };
  for (NodeId id : assigns) is_assigned[static_cast<std::size_t>(parameter_of(id).slot)] = 1;
  for (NodeId id : assigns) {
    const Node& node = frame.graph.node(id);
    if (node.inputs[0] == node.inputs[1]) continue;
    Operand value = place(frame, node.inputs[1]);
    // Another parameter's old value is taken before that one is written.
    const bool is_old = static_cast<std::size_t>(value.slot) < is_assigned.size() &&
                        is_assigned[static_cast<std::size_t>(value.slot)] != 0;
    if (is_old) value = dense_copy(frame, value, node, "assign");
    writes.push_back({id, parameter_of(id).slot, value});
  }
  std::vector<std::pair<int, int>> moved;  // from the slot that a value had to its parameter's
  const auto follow = [&](Write* write) {  // two parameters may take one value
    for (const auto& [from, to] : moved) {
      if (write->value.slot == from) write->value.slot = to;
    }
  };
  for (Write& write : writes) {
    const Node& node = frame.graph.node(write.id);
    follow(&write);
    const std::string refusal = in_place_refusal(write.value, write.parameter);
    if (refusal.empty()) {
      const int from = write.value.slot;
      moved.emplace_back(from, write.parameter);
      for_each_operand(plan_.steps, [&](Step& step, std::size_t i) {
        if (step.operands[i].slot == from) step.operands[i].slot = write.parameter;
      });
      continue;
    }
    plan_.notes.push_back(fmt::format("assign: '{}' is written by a copy at the end: {}",
                                      frame.graph.node(node.inputs[0].node).name.str(), refusal));
  }
  for (Write& write : writes) {
    const bool is_there =
        std::any_of(moved.begin(), moved.end(), [&](const auto& pair) { return pair.second == write.parameter; });
    if (is_there) continue;
    follow(&write);
    const Node& node = frame.graph.node(write.id);
    copy(frame, write.value, parameter_of(write.id), node, node.title());
  }
}

}  // namespace paoding
