// SPDX-License-Identifier: Apache-2.0
// Where a run may fail or be called off, and which launches must then do nothing: commit guards (in front of the writes
// of parameters, runtime/gpu/commit_guard.h) and cancellation polls (runtime/gpu/cancel.h).
#pragma once

#include <cstddef>
#include <vector>

#include "paoding/program.h"
#include "plan/plan.h"

namespace paoding {

/// The places of guards and polls, and the facts about launches that decide them.
struct GuardPlan {
  std::vector<char> may_fault, writes, asks;  // per launch; asks whether the run is called off
  std::vector<std::size_t> guards;            // launches after which a guard runs: one for each repeat
  std::vector<std::size_t> polls;             // launches that a poll is in front of
  bool has_loop = false;                      // without a length: it may have to be called off
  double expected_us = 0;                     // of a run
  bool has_guard() const { return !guards.empty(); }
  /// Per launch: equal for neighbours that no guard stands between and that poll the same word before they write.
  std::vector<int> kinds(const std::vector<Launch>& launches) const;
};

/// Guards and polls of a captured run; of a run step by step only the facts.
GuardPlan plan_guards(const Plan& plan, const std::vector<Launch>& launches, int repeats, Execution execution);

}  // namespace paoding
