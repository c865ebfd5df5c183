// SPDX-License-Identifier: Apache-2.0
// Plans the kernels that decide which branch a run takes next (choose.cu).
#pragma once

#include <span>

#include "base/target.h"
#include "gpu/codegen/text_launch.h"
#include "paoding/types.h"

namespace paoding::gpu {

/// A choice among so many by an index of this type.
struct WordChoice {
  DType index;
  std::int64_t count;
};
/// Operands: index, outer, not_taken of each.
TextLaunch plan_choose_words(std::span<const WordChoice> choices, const Target& target);
/// Operands: index, outer, the handle of a conditional node in place of an address.
TextLaunch plan_choose_body(DType index, std::int64_t count, const Target& target);
/// Operands: index, outer, handle, flag, cancelled, turns, faults, and how many words these are.
TextLaunch plan_choose_turn(DType index, std::int64_t turns_between, const Target& target);

}  // namespace paoding::gpu
