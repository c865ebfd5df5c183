// SPDX-License-Identifier: Apache-2.0
// A group's Expr as a CUDA function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/codegen/text_pieces.h"
#include "group/group.h"

namespace paoding::gpu {

/// The prelude's type that combines two elements.
std::string_view combine_text(Combine combine);

/// The loads, indices and own reductions that some values depend on. Operands of a reduction do not count, nor do those
/// of a node that is known already (given per node, or not at all).
struct FormulaUse {
  std::vector<bool> nodes, loads, indices, reductions;
};
FormulaUse used_by(const Group& group, const std::vector<std::int32_t>& values, const std::vector<bool>& known = {});
/// The values of the outputs that are live.
std::vector<std::int32_t> live_values(const Group& group, const std::vector<bool>& is_live);
/// Whether the numbers of index i need 64 bits.
bool index_is_wide(const Group& group, std::size_t i);

/// A result of a formula: the name of its parameter and the node of the Expr.
struct FormulaResult {
  std::string name;
  std::int32_t value = -1;
};
/// Whether f32 nodes that vary in a row of the group's own reductions are divided by this one, which does not.
bool is_row_divisor(const Group& group, std::int32_t node, const std::vector<bool>& in_row);
/// The comparison of a place in a row with a number that is the row's own, as a label is: an `equal` that is true for
/// at most one element of a row, so that hardly any vector has one.
struct RowLabel {
  std::int32_t node = -1;   // the comparison; -1: there is none
  std::int32_t label = -1;  // the number that the place is compared with
  int index = -1;           // of the group's indices
};
RowLabel find_row_label(const Group& group, const std::vector<bool>& in_row);

/// "void name(loads, indices, reductions and known nodes in use by value, results by reference)". With the
/// comparison of a label in it, a template <bool kMayHaveLabel>: without kMayHaveLabel the label is known to be
/// elsewhere.
std::string formula_text(const Group& group, std::string_view name, const std::vector<FormulaResult>& results,
                         const std::vector<bool>& known = {}, const RowLabel& label = {});

}  // namespace paoding::gpu
