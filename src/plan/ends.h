// SPDX-License-Identifier: Apache-2.0
// Groups that become the end of the kernel in front of them (ops/kernel_end.h), or the start of the one behind
// (ops/kernel_start.h).
#pragma once

#include "ops/kernel_start.h"
#include "plan/plan.h"

namespace paoding {

/// Merges steps of the plan's outermost list, before slots are placed, where a kernel takes the group in.
void join_ends(Plan* plan);

/// What the step's group is to its kernel; the step is a kernel's that has an end.
bool has_end(const Step& step);
KernelEnd end_of(const Step& step);
/// Of a step with `has_start`.
KernelEnd start_of(const Step& step);

}  // namespace paoding
