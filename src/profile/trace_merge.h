// SPDX-License-Identifier: Apache-2.0
// Recordings of several processes of one program, ranks of a training among them, as one trace.
#pragma once

#include <string>
#include <vector>

#include "profile/trace.h"

namespace paoding::profile {

/// A recording and the name that errors call it by.
struct NamedTrace {
  std::string name;
  Trace trace;
};

/// Error (argument) names two recordings that do not go together: of different programs, or of one process or rank; or
/// one that says nothing of its process or of the clocks that processes share.
void check_mergeable(const std::vector<NamedTrace>& recordings);

/// By rank, then by process, on one clock: processes of one machine share its steady clock; machines are set beside
/// each other by their wall clocks, which a note says. Errors as check_mergeable.
Trace merge(std::vector<NamedTrace> recordings);

/// The same of traces that others recorded: of as many processes each as they have, which differ, and on the clock that
/// they get by moving each by so many ns.
Trace merge_ranks(std::vector<NamedTrace> traces, const std::vector<std::int64_t>& later_ns);

}  // namespace paoding::profile
