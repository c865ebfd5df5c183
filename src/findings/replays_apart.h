// SPDX-License-Identifier: Apache-2.0
// A recording of ours stamps every kernel in some replays of a graph only, and begin and end of the others. Rules about
// kernels look at all steps alike, so the others are taken apart: their kernels follow each other as in a replay that
// was stamped in full, and together take as long as the replay did.
#pragma once

#include <optional>
#include <vector>

#include "profile/trace.h"

namespace paoding::findings {

struct ReplaysApart {
  profile::Trace trace;
  std::vector<profile::SpanId> original;  // the span of each in the trace that it was made of
};

/// Nothing where the trace has no replay that could be taken apart: no replay of its graph was stamped in full.
std::optional<ReplaysApart> take_replays_apart(const profile::Trace& trace);

}  // namespace paoding::findings
