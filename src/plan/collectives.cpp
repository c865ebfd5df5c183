// SPDX-License-Identifier: Apache-2.0
// Collectives start as soon as their operands can be there, in that order: the other ranks need not wait for longer,
// and where a schedule has a stream for them, more is left to compute beside them. The needs of a collective are
// computed in front of all else; the one that needs least is the first.
#include <algorithm>
#include <utility>

#include "paoding/op.h"
#include "plan/order.h"
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

std::vector<NodeId> collectives_early(const Graph& graph, std::vector<NodeId> order) {
  const auto size = static_cast<std::size_t>(graph.size());
  struct Early {
    NodeId id = -1;
    std::vector<char> needs;
    std::int64_t count = 0;
  };
  std::vector<Early> collectives;
  for (NodeId id = 0; id < graph.size(); ++id) {
    if (graph.node(id).op->collective == Collective::none) continue;
    Early& each = collectives.emplace_back(Early{id, std::vector<char>(size, 0)});
    each.needs[static_cast<std::size_t>(id)] = 1;
    for (NodeId at = id; at >= 0; --at) {  // nodes come after their inputs
      if (each.needs[static_cast<std::size_t>(at)] == 0) continue;
      ++each.count;
      for (const Ref& ref : graph.node(at).inputs) each.needs[static_cast<std::size_t>(ref.node)] = 1;
    }
  }
  if (collectives.empty()) return order;
  std::ranges::stable_sort(collectives, {}, &Early::count);
  std::vector<NodeId> early;
  std::vector<char> is_in(size, 0);
  const auto add = [&](NodeId id) {
    if (std::exchange(is_in[static_cast<std::size_t>(id)], 1) == 0) early.push_back(id);
  };
  for (const Early& each : collectives) {
    for (const NodeId id : order) {
      if (each.needs[static_cast<std::size_t>(id)] != 0) add(id);
    }
  }
  for (const NodeId id : order) add(id);
  return early;
}

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
