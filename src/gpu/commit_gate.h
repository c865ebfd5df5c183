// SPDX-License-Identifier: Apache-2.0
// The kernel in front of the writes of a run that may fail, and the one that looks whether it is called off.
#pragma once

#include "gpu/text_launch.h"

namespace paoding::gpu {

/// Operands: failed, cancelled, words, report; see commit_gate.cu. `fault_words`: those of all launches.
TextLaunch plan_commit_gate(std::int64_t fault_words);

/// Operands: flag, cancelled; see cancel_look.cu.
TextLaunch plan_cancel_look();

}  // namespace paoding::gpu
