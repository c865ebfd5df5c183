// SPDX-License-Identifier: Apache-2.0
// A change's effect on the steps: how many of them it makes shorter, by how much, and the side that they wait for then.
#pragma once

#include "findings/finding.h"
#include "findings/replay.h"

namespace paoding::findings {

/// Compares two replays of the same steps; `first_number` is the number of the first of them.
Effect effect_of(const Replay::Outcome& before, const Replay::Outcome& after, std::size_t first_number);

}  // namespace paoding::findings
