// SPDX-License-Identifier: Apache-2.0
// A plan as text, for `paoding dump --plan` and golden tests.
#include <algorithm>
#include <map>
#include <set>
#include <span>

#include "base/check.h"
#include "base/one_line.h"
#include "plan/plan.h"

namespace paoding {
namespace {

std::string operand_text(const Plan& plan, const Operand& operand) {
  const Slot& slot = plan.slots[static_cast<std::size_t>(operand.slot)];
  std::string text = slot.kind == SlotKind::arena ? fmt::format("s{}", operand.slot) : one_line(slot.name);
  if (operand.offset != 0) text += fmt::format("+{}", operand.offset);
  for (const LoopTerm& term : operand.terms) {
    const std::string turn =
        term.shift == 0 ? fmt::format("t{}", term.loop) : fmt::format("(t{}+{})", term.loop, term.shift);
    text += term.modulus != 0 ? fmt::format("+{}%{}*{}", turn, term.modulus, term.stride)
                              : fmt::format("{:+}*{}", term.stride, turn);
  }
  text += ":" + to_string(operand.layout.type);
  if (!operand.layout.is_dense()) {
    const auto rank = static_cast<std::size_t>(operand.layout.type.shape.rank());
    text += fmt::format("/({})", fmt::join(operand.layout.strides.begin(),
                                           operand.layout.strides.begin() + static_cast<std::ptrdiff_t>(rank), ","));
  }
  return text;
}

// "mul*3+sigmoid+sum": members in order of first appearance, counted.
std::string members_text(const std::vector<std::string>& members) {
  std::vector<std::pair<std::string, int>> counted;
  std::map<std::string_view, std::size_t> places;
  for (const std::string& member : members) {
    const auto [it, is_new] = places.try_emplace(member, counted.size());
    if (is_new) counted.emplace_back(member, 0);
    ++counted[it->second].second;
  }
  std::string text;
  for (const auto& [name, count] : counted) {
    text += (text.empty() ? "" : "+") + name + (count > 1 ? fmt::format("*{}", count) : "");
  }
  return text;
}

std::string placement_text(const Step& step) { return step.label.placement == Placement::cpu ? " @cpu" : ""; }

void print_steps(const Plan& plan, std::span<const Step> steps, const std::string& indent, std::string* out) {
  for (const Step& step : steps) {
    const std::string scope = step.label.scope.empty() ? "" : " @" + one_line(step.label.scope);
    if (step.kind == Step::Kind::loop) {
      *out +=
          fmt::format("{}for t{} in 0..{} ({}){}\n", indent, step.loop, step.length, one_line(step.label.op), scope);
      print_steps(plan, step.body, indent + "  ", out);
      continue;
    }
    if (step.kind == Step::Kind::branch) {
      *out += fmt::format("{}{:>3} switch {} ({}){}{}{}\n", indent, step.position, operand_text(plan, step.operands[0]),
                          one_line(step.label.op), step.is_conditional ? " conditional node" : "", placement_text(step),
                          scope);
      for (std::size_t k = 0; k < step.branches.size(); ++k) {
        *out += fmt::format("{}{}:\n", indent, k + 1 < step.branches.size() ? fmt::format("case {}", k) : "else");
        print_steps(plan, step.branches[k], indent + "  ", out);
      }
      continue;
    }
    if (step.kind == Step::Kind::repeat) {
      *out += fmt::format("{}repeat ({}){}{}\n", indent, one_line(step.label.op), placement_text(step), scope);
      print_steps(plan, step.condition, indent + "  ", out);
      *out += fmt::format("{}while {}\n", indent, operand_text(plan, step.operands[0]));
      print_steps(plan, step.body, indent + "  ", out);
      continue;
    }
    std::string reads, writes;
    for (std::size_t i = 0; i < step.operands.size(); ++i) {
      std::string& list = i < step.reads ? reads : writes;
      list += (list.empty() ? "" : ", ") + operand_text(plan, step.operands[i]);
    }
    const std::string how = step.kind == Step::Kind::kernel  ? step.kernel->name
                            : step.kind == Step::Kind::print ? "print"
                                                             : "group";
    const std::string members =
        step.label.members.empty() ? "" : "[" + one_line(members_text(step.label.members)) + "]";
    *out += fmt::format("{}{:>3} {}{} {} <- {}  ({}){}\n", indent, step.position, one_line(step.label.op), members,
                        writes, reads.empty() ? "nothing" : reads, how, placement_text(step) + scope);
  }
}

std::vector<std::size_t> alive_at(const Plan& plan, int position) {
  std::vector<std::size_t> alive;
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    if (plan.slots[i].kind == SlotKind::arena && plan.slots[i].is_alive_at(position)) alive.push_back(i);
  }
  return alive;
}

}  // namespace

