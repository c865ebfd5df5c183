// SPDX-License-Identifier: Apache-2.0
// Where in a run on a GPU its segments of steps that run on the CPU (plan/host_steps.h) stand, and which memory of the
// program's slots each of them reads and writes.
#pragma once

#include <cstddef>
#include <cstdint>
#include <memory>
#include <vector>

#include "plan/host_steps.h"
#include "plan/plan.h"

namespace paoding {

/// Once that a segment comes.
struct HostRun {
  std::size_t first = 0, end = 0;  // launches
  std::size_t segment = 0;         // of HostRuns::segments
  std::vector<std::int64_t> at;    // bytes from the begin of its slot, per window of the segment
};

struct HostRuns {
  std::vector<std::unique_ptr<HostSegment>> segments;
  std::vector<HostRun> runs;  // in the order of their launches

  /// The run that begins with this launch; nullptr where none does.
  const HostRun* find(std::size_t launch) const;
  /// Whether a run begins with one of the launches [begin, end).
  bool begins_in(std::size_t begin, std::size_t end) const;
};

/// Error (unsupported) where values of one turn of a loop overlap in memory and move differently.
HostRuns host_runs_of(const Plan& plan, const std::vector<Launch>& launches);

}  // namespace paoding
