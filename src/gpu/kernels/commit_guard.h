// SPDX-License-Identifier: Apache-2.0
// The kernel in front of the writes of a run that may fail, and the one that asks whether it is called off.
#pragma once

#include "gpu/codegen/text_launch.h"

namespace paoding::gpu {

/// Operands: failed, cancelled, words, report; see commit_guard.cu. `fault_words`: those of all launches.
TextLaunch plan_commit_guard(std::int64_t fault_words);

/// Operands: flag, cancelled; see cancellation_poll.cu.
TextLaunch plan_cancellation_poll();

}  // namespace paoding::gpu
