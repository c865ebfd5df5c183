// SPDX-License-Identifier: Apache-2.0
// What a trace says of itself beside its rows.
#pragma once

#include <vector>

#include "profile/report.h"

namespace paoding::profile {

/// The parts of making programs, the longest first; what is in none is "the rest".
std::vector<CompilePart> compile_parts(const Trace& trace);
/// On host and GPUs, by name.
std::vector<Instants> count_instants(const Trace& trace);
/// Of ranges of the user's, by their name and the argument's.
std::vector<RangeArgument> range_arguments(const Trace& trace);
Records count_records(const Trace& trace);

/// Per track: whether it is a thread of another framework's program that launched something on a GPU, so that its ops
/// hand work over and compute nothing themselves.
std::vector<bool> threads_that_hand_over(const Trace& trace);

/// Whether it is no run that somebody wrote, but time of which a recording that was cut off says nothing.
bool is_lost_time(const Trace& trace, SpanId i);

}  // namespace paoding::profile
