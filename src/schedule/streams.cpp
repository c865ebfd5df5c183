// SPDX-License-Identifier: Apache-2.0
// Collectives of a captured run are in a stream of their own, beside which the other launches go on. The first launch
// after one that touches its memory waits for it; so does the end, and all that is no plain launch.
#include <algorithm>

#include "base/run_switches.h"
#include "schedule/independent.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

struct InFlight {
  int entry = -1;
  MemoryRanges memory;
};

}  // namespace

void order_streams(const Plan& plan, Schedule* schedule) {
  if (!run_switches().overlapped_collectives.value_or(true)) return;
  const std::vector<std::byte*> bases = pretended_addresses(plan);
  std::vector<InFlight> in_flight;  // in their order, none of which has been waited for
  for (std::size_t k = 0; k < schedule->entries.size(); ++k) {
    LaunchEntry& entry = schedule->entries[k];
    const bool is_plain = entry.body_of < 0 && entry.branch < 0 &&
                          (entry.kind == LaunchEntry::Kind::launch || entry.kind == LaunchEntry::Kind::fused);
    MemoryRanges memory;
    for (const std::size_t i : schedule->members(entry)) {
      const MemoryRanges more = ranges_of(schedule->launches[i], bases);
      memory.insert(memory.end(), more.begin(), more.end());
    }
    if (is_plain && entry.kind == LaunchEntry::Kind::launch && is_collective(*schedule->launches[entry.launch].step)) {
      entry.stream = 1;  // behind the collectives before it
      in_flight.push_back({static_cast<int>(k), std::move(memory)});
      continue;
    }
    if (entry.kind == LaunchEntry::Kind::poll) continue;  // it reads a word of the host's
    const auto last = std::find_if(in_flight.rbegin(), in_flight.rend(),
                                   [&](const InFlight& each) { return !is_plain || collide(each.memory, memory); });
    if (last == in_flight.rend()) continue;
    entry.waits_for = last->entry;
    in_flight.erase(in_flight.begin(), last.base());
  }
}

}  // namespace paoding
