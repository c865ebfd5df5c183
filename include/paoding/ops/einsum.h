// SPDX-License-Identifier: Apache-2.0
// Sums of products that a formula names.
#pragma once

#include <initializer_list>
#include <span>
#include <string_view>

#include "paoding/graph.h"

namespace paoding {

/// The sum of products that `formula` names, as NumPy's einsum has it: "bij,bjk->bik" is a product of matrices, "ii->i"
/// a diagonal, "bi,bi->b" a product of every row. A letter stands for an axis; letters that are not after the arrow
/// are summed over. "..." stands for the axes that have no letter, which broadcast from the last one on. Without an
/// arrow the result has the axes of "...", then the letters that are there once, in the order of the alphabet. Spaces
/// do not count.
///
/// Made of transposes, products of matrices and sums; of several operands the two whose product takes the fewest
/// multiplications come first. Numbers of one dtype after promotion. Error (argument) when the formula is none, (shape)
/// when an operand has other axes than its letters or a letter has two extents, (dtype) for bools.
Value einsum(std::string_view formula, std::span<const Value> operands);
inline Value einsum(std::string_view formula, std::initializer_list<Value> operands) {
  return einsum(formula, std::span<const Value>(operands.begin(), operands.size()));
}

}  // namespace paoding
