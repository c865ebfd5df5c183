// SPDX-License-Identifier: Apache-2.0
// Groups with own reductions on a GPU: which of them one kernel computes. Here, because the pass that makes groups
// must know.
#pragma once

#include <string>

#include "group/group.h"

namespace paoding {

/// Axes that the group's own reductions reduce (a row's), and the others.
inline std::uint32_t row_mask(const Group& group) {
  return group.reductions.empty() ? 0 : group.reductions[0].reduce_mask;
}
inline std::uint32_t rows_mask(const Group& group) { return ((1u << group.rank()) - 1) & ~row_mask(group); }

/// Why no single GPU kernel should compute this canonical group with own reductions; empty when one should.
/// A kernel gives every row to one warp or CTA, so outputs are: one per point, one per row, one per place in the row
/// (combined over all rows, where rows are contiguous), or one for all.
std::string staged_refusal(const Group& canonical);

}  // namespace paoding
