// SPDX-License-Identifier: Apache-2.0
// The arena: when each slot is alive, and where it goes. Also unrolling, since both walk operands through loops.
#include <algorithm>
#include <functional>
#include <numeric>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "base/one_line.h"
#include "base/slot_alignment.h"
#include "plan/free_offsets.h"
#include "plan/plan.h"

namespace paoding {
namespace {

// Workspaces that neighbouring groups keep to themselves: of so many bytes, so many at once.
constexpr std::int64_t kHeldBytes = 256 << 10;
constexpr std::size_t kMostHeld = 64;

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
  // A step that branches: where each of its branches is, and the branching step around it, -1 where there is none.
  struct Fork {
    std::vector<LoopRange> branches;
    int around;
  };
  const std::vector<Slot>* slots = nullptr;
  bool is_gpu = false;
  int position = 0;
  std::vector<LoopRange> ranges;
  std::vector<int> open;
  std::vector<std::vector<Use>> of_slot;  // in the order of their positions
  std::vector<Fork> forks;
  std::vector<int> fork_at;  // per position: the innermost one in a branch of which it is, or -1
  int open_fork = -1;

  void walk(std::vector<Step>& steps) {
    std::vector<int> held;  // by the steps just before
    const Step* before = nullptr;
    for (Step& step : steps) {
      if (before == nullptr || !may_run_together(*before, step)) release(&held);
      before = &step;
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
      hold(step, &held);
      if (step.branches.empty()) continue;
      // Branches run one after the other, so the slots of one live at other positions than those of another.
      const int fork = static_cast<int>(forks.size());
      forks.push_back({{}, open_fork});
      open_fork = fork;
      for (auto& branch : step.branches) {
        const int first = position;
        walk(branch);
        forks[static_cast<std::size_t>(fork)].branches.push_back({first, position - 1});
      }
      open_fork = forks[static_cast<std::size_t>(fork)].around;
    }
    release(&held);
  }

  // On a GPU neighbouring groups have workspaces of their own, where they are small: they may run at the same time. Nor
  // does one's small value lie where another's was: they may run partition by partition, one after the other
  // (group/partition.h). Kernels that share a launch keep all they have to themselves.
  static bool may_run_together(const Step& a, const Step& b) {
    if (a.pipeline >= 0 && a.pipeline == b.pipeline) return true;
    if (a.kind == Step::Kind::group) return b.kind == Step::Kind::group;
    return a.may_be_grouped && b.may_be_grouped && a.call.op == b.call.op;
  }
  void hold(const Step& step, std::vector<int>* held) {
    const bool keeps_all = step.may_be_grouped || step.pipeline >= 0;
    if (step.kind != Step::Kind::group && !keeps_all) return;
    const auto add = [&](int slot) {
      const Slot& of = (*slots)[static_cast<std::size_t>(slot)];
      if (of.kind != SlotKind::arena || (of.bytes > kHeldBytes && !keeps_all)) return;
      if (held->size() == kMostHeld) release(held);
      if (std::ranges::find(*held, slot) == held->end()) held->push_back(slot);
    };
    if (step.workspace >= 0 && step.pipeline < 0)
      add(step.workspace);  // a layer pipeline's products are not a library's
    if (!is_gpu) return;
    for (const Operand& operand : step.operands) add(operand.slot);
  }
  void release(std::vector<int>* held) {
    for (const int slot : *held) of_slot[static_cast<std::size_t>(slot)].push_back({position - 1, open, true});
    held->clear();
  }

  int use(const Step& step) {
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      of_slot[static_cast<std::size_t>(step.operands[i].slot)].push_back({position, open, i >= step.reads});
    }
    if (step.workspace >= 0) of_slot[static_cast<std::size_t>(step.workspace)].push_back({position, open, true});
    fork_at.push_back(open_fork);
    return position++;
  }
};

