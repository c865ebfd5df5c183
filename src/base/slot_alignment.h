// SPDX-License-Identifier: Apache-2.0
// Where slots begin: the planner, and whoever lays out memory beside an arena, round up by one rule.
#pragma once

#include <cstdint>

#include "base/rounding.h"

namespace paoding {

/// Bytes that the start of every slot is a multiple of: whole cache lines, and enough for vectors and TMA.
inline constexpr std::int64_t kSlotAlignment = 256;

/// The room of a slot for so many bytes.
constexpr std::int64_t slot_bytes(std::int64_t bytes) { return round_up(bytes, kSlotAlignment); }

}  // namespace paoding
