// SPDX-License-Identifier: Apache-2.0
// On a GPU steps that only make the new values of parameters come last, where their inputs are small: side by side they
// share launches (gpu/codegen/grouped_launch.h), and nothing reads an old value after them, so that it need not be
// kept.
#include <set>

#include "plan/planner.h"
#include "plan/step_slots.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostUpdateBytes = 4 << 20;  // that stay alive until the end for it

}  // namespace

void Planner::gather_updates(Frame& frame, const std::vector<Write>& writes) {
  std::vector<Step>& steps = *frame.steps;
  const std::size_t slots = plan_.slots.size();
  std::vector<char> is_value(slots, 0);
  std::vector<int> reads(slots, 0), last_write(slots, -1);
  for (const Write& write : writes) is_value[static_cast<std::size_t>(write.value.slot)] = 1;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    for_each_slot(steps[i], [&](int slot, bool is_write) {
      if (is_write)
        last_write[static_cast<std::size_t>(slot)] = static_cast<int>(i);
      else
        ++reads[static_cast<std::size_t>(slot)];
    });
  }
  std::int64_t left = kMostUpdateBytes;
  const auto comes_last = [&](const Step& step, std::size_t number) {
    if (step.kind != Step::Kind::group || step.operands.size() == step.reads) return false;
    std::set<int> kept;
    for (std::size_t k = 0; k < step.operands.size(); ++k) {
      const int slot = step.operands[k].slot;
      const auto at = static_cast<std::size_t>(slot);
      if (last_write[at] > static_cast<int>(number)) return false;
      if (k >= step.reads && (is_value[at] == 0 || reads[at] > 0 || plan_.slots[at].is_fetched)) return false;
      if (plan_.slots[at].kind == SlotKind::arena) kept.insert(slot);
    }
    std::int64_t bytes = 0;
    for (const int slot : kept) bytes += plan_.slots[static_cast<std::size_t>(slot)].bytes;
    if (bytes > left) return false;
    left -= bytes;
    return true;
  };
  std::vector<Step> first, last;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    (comes_last(steps[i], i) ? last : first).push_back(std::move(steps[i]));
  }
  std::ranges::move(last, std::back_inserter(first));
  steps = std::move(first);
}

}  // namespace paoding
