// SPDX-License-Identifier: Apache-2.0
#include "base/unit_rates.h"

#include <algorithm>
#include <cctype>

namespace paoding {

// Measured on an H200, with products of 8192 x 8192; f32: 120 of 128 a clock and SM at 1.98 GHz, f64 half of it.
UnitRates unit_rates(const Target& target) {
  std::string name = target.name;
  std::transform(name.begin(), name.end(), name.begin(), [](unsigned char c) { return std::tolower(c); });
  if (!target.is_gpu() || name.find("h200") == name.npos) return {};
  return {0, 30e3, 60e3, 393e3, 790e3};
}

Unit unit_of(DType dtype, bool allow_tf32) {
  switch (dtype) {
    case DType::f64: return Unit::f64;
    case DType::f16:
    case DType::bf16: return Unit::half;
    default: return allow_tf32 && dtype == DType::f32 ? Unit::tf32 : Unit::f32;
  }
}

}  // namespace paoding
