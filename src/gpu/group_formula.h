// SPDX-License-Identifier: Apache-2.0
// A group's Expr as a CUDA function.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "gpu/text_pieces.h"
#include "group/group.h"

namespace paoding::gpu {

/// The prelude's type that combines two elements.
std::string_view combine_text(Combine combine);

/// Which loads, indices and own reductions some values depend on; what a reduction depends on does not count.
struct FormulaUse {
  std::vector<bool> nodes, loads, indices, reductions;
};
FormulaUse used_by(const Group& group, const std::vector<std::int32_t>& values);
/// The values of the outputs that are live.
std::vector<std::int32_t> live_values(const Group& group, const std::vector<bool>& is_live);
/// Whether the numbers of index i need 64 bits.
bool index_is_wide(const Group& group, std::size_t i);

/// A result of a formula: the name of its parameter and the node of the Expr.
struct FormulaResult {
  std::string name;
  std::int32_t value = -1;
};
/// "void name(loads, indices and reductions in use by value, results by reference)".
std::string formula_text(const Group& group, std::string_view name, const std::vector<FormulaResult>& results);

}  // namespace paoding::gpu
