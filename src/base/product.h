// SPDX-License-Identifier: Apache-2.0
// Products of extents that are compared with a threshold: they may be larger than any number.
#pragma once

#include <cstdint>
#include <initializer_list>
#include <limits>

namespace paoding {

/// The product of factors of which none is negative, or the largest number where it is more.
inline std::int64_t capped_product(std::initializer_list<std::int64_t> factors) {
  std::int64_t product = 1;
  bool is_capped = false;
  for (const std::int64_t factor : factors) {
    if (factor == 0) return 0;
    is_capped |= __builtin_mul_overflow(product, factor, &product);
  }
  return is_capped ? std::numeric_limits<std::int64_t>::max() : product;
}

}  // namespace paoding
