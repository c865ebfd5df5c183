// SPDX-License-Identifier: Apache-2.0
// u in the order in which a recurrence on the CPU multiplies it: blocks of units, of each the columns of all gates
// together. Kernels put it so in every run; of parameters that a program only reads it is kept so
// (runtime/parameter_preprocessing.h), and the recurrence takes it in place of u. On a GPU a recurrence whose lanes
// multiply takes columns so kept.
#pragma once

#include "base/target.h"
#include "ops/recurrence/cell.h"
#include "paoding/graph.h"

namespace paoding {

/// How many elements below each other lie side by side in that order, where the recurrence takes u so on the target; 0
/// where it does not, where it would gain nothing, or where there is no cell.
std::int64_t packed_depth(const CellDescriptor* cell, const Type& u, const Target& target);

/// u [H, gates * H] as [H / kUnitBlock, H / depth, gates, kUnitBlock, depth]; of one gate the blocks of a panel take
/// the place of gates: [H / (4 * kUnitBlock), H / depth, 4, kUnitBlock, depth].
Value packed_weights(const Value& u, std::int64_t depth);
/// u of so many gates as [H, gates * H], if that is packed or not.
Value plain_weights(const Value& u, std::int64_t gates);
bool are_packed(const Type& u);

/// u as lanes of a GPU multiply it: [H, gates, H], by units, of each its gates' columns one after the other.
Value weights_by_units(const Value& u);
bool are_by_units(const Type& u);
/// H of either.
std::int64_t hidden_of(const Type& u);

}  // namespace paoding
