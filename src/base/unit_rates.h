// SPDX-License-Identifier: Apache-2.0
// How fast a GPU multiplies and adds, by the unit that does it.
#pragma once

#include <array>
#include <cstdint>

#include "base/target.h"

namespace paoding {

/// Units that do operations; values rounded to 16 bits, bf16 or f16, have one of their own.
enum class Unit : std::uint8_t { none, f64, f32, tf32, half };
inline constexpr std::size_t kUnits = 5;

/// Operations a ns, an addition one; 0 where it was not measured.
using UnitRates = std::array<double, kUnits>;
UnitRates unit_rates(const Target& target);

/// Who does products of this dtype; of f32 whose operands may be rounded, tensor cores.
Unit unit_of(DType dtype, bool allow_tf32);

}  // namespace paoding
