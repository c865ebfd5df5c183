// SPDX-License-Identifier: Apache-2.0
#include "plan/host_steps.h"

#include <algorithm>
#include <array>
#include <functional>
#include <numeric>
#include <set>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"
#include "base/slot_alignment.h"

namespace paoding {
namespace {

// Calls visit(operand, is_write, is_certain) for all operands of the step and those in it; is_certain is false inside a
// branch or a loop, which may not run.
template <class Visit>
void for_each_operand(const Step& step, const Visit& visit, bool is_certain = true) {
  for (std::size_t i = 0; i < step.operands.size(); ++i) visit(step.operands[i], i >= step.reads, is_certain);
  for (const std::vector<Step>* body : step.bodies()) {
    for (const Step& inner : *body) for_each_operand(inner, visit, false);
  }
}

std::int64_t elements(const Operand& operand) { return operand.layout.type.shape.elements(); }

}  // namespace

bool runs_on_host(const Target& target, const Step& step) {
  return target.is_gpu() && step.label.placement == Placement::cpu && step.kind != Step::Kind::print;
}

bool holds_host_steps(const Target& target, const Step& step) {
  const auto holds = [&](const Step& inner) { return holds_host_steps(target, inner); };
  return runs_on_host(target, step) ||
         std::ranges::any_of(step.bodies(), [&](const auto* body) { return std::ranges::any_of(*body, holds); });
}

// A step's level is how often its inputs have changed sides; on each, the CPU's steps come first.
void order_host_steps(const Target& target, int slots, std::vector<Step>* steps) {
  if (std::ranges::none_of(*steps, [&](const Step& step) { return runs_on_host(target, step); })) return;
  // For each slot the highest levels of steps on either side that wrote, or read, it.
  constexpr int kNone = -1;
  using Levels = std::array<int, 2>;  // on the GPU, on the CPU
  std::vector<Levels> written(static_cast<std::size_t>(slots), {kNone, kNone}), read = written;
  std::vector<std::pair<int, int>> keys;  // level; 0 on the CPU, 1 on the GPU
  for (const Step& step : *steps) {
    const bool is_host = runs_on_host(target, step);
    int level = 0;
    const auto behind = [&](const Levels& of) {
      level = std::max({level, of[0] + (is_host && of[0] != kNone ? 1 : 0), of[1]});
    };
    for_each_operand(step, [&](const Operand& operand, bool is_write, bool) {
      behind(written[static_cast<std::size_t>(operand.slot)]);
      if (is_write) behind(read[static_cast<std::size_t>(operand.slot)]);
    });
    for_each_operand(step, [&](const Operand& operand, bool is_write, bool) {
      int& highest = (is_write ? written : read)[static_cast<std::size_t>(operand.slot)][is_host ? 1 : 0];
      highest = std::max(highest, level);
    });
    keys.emplace_back(level, is_host ? 0 : 1);
  }
  std::vector<std::size_t> order(steps->size());
  std::iota(order.begin(), order.end(), std::size_t{0});
  std::ranges::stable_sort(order, {}, [&](std::size_t i) { return keys[i]; });
  std::vector<Step> sorted;
  for (const std::size_t i : order) sorted.push_back(std::move((*steps)[i]));
  *steps = std::move(sorted);
}

namespace {

// Calls visit(list, step) for the list and all that are inside.
template <class Visit>
void for_each_list(const std::vector<Step>& steps, const Visit& visit) {
  visit(steps);
  for (const Step& step : steps) {
    for (const auto* body : step.bodies()) for_each_list(*body, visit);
  }
}

// The bytes from the first that a value's elements touch to the end of the last, relative to its address.
std::pair<std::int64_t, std::int64_t> reach_of(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  if (shape.elements() == 0) return {0, 0};
  std::int64_t lowest = 0, highest = 1;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const std::int64_t reach = (shape[axis] - 1) * layout.strides[static_cast<std::size_t>(axis)];
    (reach < 0 ? lowest : highest) += reach;
  }
  const std::int64_t size = size_bytes(layout.type.dtype);
  return {lowest * size, highest * size};
}

// Makes the plan of a segment: its steps, with windows as slots.
class SegmentPlan {
 public:
  SegmentPlan(const Plan& plan, HostSegment* segment) : plan_(plan), segment_(*segment), own_(segment->plan) {}

