// SPDX-License-Identifier: Apache-2.0
// The CUDA source that stands before every kernel of our own (prelude_*.cu): element types, vectors, scalar functions,
// lane sums, the last-arriver ticket. It includes nothing, so that NVRTC needs no CUDA headers; with PD_EMULATE
// defined, g++ compiles it too.
#pragma once

#include <cstdint>
#include <string_view>

namespace paoding::gpu {

std::string_view kernel_prelude();

/// A hash of a kernel's source, which may have the prelude in it. The prelude, by far the longest part of most, is
/// hashed once a process.
std::uint64_t hash_of_source(std::string_view source);

}  // namespace paoding::gpu
