// SPDX-License-Identifier: Apache-2.0
// The commit: the end of a plan, from the first write of a parameter on. Nothing in it can fail, so a run that fails
// has written nothing. A step that writes a parameter comes after every step that may fail, and so do the steps that
// need its result; where one of those may fail itself, the new value waits in the arena and is copied at the end.
#include <algorithm>

#include "base/check.h"
#include "plan/planner.h"
#include "plan/step_slots.h"

namespace paoding {
namespace {

// The slots that steps touch, kept so that the next step's dependence on any of them is seen from its own operands
// alone.
template <class Mark>
class TouchedSlots {
 public:
  TouchedSlots(std::size_t slots, Mark none) : none_(none), read_(slots, none), written_(slots, none) {}

  void add(const Step& step, Mark mark) {
    for_each_slot(step, [&](int slot, bool is_write) { (is_write ? written_ : read_)[at(slot)] = mark; });
  }
  // The mark of a step that may not change places with this one; `none` when there is no such step.
  Mark conflict(const Step& step) const {
    Mark found = none_;
    for_each_slot(step, [&](int slot, bool is_write) {
      if (found == none_) found = written_[at(slot)];
      if (found == none_ && is_write) found = read_[at(slot)];
    });
    return found;
  }

 private:
  static std::size_t at(int slot) { return static_cast<std::size_t>(slot); }
  const Mark none_;
  std::vector<Mark> read_, written_;
};

}  // namespace

bool may_fault(const Step& step) {
  switch (step.kind) {
    case Step::Kind::print: return true;
    case Step::Kind::repeat: return true;
    case Step::Kind::kernel: return step.kernel->faults == Faults::possible;
    default: break;
  }
  return std::ranges::any_of(step.bodies(), [](const std::vector<Step>* body) {
    return std::ranges::any_of(*body, [](const Step& inner) { return may_fault(inner); });
  });
}

bool writes_parameter(const Plan& plan, const Step& step) {
  bool found = false;
  for_each_slot(step, [&](int slot, bool is_write) {
    found |= is_write && plan.slots[static_cast<std::size_t>(slot)].kind == SlotKind::parameter;
  });
  return found;
}

// From the last step to the first, so that each is looked at once: later writes in place change nothing in the answer,
// since no step that is named here makes one.
std::vector<int> Planner::faults_behind(const std::vector<Step>& steps) const {
  constexpr int kNone = -1;
  std::vector<int> behind(steps.size(), kNone);
  TouchedSlots<int> touched(plan_.slots.size(), kNone);
  for (std::size_t i = steps.size(); i-- > 0;) {
    behind[i] = may_fault(steps[i]) ? static_cast<int>(i) : touched.conflict(steps[i]);
    if (behind[i] != kNone) touched.add(steps[i], behind[i]);
  }
  return behind;
}

void Planner::order_commit() {
  std::vector<Step>& steps = plan_.steps;
  const auto last_fault =
      std::ranges::find_if(steps.rbegin(), steps.rend(), [](const Step& step) { return may_fault(step); });
  const std::size_t failing = static_cast<std::size_t>(steps.rend() - last_fault);
  TouchedSlots<char> touched(plan_.slots.size(), 0);
  std::vector<Step> first, later;
  for (std::size_t i = 0; i < failing; ++i) {
    const bool waits = writes_parameter(plan_, steps[i]) || touched.conflict(steps[i]) != 0;
    if (waits) touched.add(steps[i], 1);
    PD_ASSERT(!waits || !may_fault(steps[i]), "what may fail depends on a write of a parameter");
    (waits ? later : first).push_back(std::move(steps[i]));
  }
  std::ranges::move(later, std::back_inserter(first));
  std::ranges::move(first, steps.begin());
  plan_.commit = static_cast<std::size_t>(
      std::ranges::find_if(steps, [&](const Step& step) { return writes_parameter(plan_, step); }) - steps.begin());
}

}  // namespace paoding
