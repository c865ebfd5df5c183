// SPDX-License-Identifier: Apache-2.0
// Whether the memory of a program fits a GPU.
#pragma once

#include <cstdint>

#include "gpu/driver/driver.h"
#include "plan/plan.h"

namespace paoding {

/// Checks before anything is allocated: Error (device) with the bytes that are missing and their use. `arena_bytes` are
/// there.
void check_memory(const Plan& plan, const gpu::GpuDevice& device, std::int64_t arena_bytes);

}  // namespace paoding
