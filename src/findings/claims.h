// SPDX-License-Identifier: Apache-2.0
// Time is claimed once: of candidates that would save the same time the one with the largest gain has it (late launches
// come last, since others are their causes), and the others get the rest, on a trace that has its change already.
#pragma once

#include <vector>

#include "findings/candidate.h"
#include "findings/finding.h"
#include "findings/replay.h"

namespace paoding::findings {

/// The candidates that gain enough, the largest gain first. `unchanged` is the replay without any.
std::vector<Finding> claim(const Replay& replay, const Steps& steps, std::vector<Candidate> candidates,
                           const Replay::Outcome& unchanged, std::int64_t step_ns, const FindOptions& options);

}  // namespace paoding::findings
