// SPDX-License-Identifier: Apache-2.0
// A change's effect on the steps: how many of them it makes shorter, by how much, and the side that they wait for then.
// All times are averages: of all steps, or of those that change.
#pragma once

#include "findings/finding.h"
#include "findings/replay.h"

namespace paoding::findings {

/// The steps as they were measured, which a report shows; replays say by how much a change makes them shorter.
struct MeasuredSteps {
  std::size_t first_number = 1;
  std::vector<std::int64_t> lengths = {};
  std::int64_t average_ns = 0;
};

/// Compares two replays of the same steps.
Effect effect_of(const Replay::Outcome& before, const Replay::Outcome& after, const MeasuredSteps& measured);

}  // namespace paoding::findings
