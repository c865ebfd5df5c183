// SPDX-License-Identifier: Apache-2.0
// Threads of other frameworks' programs between the framework's ops: the time of a thread that waits is not the user's
// code.
#pragma once

#include <vector>

#include "profile/budget.h"

namespace paoding::profile {

/// Finds the part of every thread of another framework's program, and which of its time outside of ops it is blocked
/// (in a lock, a poll or a sleep, which frames of a recording with stacks tell; the loop's thread while the engine runs
/// gradients) or idle as far as is known (an engine, and a thread on which no user's range or frame is).
void tell_waits_from_code(const Trace& trace, std::vector<ThreadTime>* threads);

/// The segments of a loop's thread with those of an engine where that is busy while the loop's thread is blocked: the
/// two take turns.
std::vector<UseSegment> in_turns(const std::vector<UseSegment>& loop, const std::vector<UseSegment>& engine);

/// The segments of a helper with those of the loop's thread where the helper is idle, as it waits for that one.
std::vector<UseSegment> behind_loop(const std::vector<UseSegment>& helper, const std::vector<UseSegment>& loop);

}  // namespace paoding::profile
