// SPDX-License-Identifier: Apache-2.0
// Kernels that write to the host's memory (to_host.cu).
#pragma once

#include <cstdint>
#include <span>

#include "base/target.h"
#include "gpu/codegen/text_launch.h"

namespace paoding::gpu {

/// Operands: from, then numbers in place of addresses: its bytes and the launch's number; the log, which has `room`
/// bytes after its first two words.
TextLaunch plan_log_value(std::int64_t room);

/// Operands: two counters of runs, the device's own and the host's, then, for each of at most kMostMoved values that
/// have so many bytes, where it goes and where it is; nullptr twice for each that is not there. One source for all.
inline constexpr std::size_t kMostMoved = 8;
TextLaunch plan_completion_flag(std::span<const std::int64_t> bytes, const Target& target);

/// Operands: to, then a result for each of `bytes`; each begins at a multiple of 16 after the one in front.
TextLaunch plan_pack(std::span<const std::int64_t> bytes, const Target& target);

}  // namespace paoding::gpu
