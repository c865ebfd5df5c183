// SPDX-License-Identifier: Apache-2.0
// Results that are written over an input which nothing reads behind their step: of the two half the memory, in lines
// that are in the cache already.
#include <fmt/format.h>

#include <algorithm>

#include "base/one_line.h"
#include "plan/plan.h"
#include "plan/step_slots.h"

namespace paoding {
namespace {

// Where in the list each slot is touched first and last; -1 where never.
struct Touched {
  int first = -1, last = -1;
};

std::vector<Touched> touched_slots(const Plan& plan) {
  std::vector<Touched> touched(plan.slots.size());
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    const auto touch = [&](int slot, bool) {
      Touched& of = touched[static_cast<std::size_t>(slot)];
      of.last = static_cast<int>(i);
      if (of.first < 0) of.first = of.last;
    };
    for_each_slot(plan.steps[i], touch);
  }
  return touched;
}

// Whether the operand is all of a slot that lives within a run, and the step touches that nowhere else.
bool is_whole_slot(const Plan& plan, const Step& step, const Operand& operand) {
  const Slot& slot = plan.slots[static_cast<std::size_t>(operand.slot)];
  const auto is_there = [&](const Operand& other) { return other.slot == operand.slot; };
  return slot.kind == SlotKind::arena && !slot.is_fetched && operand.offset == 0 && operand.terms.empty() &&
         operand.layout.is_dense() && slot.bytes == size_bytes(operand.layout.type) &&
         std::ranges::count_if(step.operands, is_there) == 1;
}

void move_slot(Step* step, int from, int to) {
  for (Operand& operand : step->operands) {
    if (operand.slot == from) operand.slot = to;
  }
  for (std::vector<Step>* body : step->bodies()) {
    for (Step& inner : *body) move_slot(&inner, from, to);
  }
}

}  // namespace

void write_over_inputs(Plan* plan) {
  if (plan->target->is_gpu()) return;  // neighbours may share a launch, and a stack's are all under way at once
  std::vector<Touched> touched = touched_slots(*plan);
  for (std::size_t i = 0; i < plan->steps.size(); ++i) {
    const Step& step = plan->steps[i];
    if (step.kind != Step::Kind::kernel) continue;
    for (const auto& [result, input] : step.kernel->in_place) {
      const Operand &made = step.operands[step.reads + result], &old = step.operands[input];
      const int from = made.slot, to = old.slot, here = static_cast<int>(i);
      Touched &of_made = touched[static_cast<std::size_t>(from)], &of_old = touched[static_cast<std::size_t>(to)];
      if (!is_whole_slot(*plan, step, made) || !is_whole_slot(*plan, step, old)) continue;
      if (made.layout.type != old.layout.type || of_made.first != here || of_old.last != here) continue;
      plan->notes.push_back(one_line(fmt::format("{}: result {} is written over input {}{}", step.label.op, result,
                                                 input, in_scope(step.label.scope))));
      Slot& slot = plan->slots[static_cast<std::size_t>(to)];
      slot.name += ", then " + plan->slots[static_cast<std::size_t>(from)].name;
      slot.is_written_over = true;
      of_old.last = of_made.last;
      for (int later = here; later <= of_old.last; ++later) {
        move_slot(&plan->steps[static_cast<std::size_t>(later)], from, to);
      }
    }
  }
}

}  // namespace paoding
