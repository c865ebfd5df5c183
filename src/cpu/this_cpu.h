// SPDX-License-Identifier: Apache-2.0
// The CPU that this process runs on, as a target.
#pragma once

#include <cstdint>

#include "base/target.h"

namespace paoding {

Target this_cpu();

/// The instruction sets that SIMD routines may use, as bits of Highway (HWY_AVX3 ..).
std::int64_t allowed_instructions();

}  // namespace paoding
