// SPDX-License-Identifier: Apache-2.0
// The CUDA text that stands before every group kernel: element types, vectors, lane sums, the last-arriver ticket.
// It includes nothing, so that NVRTC needs no CUDA headers; with PD_EMULATE defined, g++ compiles it too.
#pragma once

#include <string_view>

namespace paoding::gpu {

std::string_view group_prelude();

/// Its part of scalar functions and coordinates.
std::string_view scalar_prelude();

}  // namespace paoding::gpu
