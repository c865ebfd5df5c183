// SPDX-License-Identifier: Apache-2.0
// Which values the elements of a dtype can have.
#pragma once

#include <cmath>

#include "paoding/types.h"

namespace paoding {

/// Whether an element of `dtype` can be `value`: no integer is a fraction or out of range, a bool is 0 or 1. A float
/// takes any number and rounds it. Everything that takes a number for a value of a dtype asks here, since converting
/// one that does not fit would give another number without a word, or none that the language knows.
inline bool can_hold(DType dtype, double value) {
  if (is_float(dtype)) return true;
  if (value != std::trunc(value)) return false;  // NaN too
  switch (dtype) {
    case DType::i64: return value >= -0x1p63 && value < 0x1p63;
    case DType::i32: return value >= -0x1p31 && value < 0x1p31;
    case DType::u8: return value >= 0 && value < 256;
    default: return value == 0 || value == 1;
  }
}

}  // namespace paoding