  void make() {
    own_.steps.assign(segment_.list->begin() + static_cast<std::ptrdiff_t>(segment_.first),
                      segment_.list->begin() + static_cast<std::ptrdiff_t>(segment_.end));
    own_.commit = own_.steps.size();
    own_.loops = plan_.loops;
    for_each_list(own_.steps, [&](const std::vector<Step>& list) {
      for (const Step& step : list) {
        if (step.kind == Step::Kind::loop) inside_.insert(step.loop);
      }
    });
    for (Step& step : own_.steps) take_windows(&step);
    measure();
    for (Step& step : own_.steps) move(&step);
    find_inputs();
    find_outputs();
    for (std::size_t k = 0; k < own_.slots.size(); ++k) {
      own_.slots[k].kind = segment_.windows[k].is_input ? SlotKind::input : SlotKind::arena;
    }
    place_slots(&own_);
  }

 private:
  const Slot& slot_of(const HostWindow& window) const { return plan_.slots[static_cast<std::size_t>(window.slot)]; }

  // Values that move alike with the loops around share a window.
  void take_windows(Step* step) {
    for (Operand& operand : step->operands) {
      std::vector<LoopTerm> inner, outer;
      for (LoopTerm term : operand.terms) {
        if (term.modulus == 0) operand.offset += std::exchange(term.shift, 0) * term.stride;
        (inside_.contains(term.loop) ? inner : outer).push_back(term);
      }
      std::size_t k = 0;
      while (k < moves_.size() && (segment_.windows[k].slot != operand.slot || moves_[k] != outer)) ++k;
      if (k == moves_.size()) {
        segment_.windows.push_back({.slot = operand.slot});
        own_.slots.push_back(plan_.slots[static_cast<std::size_t>(operand.slot)]);
        moves_.push_back(std::move(outer));
      }
      operand.slot = static_cast<int>(k);
      operand.terms = std::move(inner);
    }
    for (auto* body : step->bodies()) {
      for (Step& inner : *body) take_windows(&inner);
    }
  }

  void measure() {
    constexpr std::int64_t kNone = kMaxPlanBytes;
    std::vector<std::pair<std::int64_t, std::int64_t>> ranges(own_.slots.size(), {kNone, 0});
    for (const Launch& launch : unroll(own_)) {
      for (std::size_t i = 0; i < launch.addresses.size(); ++i) {
        const auto [low, high] = reach_of(launch.step->operands[i].layout);
        if (low == high) continue;
        const auto& [slot, offset] = launch.addresses[i];
        auto& [first, end] = ranges[static_cast<std::size_t>(slot)];
        first = std::min(first, offset + low);
        end = std::max(end, offset + high);
      }
    }
    for (std::size_t k = 0; k < ranges.size(); ++k) {
      HostWindow& window = segment_.windows[k];
      auto [first, end] = ranges[k];
      window.is_fed = slot_of(window).kind == SlotKind::input && moves_[k].empty();
      if (window.is_fed) first = 0, end = slot_of(window).bytes;
      if (first == kNone) first = 0;
      begins_.push_back(first / kSlotAlignment * kSlotAlignment);
      window.lead = first - begins_.back();
      window.bytes = end - first;
      own_.slots[k].bytes = window.lead + window.bytes;
      own_.slots[k].gaps.clear();
    }
  }

  void move(Step* step) {
    for (Operand& operand : step->operands) operand.offset -= begins_[static_cast<std::size_t>(operand.slot)];
    for (auto* body : step->bodies()) {
      for (Step& inner : *body) move(&inner);
    }
  }

