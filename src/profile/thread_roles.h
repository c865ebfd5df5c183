// SPDX-License-Identifier: Apache-2.0
// Threads of other frameworks' programs between the framework's ops: the time of a thread that waits is not the user's
// code.
#pragma once

#include <vector>

#include "profile/budget.h"

namespace paoding::profile {

/// Finds the part of every thread of another framework's program, and which of its time outside of ops it is blocked
/// (in a lock, a poll or a sleep, which frames of a recording with stacks tell; in a read of JAX's that waits for a
/// value; the loop's thread while the engine runs gradients) or idle as far as is known (an engine, a thread on which
/// no user's range or frame is, and any before its first span and behind its last).
void tell_waits_from_code(const Trace& trace, std::vector<ThreadTime>* threads);

/// Whether a thread is at work at that time, or waits for a GPU.
bool is_busy(HostUse use);

}  // namespace paoding::profile