// A slot that comes to life in one of several branches and is read after them is a result of theirs: each branch that
// runs writes it itself, so before that it holds nothing.
void find_gaps(const Uses& uses, const std::vector<Uses::Use>& list, Slot* slot) {
  const auto add_gap = [&](int first, int last) {
    if (first > last) return;
    const bool goes_on = !slot->gaps.empty() && slot->gaps.back().second + 1 == first;
    goes_on ? void(slot->gaps.back().second = last) : void(slot->gaps.emplace_back(first, last));
  };
  for (int at = uses.fork_at[static_cast<std::size_t>(slot->first)]; at >= 0;) {
    const Uses::Fork& fork = uses.forks[static_cast<std::size_t>(at)];
    at = fork.around;
    if (slot->last <= fork.branches.back().last) continue;
    int gap = slot->first;  // it may begin here, and goes on through branches that do not use the slot
    auto use = list.begin();
    while (use != list.end() && use->position <= fork.branches.back().last) {
      const auto branch = std::ranges::partition_point(
          fork.branches, [&](const LoopRange& range) { return range.last < use->position; });
      int written = use->position;
      for (int loop : use->loops) {  // written in a loop of the branch, it lives from the start of the loop
        const LoopRange& range = uses.ranges[static_cast<std::size_t>(loop)];
        if (range.first >= branch->first) written = std::min(written, range.first);
      }
      add_gap(gap, written - 1);
      gap = branch->last + 1;
      use = std::find_if(use, list.end(), [&](const Uses::Use& later) { return later.position > branch->last; });
    }
    add_gap(gap, fork.branches.back().last);
  }
}

// A slot whose first use is a write in a loop, and whose every use is in that loop without moving with it, lives
// within one turn. Anything else that a loop touches lives through the whole loop.
void find_lifetimes(Plan* plan) {
  Uses uses;
  uses.slots = &plan->slots;
  uses.is_gpu = plan->target->is_gpu();
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

// The times at which it holds something.
std::vector<PositionRange> alive(const Slot& slot) {
  std::vector<PositionRange> times;
  int position = slot.first;
  for (const auto& [first, last] : slot.gaps) {
    if (position < first) times.emplace_back(position, first - 1);
    position = last + 1;
  }
  if (position <= slot.last) times.emplace_back(position, slot.last);
  return times;
}

// Gives the slots, in this order, the lowest offset that no slot alive at the same time covers. Returns where the
// last one ends.
std::int64_t pack(const Plan& plan, const std::vector<std::size_t>& slots, std::vector<std::int64_t>* offsets) {
  FreeOffsets free(plan.positions + 1);
  std::int64_t end = 0;
  const CancelPoll poll;
  for (std::size_t i : slots) {
    poll();
    const Slot& slot = plan.slots[i];
    const std::int64_t bytes = slot_bytes(slot.bytes);
    if (bytes == 0) continue;
    const std::vector<PositionRange> times = alive(slot);
    const std::int64_t offset = free.lowest(times, bytes);
    if (offset > kMaxPlanBytes - bytes) {
      fail(ErrorKind::unsupported, "plan: memory for '{}', {} bytes, would end beyond 2^47 bytes", one_line(slot.name),
           slot.bytes);
    }
    (*offsets)[i] = offset;
    end = std::max(end, offset + bytes);
    free.take(times, offset, bytes);
  }
  return end;
}

}  // namespace

LivePeak live_peak(const Plan& plan, std::int64_t alignment) {
  std::vector<std::int64_t> change(static_cast<std::size_t>(plan.positions) + 2, 0);
  for (const Slot& slot : plan.slots) {
    if (slot.kind != SlotKind::arena || slot.last < slot.first) continue;
    const std::int64_t bytes = round_up(slot.bytes, alignment);
    for (const auto& [first, last] : alive(slot)) {
      change[static_cast<std::size_t>(first)] += bytes;
      change[static_cast<std::size_t>(last) + 1] -= bytes;
    }
  }
  LivePeak peak;
  std::int64_t live = 0;
  for (int position = 0; position <= plan.positions; ++position) {
    live += change[static_cast<std::size_t>(position)];
    if (live > peak.bytes) peak = {live, position};
  }
  return peak;
}

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

void find_lives(Plan* plan) {
  find_lifetimes(plan);
  plan->peak_live_bytes = live_peak(*plan, kSlotAlignment).bytes;
}

void place_slots(Plan* plan) {
  find_lives(plan);
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