  void find_inputs() {
    std::set<int> whole;
    for (const Step& step : own_.steps) {
      for_each_operand(step, [&](const Operand& operand, bool is_write, bool) {
        if (!is_write && !whole.contains(operand.slot)) window(operand).is_input = true;
      });
      for_each_operand(step, [&](const Operand& operand, bool is_write, bool is_certain) {
        if (!is_write) return;
        written_.insert(operand.slot);
        HostWindow& to = window(operand);
        const bool is_whole = is_certain && operand.offset == to.lead && operand.terms.empty() &&
                              operand.layout.is_dense() && size_bytes(operand.layout.type) == to.bytes;
        if (is_whole && !to.is_input) whole.insert(operand.slot);
        if (!whole.contains(operand.slot) && elements(operand) != 0) to.is_input = true;
      });
    }
  }

  // Others may read it, or it itself when it comes again, where that is another window.
  void find_outputs() {
    const bool comes_again = segment_.list != &plan_.steps;
    for (const int k : written_) {
      HostWindow& to = segment_.windows[static_cast<std::size_t>(k)];
      to.is_output = slot_of(to).is_fetched || slot_of(to).kind != SlotKind::arena;
      for_each_list(plan_.steps, [&](const std::vector<Step>& list) {
        for (std::size_t i = 0; i < list.size() && !to.is_output; ++i) {
          if (&list == segment_.list && i >= segment_.first && i < segment_.end) continue;
          if (is_inside(&list)) continue;
          to.is_output = std::ranges::any_of(list[i].operands, [&](const Operand& o) { return o.slot == to.slot; });
        }
      });
      const auto reads_again = [&](const HostWindow& from) { return from.is_input && from.slot == to.slot; };
      to.is_output |= comes_again && std::ranges::any_of(segment_.windows, reads_again);
    }
    for (std::size_t k = 0; k < own_.slots.size(); ++k)
      own_.slots[k].is_fetched = written_.contains(static_cast<int>(k));
  }

  // Whether the list is in a step of the segment.
  bool is_inside(const std::vector<Step>* list) const {
    bool found = false;
    for (std::size_t i = segment_.first; i < segment_.end; ++i) {
      for (const auto* body : (*segment_.list)[i].bodies()) {
        for_each_list(*body, [&](const std::vector<Step>& inner) { found |= &inner == list; });
      }
    }
    return found;
  }

  HostWindow& window(const Operand& operand) { return segment_.windows[static_cast<std::size_t>(operand.slot)]; }

  const Plan& plan_;
  HostSegment& segment_;
  Plan& own_;
  std::set<int> inside_;                      // loops
  std::vector<std::vector<LoopTerm>> moves_;  // per window: with the loops around
  std::vector<std::int64_t> begins_;          // per window: of its own slot, in the program's
  std::set<int> written_;                     // windows
};

}  // namespace

std::vector<std::unique_ptr<HostSegment>> host_segments(const Plan& plan) {
  std::vector<std::unique_ptr<HostSegment>> segments;
  const std::function<void(const std::vector<Step>&)> find = [&](const std::vector<Step>& list) {
    HostSegment* last = nullptr;
    for (std::size_t i = 0; i < list.size(); ++i) {
      if (!runs_on_host(*plan.target, list[i])) {
        for (const auto* body : list[i].bodies()) find(*body);
        continue;
      }
      if (last == nullptr || last->end != i) {
        last = segments.emplace_back(std::make_unique<HostSegment>()).get();
        last->list = &list;
        last->first = i;
      }
      last->end = i + 1;
    }
  };
  find(plan.steps);
  for (const auto& segment : segments) SegmentPlan(plan, segment.get()).make();
  return segments;
}

void note_host_segments(Plan* plan) {
  for (const auto& segment : host_segments(*plan)) {
    const Step& first = (*segment->list)[segment->first];
    const auto copied = [](const HostWindow& window) { return window.is_input && !window.is_fed; };
    plan->notes.push_back(fmt::format(
        "{}{}: {} steps run on the CPU between graphs{}; {} values are copied from the GPU, {} to it",
        one_line(first.label.op), in_scope(first.label.scope), segment->end - segment->first,
        segment->list == &plan->steps ? "" : ", each time that they come: what is around is driven by the host",
        std::ranges::count_if(segment->windows, copied),
        std::ranges::count(segment->windows, true, &HostWindow::is_output)));
  }
}

}  // namespace paoding
