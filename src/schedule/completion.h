// SPDX-License-Identifier: Apache-2.0
// How a run's end and its small results reach a host that waits for them (runtime/gpu/completion_flag.h, results.h).
#pragma once

#include <cstddef>
#include <cstdint>
#include <vector>

#include "plan/plan.h"

namespace paoding {

struct Schedule;

/// A result that a kernel copies into the host's memory.
struct PackedResult {
  int slot = -1;
  std::int64_t offset = 0, bytes = 0;
  std::int64_t at = 0;  // where in that memory
};

/// Small results that the last kernel of a run leaves in the host's memory: of a program that fetches a Variant, since
/// only the run knows which alternative was taken.
struct PackedResults {
  std::vector<PackedResult> results;
  std::int64_t bytes = 0;
};
PackedResults packed_results(const Plan& plan);

/// The copies that the kernel of the completion flag makes before it sets the flag.
struct Completion {
  struct Place {
    int slot = -1;
    std::int64_t offset = 0;
  };
  /// A plain copy that a step at the end of the run would make.
  struct Moved {
    Place to, from;
    std::int64_t bytes = 0;
  };
  bool can_signal = false;     // short runs without choices
  std::size_t moved_from = 0;  // the entries from this one on are `moved`
  std::vector<Moved> moved;
  std::vector<PackedResult> packed;  // fetches
  std::int64_t packed_bytes = 0;

  static constexpr std::int64_t kCounters = 64;  // bytes in front of the packed results
};
/// `packs`: small fetches are copied to the host.
Completion plan_completion(const Plan& plan, const Schedule& schedule, bool packs);

}  // namespace paoding
