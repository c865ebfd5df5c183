// SPDX-License-Identifier: Apache-2.0
// The arena: when each slot is alive, and where it goes. Also unrolling, since both walk operands through loops.
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/check.h"
#include "plan/plan.h"

namespace paoding {
namespace {

constexpr std::int64_t kSlotAlignment = 256;

std::int64_t align_up(std::int64_t bytes) { return (bytes + kSlotAlignment - 1) / kSlotAlignment * kSlotAlignment; }

struct LoopRange {
  int first;
  int last;
};

// Past the gap of the slot that `position` is in; `position` when it is in none.
int behind_gap(const Slot& slot, int position) {
  for (const auto& [first, last] : slot.gaps) {
    if (first <= position && position <= last) return last + 1;
  }
  return position;
}

// Numbers the steps, and collects for each slot the positions of its uses with the loops around them.
struct Uses {
  struct Use {
    int position;
    std::vector<int> loops;  // the loops around it, outermost first, as indices into `ranges`
    bool is_write;
  };
  int position = 0;
  std::vector<LoopRange> ranges;
  std::vector<int> open;
  std::vector<std::vector<Use>> of_slot;
  std::vector<std::vector<LoopRange>> branches;  // of every branching step, in the order of their positions

  void walk(std::vector<Step>& steps) {
    for (Step& step : steps) {
      if (step.kind == Step::Kind::loop || step.kind == Step::Kind::repeat) {
        const int range = static_cast<int>(ranges.size());
        step.position = position;
        ranges.push_back({position, position});
        open.push_back(range);
        walk(step.condition);
        if (step.kind == Step::Kind::repeat) use(step);
        walk(step.body);
        open.pop_back();
        ranges[static_cast<std::size_t>(range)].last = position - 1;
        continue;
      }
      step.position = use(step);
      // One branch after the other: what lives in one only does so at other positions than what lives in another.
      std::vector<LoopRange> mine;
      for (auto& branch : step.branches) {
        const int first = position;
        walk(branch);
        mine.push_back({first, position - 1});
      }
      if (!mine.empty()) branches.push_back(std::move(mine));
    }
  }

  int use(const Step& step) {
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      of_slot[static_cast<std::size_t>(step.operands[i].slot)].push_back({position, open, i >= step.reads});
    }
    if (step.workspace >= 0) of_slot[static_cast<std::size_t>(step.workspace)].push_back({position, open, true});
    return position++;
  }
};

// A slot that comes to life in one of several branches and is read behind them is a result of theirs: each branch that
// runs writes it itself, so before that it holds nothing.
void find_gaps(const Uses& uses, const std::vector<Uses::Use>& list, Slot* slot) {
  for (const std::vector<LoopRange>& branches : uses.branches) {
    if (slot->first < branches.front().first || slot->last <= branches.back().last) continue;
    for (const LoopRange& branch : branches) {
      int written = branch.last + 1;
      for (const Uses::Use& use : list) {
        if (use.position < branch.first || use.position > branch.last) continue;
        int first = use.position;
        for (int loop : use.loops) {  // written in a loop of the branch, it lives from the start of the loop
          const LoopRange& range = uses.ranges[static_cast<std::size_t>(loop)];
          if (range.first >= branch.first) first = std::min(first, range.first);
        }
        written = std::min(written, first);
      }
      const int first = std::max(branch.first, slot->first);
      if (first < written) slot->gaps.emplace_back(first, written - 1);
    }
  }
}

// A slot whose first use is a write in a loop, and whose every use is in that loop without moving with it, lives
// within one turn. Anything else that a loop touches lives through the whole loop.
void find_lifetimes(Plan* plan) {
  Uses uses;
  uses.of_slot.resize(plan->slots.size());
  uses.walk(plan->steps);
  plan->positions = uses.position;

  std::vector<char> moves(plan->slots.size(), 0);  // some operand of it moves with a loop
  const std::function<void(const std::vector<Step>&)> find_moving = [&](const std::vector<Step>& steps) {
    for (const Step& step : steps) {
      for (const Operand& operand : step.operands) {
        if (!operand.terms.empty()) moves[static_cast<std::size_t>(operand.slot)] = 1;
      }
      for (const auto* body : step.bodies()) find_moving(*body);
    }
  };
  find_moving(plan->steps);

  for (std::size_t i = 0; i < plan->slots.size(); ++i) {
    Slot& slot = plan->slots[i];
    slot.gaps.clear();
    const auto& list = uses.of_slot[i];
    if (list.empty()) {
      slot.first = slot.last = plan->positions;
      if (slot.is_fetched) continue;
      slot.last = -1;
      continue;
    }
    // The loops that all uses share are not left while it lives, provided that a turn starts by writing it.
    std::size_t shared = moves[i] || !list.front().is_write ? 0 : list.front().loops.size();
    for (const auto& use : list) {
      const std::size_t common = std::min(shared, use.loops.size());
      shared = static_cast<std::size_t>(std::mismatch(use.loops.begin(),
                                                      use.loops.begin() + static_cast<std::ptrdiff_t>(common),
                                                      list.front().loops.begin())
                                            .first -
                                        use.loops.begin());
    }
    slot.first = list.front().position;
    slot.last = list.front().position;
    for (const auto& use : list) {
      int first = use.position, last = use.position;
      if (use.loops.size() > shared) {
        const LoopRange& range = uses.ranges[static_cast<std::size_t>(use.loops[shared])];
        first = range.first;
        last = range.last;
      }
      slot.first = std::min(slot.first, first);
      slot.last = std::max(slot.last, last);
    }
    if (slot.is_fetched) slot.last = plan->positions;
    if (slot.kind == SlotKind::arena) find_gaps(uses, list, &slot);
  }
}

std::int64_t peak_live(const Plan& plan) {
  std::vector<std::int64_t> change(static_cast<std::size_t>(plan.positions) + 2, 0);
  for (const Slot& slot : plan.slots) {
    if (slot.kind != SlotKind::arena || slot.last < slot.first) continue;
    change[static_cast<std::size_t>(slot.first)] += align_up(slot.bytes);
    change[static_cast<std::size_t>(slot.last) + 1] -= align_up(slot.bytes);
    for (const auto& [first, last] : slot.gaps) {
      change[static_cast<std::size_t>(first)] -= align_up(slot.bytes);
      change[static_cast<std::size_t>(last) + 1] += align_up(slot.bytes);
    }
  }
  std::int64_t live = 0, peak = 0;
  for (std::int64_t delta : change) peak = std::max(peak, live += delta);
  return peak;
}

// Gives the slots, in this order, the lowest offset that no slot alive at the same time covers. Returns where the
// last one ends.
std::int64_t pack(const Plan& plan, const std::vector<std::size_t>& slots, std::vector<std::int64_t>* offsets) {
  std::vector<std::size_t> placed;  // by offset
  std::int64_t end = 0;
  for (std::size_t i : slots) {
    const Slot& slot = plan.slots[i];
    const std::int64_t bytes = align_up(slot.bytes);
    std::int64_t offset = 0;
    for (std::size_t other_index : placed) {
      const Slot& other = plan.slots[other_index];
      if (!alive_together(slot, other)) continue;
      if ((*offsets)[other_index] >= offset + bytes) break;  // fits in the gap before it
      offset = std::max(offset, (*offsets)[other_index] + align_up(other.bytes));
    }
    if (offset > kMaxPlanBytes - bytes) {
      fail(ErrorKind::unsupported, "plan: memory for '{}', {} bytes, would end beyond 2^47 bytes", slot.name,
           slot.bytes);
    }
    (*offsets)[i] = offset;
    end = std::max(end, offset + bytes);
    placed.insert(std::upper_bound(placed.begin(), placed.end(), i,
                                   [&](std::size_t a, std::size_t b) { return (*offsets)[a] < (*offsets)[b]; }),
                  i);
  }
  return end;
}

}  // namespace