std::vector<const Slot*> largest_at_peak(const Plan& plan, std::size_t count) {
  std::vector<const Slot*> slots;
  for (const std::size_t i : alive_at(plan, live_peak(plan, 1).position)) slots.push_back(&plan.slots[i]);
  std::ranges::stable_sort(slots, std::ranges::greater(), &Slot::bytes);
  if (slots.size() > count) slots.resize(count);
  return slots;
}

std::string largest_slots(const Plan& plan, std::size_t count) {
  std::vector<std::size_t> alive = alive_at(plan, live_peak(plan, 1).position);
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {  // always there, outside of the arena
    if (plan.slots[i].kind == SlotKind::input || plan.slots[i].kind == SlotKind::state) alive.push_back(i);
  }
  std::stable_sort(alive.begin(), alive.end(),
                   [&](std::size_t a, std::size_t b) { return plan.slots[a].bytes > plan.slots[b].bytes; });
  if (alive.size() > count) alive.resize(count);
  std::string text;
  for (std::size_t i : alive) {
    const Slot& slot = plan.slots[i];
    const std::string when = slot.kind == SlotKind::input   ? "an input"
                             : slot.kind == SlotKind::state ? "state of a kernel"
                                                            : fmt::format("steps {}..{}", slot.first, slot.last);
    text += fmt::format("{}{} ({} bytes, {})", text.empty() ? "" : ", ", one_line(slot.name), slot.bytes, when);
  }
  return text;
}

std::string to_string(const Plan& plan) {
  std::string text = fmt::format("plan for {}: {} steps, {} launches, arena {} bytes (peak live {})\n",
                                 plan.target->is_gpu() ? "cuda" : "cpu", plan.positions, count_launches(plan.steps),
                                 plan.arena_bytes, plan.peak_live_bytes);
  const std::span<const Step> steps = plan.steps;
  print_steps(plan, steps.first(plan.commit), "", &text);
  if (plan.commit < steps.size()) text += "commit: from here on parameters are written, and nothing can fail\n";
  print_steps(plan, steps.subspan(plan.commit), "", &text);
  for (const Plan::Fetch& fetch : plan.fetches) {
    text += fmt::format("fetch {} = {}", one_line(fetch.name), operand_text(plan, fetch.operand));
    for (std::size_t i = 0; i < fetch.alternatives.size(); ++i) {
      text += fmt::format("{} {}", i == 0 ? " of" : ",", operand_text(plan, fetch.alternatives[i]));
    }
    text += "\n";
  }
  text += "slots\n";
  std::set<int> constants;
  for (const auto& [slot, tensor] : plan.constants) constants.insert(slot);
  for (std::size_t i = 0; i < plan.slots.size(); ++i) {
    const Slot& slot = plan.slots[i];
    if (slot.kind != SlotKind::arena) {
      text += fmt::format("  {} {} bytes, {}\n", one_line(slot.name), slot.bytes,
                          constants.contains(static_cast<int>(i)) ? "constant"
                          : slot.kind == SlotKind::input          ? "input"
                          : slot.kind == SlotKind::state          ? "state of a kernel"
                                                                  : "parameter");
    } else if (slot.last >= slot.first) {
      std::string gaps;
      for (const auto& [first, last] : slot.gaps) gaps += fmt::format(" but {}..{}", first, last);
      text += fmt::format("  s{} {} bytes at {}, steps {}..{}{}, {}{}\n", i, slot.bytes, slot.offset, slot.first,
                          slot.last, gaps, one_line(slot.name), slot.is_fetched ? ", fetched" : "");
    }
  }
  const int worst = live_peak(plan, 1).position;
  text += fmt::format("peak at step {}:", worst);
  for (std::size_t i : alive_at(plan, worst)) {
    text += fmt::format(" s{} ({}, {})", i, one_line(plan.slots[i].name), plan.slots[i].bytes);
  }
  text += "\n";
  for (const std::string& note : plan.notes) text += "note: " + note + "\n";
  return text;
}

}  // namespace paoding
