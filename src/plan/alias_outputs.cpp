// SPDX-License-Identifier: Apache-2.0
// Results that alias an input (output-to-input aliasing) which nothing reads after their step: of the two half the
// memory, in lines that are in the cache already.
#include <fmt/format.h>

#include <algorithm>

#include "base/one_line.h"
#include "plan/plan.h"
#include "plan/slot_uses.h"

namespace paoding {
namespace {

// Whether the operand is all of a slot that lives within a run.
bool is_whole_slot(const Plan& plan, const Operand& operand) {
  const Slot& slot = plan.slots[static_cast<std::size_t>(operand.slot)];
  return slot.kind == SlotKind::arena && !slot.is_fetched && operand.offset == 0 && operand.terms.empty() &&
         operand.layout.is_dense() && slot.bytes == size_bytes(operand.layout.type);
}

// Whether the slots of both are touched by the step once each: that of the result by none before it, that of the input
// by none after it.
bool are_in_one_step(const SlotUses& uses, std::size_t step, int made, int old) {
  const auto is_here = [&](const SlotUses::Use& use) { return use.step == step; };
  const auto &of_made = uses.of(made), &of_old = uses.of(old);
  return is_here(of_made.front()) && is_here(of_old.back()) && std::ranges::count_if(of_made, is_here) == 1 &&
         std::ranges::count_if(of_old, is_here) == 1;
}

}  // namespace

void alias_outputs(Plan* plan) {
  if (plan->target->is_gpu())
    return;  // neighbours may share a launch, and a layer pipeline's are all under way at once
  SlotUses uses(plan->steps);
  for (std::size_t i = 0; i < plan->steps.size(); ++i) {
    const Step& step = plan->steps[i];
    if (step.kind != Step::Kind::kernel) continue;
    for (const auto& [result, input] : step.kernel->in_place) {
      const Operand &made = step.operands[step.reads + result], &old = step.operands[input];
      if (made.layout.type != old.layout.type || !is_whole_slot(*plan, made) || !is_whole_slot(*plan, old)) continue;
      if (!are_in_one_step(uses, i, made.slot, old.slot)) continue;
      plan->notes.push_back(one_line(
          fmt::format("{}: result {} aliases input {}{}", step.label.op, result, input, in_scope(step.label.scope))));
      Slot& slot = plan->slots[static_cast<std::size_t>(old.slot)];
      slot.name += ", then " + plan->slots[static_cast<std::size_t>(made.slot)].name;
      slot.is_aliased = true;
      uses.move(made.slot, old.slot);
    }
  }
}

}  // namespace paoding
