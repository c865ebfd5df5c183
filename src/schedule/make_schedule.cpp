// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <utility>

#include "schedule/schedule.h"

namespace paoding {

std::span<const std::size_t> Schedule::members(const LaunchEntry& entry) const {
  using Kind = LaunchEntry::Kind;
  if (entry.kind == Kind::fused) return fused[static_cast<std::size_t>(entry.fused)].launches;
  const bool starts_one = entry.kind == Kind::launch || entry.kind == Kind::print;
  return {&entry.launch, starts_one ? 1u : 0u};
}

std::int64_t Schedule::starts() const {
  auto count = static_cast<std::int64_t>(launches.size());
  count -= std::ranges::count(launches, Launch::Kind::jump, &Launch::kind);
  for (const FusedLaunch& each : fused) count -= static_cast<std::int64_t>(each.launches.size()) - 1;
  return count;
}

bool Schedule::needs_graph() const {
  return std::ranges::any_of(entries, [this](const LaunchEntry& entry) { return holds_bodies(entry); });
}

std::vector<std::byte*> pretended_addresses(const Plan& plan) {
  constexpr std::uintptr_t kBegin = std::uintptr_t{1} << 20, kAligned = 256;
  const auto bytes_of = [](std::int64_t bytes) {
    return (static_cast<std::uintptr_t>(bytes) / kAligned + 1) * kAligned;
  };
  std::uintptr_t next = kBegin + bytes_of(plan.arena_bytes);
  std::vector<std::byte*> addresses;
  for (const Slot& slot : plan.slots) {
    std::uintptr_t at = kBegin + static_cast<std::uintptr_t>(slot.offset);
    if (slot.kind != SlotKind::arena) at = std::exchange(next, next + bytes_of(slot.bytes));
    addresses.push_back(reinterpret_cast<std::byte*>(at));
  }
  return addresses;
}

Schedule make_schedule(const Plan& plan, const ScheduleOptions& options) {
  const bool on_gpu = plan.target->is_gpu(), is_stepwise = options.execution == Execution::stepwise;
  const bool is_captured = on_gpu && !is_stepwise && !options.in_callers_stream;
  Schedule schedule;
  schedule.repeats = options.repeats;
  schedule.is_captured = is_captured;
  schedule.launches = unroll(plan, options.repeats);
  if (on_gpu) {
    schedule.host = host_runs_of(plan, schedule.launches);
    const Execution guarded = is_captured ? Execution::captured : Execution::stepwise;
    schedule.guards = plan_guards(plan, schedule.launches, options.repeats, guarded);
    if (options.fuses_launches && !is_stepwise) fuse_launches(plan, &schedule);
  }
  if (!on_gpu && options.batches_groups) batch_groups(plan, &schedule);
  if (is_captured) schedule.results = packed_results(plan);
  order_entries(&schedule, !on_gpu || is_stepwise);
  if (is_captured) order_streams(plan, &schedule);
  cut_segments(&schedule);
  if (is_captured) schedule.completion = plan_completion(plan, schedule, schedule.results.results.empty());
  return schedule;
}

}  // namespace paoding
