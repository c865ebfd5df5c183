// SPDX-License-Identifier: Apache-2.0
// Collectives start as soon as their operands are there, in that order: the other ranks need not wait for longer, and
// where a schedule has a stream for them, more is left to compute beside them.
#include <algorithm>

#include "plan/planner.h"
#include "plan/step_slots.h"

namespace paoding {
namespace {

// Whether one of the steps writes a slot that the other touches.
bool depend(const Step& a, const Step& b) {
  bool found = false;
  for_each_slot(a, [&](int slot, bool writes) {
    for_each_slot(b, [&](int other, bool other_writes) { found |= slot == other && (writes || other_writes); });
  });
  return found;
}

}  // namespace

bool is_collective(const Step& step) {
  return step.kind == Step::Kind::kernel && step.call.op->collective != Collective::none;
}

void Planner::start_collectives_early() {
  std::vector<Step>& steps = plan_.steps;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    if (!is_collective(steps[i])) continue;
    std::size_t place = i;
    while (place > 0 && !depend(steps[place - 1], steps[i])) --place;
    while (place < i && is_collective(steps[place])) ++place;  // those that were ready before
    const auto at = [&](std::size_t k) { return steps.begin() + static_cast<std::ptrdiff_t>(k); };
    std::rotate(at(place), at(i), at(i + 1));
  }
}

}  // namespace paoding
