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

// Why the value `made` by `steps` cannot be written straight into slot `target`; empty when it can.
std::string Planner::in_place_refusal(std::vector<Step>& steps, const Operand& made, int target) {
  const Slot& slot = plan_.slots[static_cast<std::size_t>(made.slot)];
  if (slot.kind != SlotKind::arena) return "the value is fed";
  if (slot.is_fetched) return "the value is fetched too";
  const bool is_whole = made.offset == 0 && made.terms.empty() && made.layout.is_dense() &&
                        slot.bytes == plan_.slots[static_cast<std::size_t>(target)].bytes;
  if (!is_whole) return "the value is a part of another, or strided";
  bool is_written = false;
  for (Step& step : steps) {
    const bool reads_old = touches(step, target, false);
    const bool writes = touches(step, made.slot, true);
    if (is_written && reads_old) return "the old value is read later, by " + step.label.op;
    if (!is_written && writes && reads_old && !is_pointwise(step, target, made.slot)) {
      return step.label.op + " reads other elements of the old value than it writes";
    }
    is_written |= writes;
  }
  return is_written ? "" : "the value is made by no step";
}

void Planner::write_back(Frame& frame, std::vector<Write> writes) {
  std::set<int> targets;
  for (const Write& write : writes) targets.insert(write.target.slot);
  for (Write& write : writes) {
    // The old value of another target is taken before that one is written.
    if (targets.contains(write.value.slot)) write.value = dense_copy(frame, write.value, *write.why, write.label);
  }
  std::map<int, int> moved;  // from the slot that a value had to its target's
  std::set<int> done;
  for (const Write& write : writes) {
    if (moved.contains(write.value.slot)) continue;  // two targets that take one value
    const std::string refusal = in_place_refusal(*frame.steps, write.value, write.target.slot);
    if (refusal.empty()) {
      moved[write.value.slot] = write.target.slot;
      done.insert(write.target.slot);
      for_each_operand(*frame.steps, [&](Step& step, std::size_t i) {
        if (step.operands[i].slot == write.value.slot) step.operands[i].slot = write.target.slot;
      });
      continue;
    }
    plan_.notes.push_back(fmt::format("{}: '{}' is written by a copy at the end: {}", write.label,
                                      plan_.slots[static_cast<std::size_t>(write.target.slot)].name, refusal));
  }
  for (Write& write : writes) {
    if (done.contains(write.target.slot)) continue;
    if (const auto it = moved.find(write.value.slot); it != moved.end()) write.value.slot = it->second;
    copy(frame, write.value, write.target, *write.why, write.label);
  }
}

void Planner::plan_assigns(Frame& frame) {
  std::vector<Write> writes;
  for (NodeId id : frame.graph.assigns()) {
    const Node& node = frame.graph.node(id);
    if (node.inputs[0] == node.inputs[1]) continue;
    const Operand value = place(frame, node.inputs[1]);
    writes.push_back({value, frame.places.at(node.inputs[0]), &node, node.title()});
  }
  write_back(frame, std::move(writes));
}

}  // namespace paoding
