// SPDX-License-Identifier: Apache-2.0
// A Group as a CUDA kernel: source for NVRTC and everything a launch needs. The source depends on the shape class only
// (axis roles, stride classes, vector width, dtypes, tile sizes); extents and strides are kernel parameters, so that
// another size of the same model finds its cubin in the cache.
#pragma once

#include <span>

#include "gpu/codegen/group_schedule.h"
#include "gpu/codegen/text_launch.h"

namespace paoding::gpu {

/// The kernel of a canonical group, where its schedule says so with one after it that adds up; none where every output
/// is empty. `alignment`: for each operand, bytes that its address will be a multiple of. `stage_threads`: see
/// schedule_group().
TextPlan plan_group(const Group& canonical, std::span<const int> alignment, const Target& target,
                    int stage_threads = 0);

}  // namespace paoding::gpu