bool Slot::is_alive_at(int position) const {
  return first <= position && position <= last && behind_gap(*this, position) == position;
}

bool alive_together(const Slot& a, const Slot& b) {
  const int last = std::min(a.last, b.last);
  for (int position = std::max(a.first, b.first); position <= last;) {
    const int next = behind_gap(b, behind_gap(a, position));
    if (next == position) return true;
    position = next;
  }
  return false;
}

void place_slots(Plan* plan) {
  find_lifetimes(plan);
  plan->peak_live_bytes = peak_live(*plan);
  std::vector<std::size_t> slots;
  for (std::size_t i = 0; i < plan->slots.size(); ++i) {
    if (plan->slots[i].kind == SlotKind::arena && plan->slots[i].last >= plan->slots[i].first) slots.push_back(i);
  }
  // Which order packs best depends on the plan. Trying is cheap, and ends where nothing is left to gain.
  const auto bytes = [&](std::size_t i) { return plan->slots[i].bytes; };
  const auto steps = [&](std::size_t i) { return std::int64_t{plan->slots[i].last} - plan->slots[i].first + 1; };
  const std::function<bool(std::size_t, std::size_t)> orders[] = {
      [&](std::size_t a, std::size_t b) { return bytes(a) > bytes(b); },
      [&](std::size_t a, std::size_t b) {
        return double(bytes(a)) * double(steps(a)) > double(bytes(b)) * double(steps(b));
      },
      [&](std::size_t a, std::size_t b) { return plan->slots[a].first < plan->slots[b].first; },
      [&](std::size_t a, std::size_t b) { return plan->slots[a].last > plan->slots[b].last; },
      [&](std::size_t a, std::size_t b) { return steps(a) > steps(b); },
  };
  std::vector<std::int64_t> best;
  for (const auto& order : orders) {
    std::stable_sort(slots.begin(), slots.end(), order);
    std::vector<std::int64_t> offsets(plan->slots.size(), 0);
    const std::int64_t end = pack(*plan, slots, &offsets);
    if (best.empty() || end < plan->arena_bytes) best = std::move(offsets), plan->arena_bytes = end;
    if (plan->arena_bytes <= plan->peak_live_bytes) break;
  }
  for (std::size_t i : slots) plan->slots[i].offset = best[i];
}

std::int64_t alignment_of(const Operand& operand) {
  std::int64_t alignment = std::gcd(kSlotAlignment, operand.offset);
  for (const LoopTerm& term : operand.terms) alignment = std::gcd(alignment, term.stride);
  return alignment;
}

}  // namespace paoding
