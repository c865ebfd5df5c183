// SPDX-License-Identifier: Apache-2.0
// The kernel in front of the writes of a run that may fail.
#pragma once

#include "gpu/text_launch.h"

namespace paoding::gpu {

/// Operands: failed, cancelled, words, report; see commit_gate.cu. `fault_words`: those of all launches.
TextLaunch plan_commit_gate(std::int64_t fault_words);

}  // namespace paoding::gpu
