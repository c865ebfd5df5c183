// SPDX-License-Identifier: Apache-2.0
// Results that lie in an input's memory because the op says so (OpDef::aliases), such as a cache of which a step writes
// one row. The input is copied to the result's place, and the copy is dropped where nothing else needs the input: the
// result then lies where the input does, also where that is the parameter that it is assigned to.
#include <algorithm>

#include "base/one_line.h"
#include "plan/planner.h"
#include "plan/slot_uses.h"

namespace paoding {
namespace {

bool is_plain_copy(const Step& step) {
  return step.kind == Step::Kind::group && step.reads == 1 && step.operands.size() == 2;
}

// Whether the operand is all of a slot that lives within a run.
bool fills_a_slot(const Plan& plan, const Operand& operand) {
  const Slot& slot = plan.slots[static_cast<std::size_t>(operand.slot)];
  return slot.kind == SlotKind::arena && operand.offset == 0 && operand.terms.empty() && operand.layout.is_dense() &&
         slot.bytes == size_bytes(operand.layout.type);
}

}  // namespace

void Planner::alias_results(Frame& frame, NodeId id, Step* step) {
  const Node& node = frame.graph.node(id);
  for (const auto& [result, input] : node.op->aliases) {
    if (input >= step->reads) continue;  // an optional one
    Operand& made = step->operands[step->reads + result];
    if (!(made.layout.type == step->operands[input].layout.type)) continue;  // nobody reads it
    const Ref ref{id, static_cast<std::int32_t>(result)};
    if (!made.layout.is_dense()) made = new_operand(frame, ref);  // it is copied to its place afterwards
    const std::size_t notes = plan_.notes.size();
    copy(frame, step->operands[input], made, node, "copy_" + node.op->name);
    if (frame.steps == &plan_.steps) {
      alias_notes_[made.slot] = std::move(plan_.notes[notes]);
      plan_.notes.resize(notes);
    }
    step->operands[input] = made;
  }
}

void Planner::drop_alias_copies() {
  std::vector<Step>& steps = plan_.steps;
  const auto is_onto_itself = [](const Step& step) {
    return is_plain_copy(step) && is_same_place(step.operands[0], step.operands[1]);
  };
  for (auto& [made, note] : alias_notes_) {
    SlotUses uses(steps);
    if (uses.of(made).empty()) continue;  // it has become a parameter's
    const std::size_t at = uses.of(made).front().step;
    const Operand old = steps[at].operands[0];
    const bool is_free = is_plain_copy(steps[at]) && steps[at].operands[1].slot == made && fills_a_slot(plan_, old) &&
                         fills_a_slot(plan_, steps[at].operands[1]) && uses.of(old.slot).back().step == at &&
                         !plan_.slots[static_cast<std::size_t>(old.slot)].is_fetched;
    if (!is_free) {
      plan_.notes.push_back(std::move(note));
      continue;
    }
    Slot& slot = plan_.slots[static_cast<std::size_t>(old.slot)];
    const Slot& gone = plan_.slots[static_cast<std::size_t>(made)];
    slot.name += ", then " + gone.name;
    slot.is_aliased = true;
    slot.is_fetched = gone.is_fetched;
    for (Plan::Fetch& fetch : plan_.fetches) {
      if (fetch.operand.slot == made) fetch.operand.slot = old.slot;
      for (Operand& alternative : fetch.alternatives) {
        if (alternative.slot == made) alternative.slot = old.slot;
      }
    }
    uses.move(made, old.slot);
    std::erase_if(steps, is_onto_itself);
  }
  if (!alias_notes_.empty()) std::erase_if(steps, is_onto_itself);
}

}  // namespace paoding
