// SPDX-License-Identifier: Apache-2.0
#include "schedule/completion.h"

#include <algorithm>
#include <set>
#include <utility>

#include "gpu/kernels/to_host_text.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostResultBytes = 4096;     // more than that a copy brings faster
constexpr std::size_t kMostResults = 32;            // of which the launch has arguments
constexpr std::size_t kMostEndLaunches = 64;        // of a run that is short enough to gain by a completion flag
constexpr std::int64_t kMostPacked = 64 << 10;      // bytes of all results that its kernel brings
constexpr std::int64_t kMostMovedBytes = 16 << 10;  // of a copy at the end

std::int64_t aligned(std::int64_t bytes) { return (bytes + 15) / 16 * 16; }

// One launch, in which nothing is chosen, and after which the host has nothing to do.
bool is_one_graph(const Schedule& schedule) {
  const auto is_plain = [](const LaunchEntry& entry) {
    using Kind = LaunchEntry::Kind;
    return entry.kind == Kind::launch || entry.kind == Kind::fused || entry.kind == Kind::guard ||
           entry.kind == Kind::results;
  };
  return schedule.segments.size() == 1 && !schedule.segments[0].prints &&
         std::ranges::all_of(schedule.entries, is_plain);
}

// The bytes that a step copies as they are from one place to another; 0 where it does anything else.
std::int64_t plainly_copied(const Step& step) {
  if (step.kind != Step::Kind::group || step.operands.size() != 2 || step.group.operands() != 2) return 0;
  const Group group = canonical(step.group);
  const GroupLoad& load = group.loads[0];
  const GroupOutput& output = group.outputs[0];
  const bool is_whole = group.rank() == 1 && load.strides[0] == 1 && output.strides[0] == 1;
  const ExprNode& value = group.expr.nodes()[static_cast<std::size_t>(output.value)];
  const bool is_same = load.dtype == output.dtype && output.reduce_mask == 0 && value.prim == Prim::input;
  return is_whole && is_same ? group.extents[0] * size_bytes(load.dtype) : 0;
}

// The copies that a run ends with, where nothing calls them off: a fused launch's all or none.
void move_copies(const Schedule& schedule, Completion* made) {
  std::set<int> written, read;  // slots
  for (; made->moved_from > 0 && !schedule.guards.has_guard(); --made->moved_from) {
    const LaunchEntry& entry = schedule.entries[made->moved_from - 1];
    if (entry.kind != LaunchEntry::Kind::launch && entry.kind != LaunchEntry::Kind::fused) return;
    std::vector<Completion::Moved> moved;
    std::set<int> also_written = written, also_read = read;
    for (const std::size_t i : schedule.members(entry)) {
      const Launch& launch = schedule.launches[i];
      const std::int64_t bytes = plainly_copied(*launch.step);
      if (bytes == 0 || bytes > kMostMovedBytes) return;
      const auto& [from, from_offset] = launch.addresses[0];
      const auto& [to, to_offset] = launch.addresses[1];
      if (from == to || also_written.contains(from) || also_written.contains(to) || also_read.contains(to)) return;
      also_written.insert(to), also_read.insert(from);
      moved.push_back({{to, to_offset}, {from, from_offset}, bytes});
    }
    if (made->moved.size() + moved.size() > gpu::kMostMoved / 2) return;
    written = std::move(also_written), read = std::move(also_read);
    made->moved.insert(made->moved.end(), moved.begin(), moved.end());
  }
}

}  // namespace

PackedResults packed_results(const Plan& plan) {
  PackedResults made;
  const auto is_variant = [](const Plan::Fetch& fetch) { return !fetch.alternatives.empty(); };
  if (std::ranges::none_of(plan.fetches, is_variant)) return made;
  // All of a fetch or nothing.
  const auto add = [&](const Plan::Fetch& fetch) {
    std::vector<const Operand*> all{&fetch.operand};
    for (const Operand& alternative : fetch.alternatives) all.push_back(&alternative);
    std::int64_t bytes = 0;
    for (const Operand* each : all) bytes += aligned(size_bytes(each->layout.type));
    if (made.bytes + bytes > kMostResultBytes || made.results.size() + all.size() > kMostResults) return;
    for (const Operand* each : all) {
      const std::int64_t size = size_bytes(each->layout.type);
      made.results.push_back({each->slot, each->offset, size, made.bytes});
      made.bytes += aligned(size);
    }
  };
  for (const Plan::Fetch& fetch : plan.fetches) {
    if (is_variant(fetch)) add(fetch);
  }
  if (made.results.empty()) return made;
  for (const Plan::Fetch& fetch : plan.fetches) {
    if (!is_variant(fetch)) add(fetch);
  }
  return made;
}

Completion plan_completion(const Plan& plan, const Schedule& schedule, bool packs) {
  Completion made;
  made.moved_from = schedule.entries.size();
  if (schedule.launches.size() > kMostEndLaunches || !is_one_graph(schedule)) return made;
  made.can_signal = true;
  made.packed_bytes = Completion::kCounters;
  move_copies(schedule, &made);
  std::set<int> written;
  for (const Completion::Moved& each : made.moved) written.insert(each.to.slot);
  std::set<std::pair<int, std::int64_t>> places;
  for (const Plan::Fetch& fetch : plan.fetches) {
    const Operand& operand = fetch.operand;
    const std::int64_t bytes = size_bytes(operand.layout.type);
    const bool fits = made.packed_bytes + bytes <= Completion::kCounters + kMostPacked &&
                      made.moved.size() + made.packed.size() < gpu::kMostMoved;
    if (!packs || !fits || bytes == 0 || written.contains(operand.slot)) continue;
    if (!places.emplace(operand.slot, operand.offset).second) continue;  // fetched twice
    made.packed.push_back({operand.slot, operand.offset, bytes, made.packed_bytes});
    made.packed_bytes += aligned(bytes);
  }
  return made;
}

}  // namespace paoding
