// SPDX-License-Identifier: Apache-2.0
// Rounds values wider than f32 to f16 or bf16 in one step instead of two: float_to_f16(to_odd(x)).
#pragma once

#include <bit>
#include <cstdint>

namespace paoding {

/// Prepares a double for rounding to 16 bits: if no float holds it, the neighbour towards 0 with its last bit set. So
/// it is a tie between two 16-bit values only where `value` is one, and on the same side of it else.
inline float to_odd(double value) {
  const auto nearest = static_cast<float>(value);
  auto bits = std::bit_cast<std::uint32_t>(nearest);
  if (static_cast<double>(nearest) == value || value != value) return nearest;
  if ((static_cast<double>(nearest) > value) != (value < 0)) --bits;  // it is farther from 0
  return std::bit_cast<float>(bits | 1u);
}
inline float to_odd(std::int64_t value) {
  constexpr std::int64_t kExact = std::int64_t{1} << 53, kLost = (1 << 10) - 1;
  if (value >= kExact || value <= -kExact) value = (value & ~kLost) | ((value & kLost) != 0 ? kLost + 1 : 0);
  return to_odd(static_cast<double>(value));
}
inline float to_odd(std::int32_t value) { return to_odd(static_cast<double>(value)); }
inline float to_odd(float value) { return value; }
inline float to_odd(std::uint8_t value) { return value; }

}  // namespace paoding
