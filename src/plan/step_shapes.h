// SPDX-License-Identifier: Apache-2.0
// The operands of a step as recordings have them, in the words of XLA.
#pragma once

#include <string>

#include "plan/plan.h"

namespace paoding {

/// "bf16[8,64], bf16[64,16]{0,1} -> bf16[8,16]": inputs, then results. Axes along which an operand is broadcast count
/// 1; braces have the axes from the innermost in memory outwards, where they do not lie in their order. "[8,60:64]":
/// rows of 60 begin 64 elements apart. Empty for steps that are no kernel, and for those of very many operands.
std::string shapes_of(const Step& step);

}  // namespace paoding
