// SPDX-License-Identifier: Apache-2.0
// Whole parts, multiples and powers of two.
#pragma once

#include <cstdint>

namespace paoding {

/// Parts of `b` that hold `a`. a >= 0, b > 0.
constexpr std::int64_t ceil_div(std::int64_t a, std::int64_t b) { return (a + b - 1) / b; }

/// The least multiple of `unit` that is not below a. a >= 0, unit > 0.
constexpr std::int64_t round_up(std::int64_t a, std::int64_t unit) { return ceil_div(a, unit) * unit; }

/// The least power of two that is not below n; 1 for n < 1.
constexpr std::int64_t pow2_ceil(std::int64_t n) {
  std::int64_t p = 1;
  while (p < n) p *= 2;
  return p;
}

/// The largest power of two that is not above n; 1 for n < 1.
constexpr std::int64_t pow2_floor(std::int64_t n) {
  std::int64_t p = 1;
  while (p * 2 <= n) p *= 2;
  return p;
}

}  // namespace paoding
