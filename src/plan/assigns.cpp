// SPDX-License-Identifier: Apache-2.0
// Writing parameters. Every read of a run sees the value at its start, so a new value is written into its parameter's
// memory at once only where nothing reads the old one later, and nothing that may fail comes after it; the very step
// that makes the new value may read the old one, element by element. Else the value waits in the arena and is copied at
// the end.
#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "plan/host_steps.h"
#include "plan/planner.h"
#include "plan/slot_uses.h"
#include "plan/step_work.h"

namespace paoding {
namespace {

bool same_strides(const Group& group, const std::vector<std::int64_t>& a, const std::vector<std::int64_t>& b) {
  for (std::size_t axis = 0; axis < group.extents.size(); ++axis) {
    if (group.extents[axis] != 1 && a[axis] != b[axis]) return false;
  }
  return true;
}

// The same of a kernel: its table says which results may lie where an input does.
bool is_kernel_in_place(const Step& step, int old, int made) {
  for (std::size_t out = step.reads; out < step.operands.size(); ++out) {
    if (step.operands[out].slot != made) continue;
    for (std::size_t in = 0; in < step.reads; ++in) {
      const Operand& operand = step.operands[in];
      if (operand.slot != old) continue;
      const auto& pairs = step.kernel->in_place;
      const bool is_listed = std::ranges::find(pairs, std::pair{out - step.reads, in}) != pairs.end();
      if (!is_listed || operand.offset != 0 || !operand.terms.empty() || !operand.layout.is_dense()) return false;
    }
  }
  return true;
}

// Whether every element of `old` that the step reads lies where the same point of the loop writes `made`.
bool is_pointwise(const Step& step, int old, int made) {
  if (step.kind == Step::Kind::kernel) return is_kernel_in_place(step, old, made);
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

// Why slot `made` cannot be slot `target`; empty when nothing reads the old value of `target` once `made` is written.
std::string order_refusal(const std::vector<Step>& steps, const SlotUses& uses, int made, int target) {
  const auto& mine = uses.of(made);
  const auto write = std::ranges::find_if(mine, &SlotUses::Use::is_write);
  if (write == mine.end()) return "the value is made by no step";
  for (const SlotUses::Use& use : uses.of(target)) {
    if (use.is_write || use.step < write->step) continue;
    const Step& step = steps[use.step];
    if (use.step > write->step) return "the old value is read later, by " + step.label.op;
    if (!is_pointwise(step, target, made)) {
      return step.label.op + " reads other elements of the old value than it writes";
    }
  }
  return "";
}

// Whether the step, or one in it, is a library's kernel that writes the slot: it cannot be called off on a GPU.
bool is_made_by_a_library(const Step& step, int slot) {
  const auto writes = [&](const Operand& operand) { return operand.slot == slot; };
  if (step.kind == Step::Kind::kernel && !step.kernel->plan_text) {
    return std::any_of(step.operands.begin() + static_cast<std::ptrdiff_t>(step.reads), step.operands.end(), writes);
  }
  return std::ranges::any_of(step.bodies(), [&](const std::vector<Step>* body) {
    return std::ranges::any_of(*body, [&](const Step& inner) { return is_made_by_a_library(inner, slot); });
  });
}

// Why no step that writes slot `made` may write a parameter; empty when each may. `faults` as faults_behind() says;
// `called_off`: when all writes are, on a GPU: "gather has failed"; empty when never.
std::string fault_refusal(const Target& target, const std::vector<Step>& steps, const SlotUses& uses,
                          const std::vector<int>& faults, int made, const std::string& called_off) {
  for (const SlotUses::Use& use : uses.of(made)) {
    if (!use.is_write) continue;
    if (runs_on_host(target, steps[use.step])) return "it is made on the CPU";
    if (!called_off.empty() && is_made_by_a_library(steps[use.step], made)) {
      return "a library's kernel makes it, which runs also when " + called_off;
    }
    if (faults[use.step] < 0) continue;
    const auto fault = static_cast<std::size_t>(faults[use.step]);
    return steps[fault].label.op +
           (fault == use.step ? ", which makes it, may fail" : ", which may fail, comes after it");
  }
  return "";
}

}  // namespace

// Why the value `made` cannot be written straight into slot `target`, whenever that is; empty when it can.
std::string Planner::in_place_refusal(const Operand& made, int target) const {
  const Slot& slot = plan_.slots[static_cast<std::size_t>(made.slot)];
  if (slot.kind != SlotKind::arena) return "the value is fed";
  if (slot.is_fetched) return "the value is fetched too";
  const bool is_whole = made.offset == 0 && made.terms.empty() && made.layout.is_dense() &&
                        slot.bytes == plan_.slots[static_cast<std::size_t>(target)].bytes;
  return is_whole ? "" : "the value is a part of another, or strided";
}

void Planner::write_back(Frame& frame, std::vector<Write> writes) {
  std::set<int> targets;
  for (const Write& write : writes) targets.insert(write.target.slot);
  for (Write& write : writes) {
    // The old value of another target is taken before that one is written.
    if (targets.contains(write.value.slot)) write.value = dense_copy(frame, write.value, *write.why, write.label);
  }
  SlotUses uses(*frame.steps);
  const std::vector<int> faults = faults_behind(*frame.steps);
  const auto fault = std::ranges::find_if(*frame.steps, [](const Step& step) { return may_fault(step); });
  std::string called_off;
  if (plan_.target->is_gpu() && fault != frame.steps->end()) {
    called_off = fault->label.op + " has failed";
  } else if (plan_.target->is_gpu() && is_long_run(*frame.steps, *plan_.target)) {
    called_off = "the run is called off";
  }
  std::map<int, int> moved;  // from the slot that a value had to its target's
  std::set<int> done;
  for (const Write& write : writes) {
    if (moved.contains(write.value.slot)) continue;  // two targets that take one value
    std::string refusal = in_place_refusal(write.value, write.target.slot);
    if (refusal.empty()) refusal = order_refusal(*frame.steps, uses, write.value.slot, write.target.slot);
    if (refusal.empty() && plan_.slots[static_cast<std::size_t>(write.target.slot)].kind == SlotKind::parameter) {
      refusal = fault_refusal(*plan_.target, *frame.steps, uses, faults, write.value.slot, called_off);
    }
    if (refusal.empty()) {
      moved[write.value.slot] = write.target.slot;
      done.insert(write.target.slot);
      uses.move(write.value.slot, write.target.slot);
      continue;
    }
    const std::string& name = plan_.slots[static_cast<std::size_t>(write.target.slot)].name;
    plan_.notes.push_back(
        one_line(fmt::format("{}: '{}' is written by a copy at the end: {}", write.label, name, refusal)));
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
  if (plan_.target->is_gpu()) gather_updates(frame, writes);
  write_back(frame, std::move(writes));
}

}  // namespace paoding
