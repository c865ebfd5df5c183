// SPDX-License-Identifier: Apache-2.0
// How long the steps of a loop took the host: as they are marked, else from the start of a run to the start of the next
// on its thread. Steps are counted from 1 in the order of the recording, those of warming up among them.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "profile/budget.h"
#include "profile/intervals.h"

namespace paoding::profile {

/// Of some times the one in the middle; there is one.
std::int64_t median(std::vector<std::int64_t> all);

/// Steps that were recorded and steps around them that nobody recorded: how many, and what they took at the median.
struct StepsBeside {
  std::size_t recorded = 0, plain = 0;
  std::int64_t recorded_ns = 0, plain_ns = 0;
};

/// The steps of the thread with the most runs: from the start of a run to the start of the next, the last to where all
/// that its run started has ended. A run that is cut is no step, one inside another is part of that.
struct Steps {
  TrackId track = kNone;
  bool are_marked = false;
  std::vector<Interval> of;
};
Steps find_steps(const Trace& trace);

struct StepTimes {
  std::uint64_t count = 0;                   // 0: nothing ran
  std::int64_t p50 = 0, p99 = 0, worst = 0;  // ns
  std::uint64_t worst_step = 0;              // its number, from 1
  std::int64_t more_ns = 0;                  // what the worst took longer than p50 ...
  std::string why;                           // ... most of it in this: "your code", "ops: lstm_cell/matmul"
  std::int64_t why_ns = 0;                   // longer in this than the median step
  std::string thread = {};                   // that has them
  bool are_marked = false;                   // else from one run to the next
  std::vector<Interval> of = {};             // from the start of the window on
};

/// The thread that ran most has them; runs inside other runs are parts of those.
StepTimes step_times(const Trace& trace, const std::vector<ThreadTime>& threads);

}  // namespace paoding::profile
