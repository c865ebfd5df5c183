// SPDX-License-Identifier: Apache-2.0
#include "plan/host_steps.h"

#include <algorithm>
#include <array>
#include <map>
#include <numeric>
#include <set>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding {
namespace {

// Calls visit(operand, is_write, is_certain) for all that the step and those in it touch; what is in a branch or a loop
// may not happen.
template <class Visit>
void for_each_operand(const Step& step, const Visit& visit, bool is_certain = true) {
  for (std::size_t i = 0; i < step.operands.size(); ++i) visit(step.operands[i], i >= step.reads, is_certain);
  for (const std::vector<Step>* body : step.bodies()) {
    for (const Step& inner : *body) for_each_operand(inner, visit, false);
  }
}

void refuse_inside(const Step& step, const Step& outer) {
  for (const std::vector<Step>* body : step.bodies()) {
    for (const Step& inner : *body) {
      if (inner.label.placement == Placement::cpu) {
        fail(ErrorKind::unsupported,
             "{}: is to run on the CPU, inside a {} that runs on the GPU{}\nhint: the whole {} can be OnCpu",
             one_line(inner.label.op), one_line(outer.label.op), in_scope(inner.label.scope), one_line(outer.label.op));
      }
      refuse_inside(inner, outer);
    }
  }
}

std::int64_t elements(const Operand& operand) { return operand.layout.type.shape.elements(); }

}  // namespace

bool runs_on_host(const Target& target, const Step& step) {
  return target.is_gpu() && step.label.placement == Placement::cpu && step.kind != Step::Kind::print;
}

// A step's level is how often what it needs has changed sides; on each, the CPU's steps come first.
void order_host_steps(const Target& target, int slots, std::vector<Step>* steps) {
  bool has_any = false;
  for (const Step& step : *steps) {
    if (runs_on_host(target, step)) {
      has_any = true;
    } else if (target.is_gpu()) {
      refuse_inside(step, step);
    }
  }
  if (!has_any) return;
  // Of each slot: the highest levels of steps on either side that wrote, or read, it.
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

Operand whole_slot(const Plan& plan, int slot) {
  return {slot, 0, {}, Layout::dense({DType::u8, Shape{plan.slots[static_cast<std::size_t>(slot)].bytes}})};
}

std::vector<std::unique_ptr<HostStretch>> host_stretches(const Plan& plan) {
  std::vector<std::unique_ptr<HostStretch>> stretches;
  for (std::size_t i = 0; i < plan.steps.size(); ++i) {
    if (!runs_on_host(*plan.target, plan.steps[i])) continue;
    if (stretches.empty() || stretches.back()->end != i) {
      stretches.push_back(std::make_unique<HostStretch>());
      stretches.back()->first = i;
    }
    stretches.back()->end = i + 1;
  }
  for (const auto& stretch : stretches) {
    std::set<int> inputs, whole, written;
    for (std::size_t i = stretch->first; i < stretch->end; ++i) {
      const Step& step = plan.steps[i];
      for_each_operand(step, [&](const Operand& operand, bool is_write, bool) {
        if (!is_write && !whole.contains(operand.slot)) inputs.insert(operand.slot);
      });
      for_each_operand(step, [&](const Operand& operand, bool is_write, bool is_certain) {
        if (!is_write) return;
        written.insert(operand.slot);
        const std::int64_t bytes = plan.slots[static_cast<std::size_t>(operand.slot)].bytes;
        const bool is_whole = is_certain && operand.offset == 0 && operand.terms.empty() && operand.layout.is_dense() &&
                              size_bytes(operand.layout.type) == bytes;
        if (is_whole && !inputs.contains(operand.slot)) whole.insert(operand.slot);
        if (!whole.contains(operand.slot) && elements(operand) != 0) inputs.insert(operand.slot);
      });
    }
    for (const int slot : written) {
      bool is_read = plan.slots[static_cast<std::size_t>(slot)].is_fetched ||
                     plan.slots[static_cast<std::size_t>(slot)].kind != SlotKind::arena;
      for (std::size_t i = 0; i < plan.steps.size() && !is_read; ++i) {
        if (i >= stretch->first && i < stretch->end) continue;
        for_each_operand(plan.steps[i], [&](const Operand& operand, bool, bool) { is_read |= operand.slot == slot; });
      }
      if (is_read) stretch->outputs.push_back(slot);
    }
    stretch->inputs.assign(inputs.begin(), inputs.end());

    Plan& own = stretch->plan;
    own.steps.assign(plan.steps.begin() + static_cast<std::ptrdiff_t>(stretch->first),
                     plan.steps.begin() + static_cast<std::ptrdiff_t>(stretch->end));
    own.commit = own.steps.size();
    own.loops = plan.loops;
    own.slots = plan.slots;
    for (std::size_t s = 0; s < own.slots.size(); ++s) {
      Slot& slot = own.slots[s];
      const int number = static_cast<int>(s);
      slot.is_fetched = written.contains(number);
      slot.kind = inputs.contains(number) ? SlotKind::input : SlotKind::arena;
      if (!inputs.contains(number) && !written.contains(number)) slot.bytes = 0;
    }
    place_slots(&own);
  }
  return stretches;
}

void note_host_stretches(Plan* plan) {
  for (const auto& stretch : host_stretches(*plan)) {
    const auto is_fed = [&](int slot) { return plan->slots[static_cast<std::size_t>(slot)].kind == SlotKind::input; };
    const auto fed = std::ranges::count_if(stretch->inputs, is_fed);
    plan->notes.push_back(
        fmt::format("{}{}: {} steps run on the CPU between graphs; {} values are copied from the GPU, {} to it",
                    one_line(plan->steps[stretch->first].label.op), in_scope(plan->steps[stretch->first].label.scope),
                    stretch->end - stretch->first, static_cast<std::ptrdiff_t>(stretch->inputs.size()) - fed,
                    stretch->outputs.size()));
  }
}

}  // namespace paoding
