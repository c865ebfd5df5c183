// SPDX-License-Identifier: Apache-2.0
// Groups with own reductions as GPUs run them: a row, the elements of one reduction, is the work of one warp or CTA.
#pragma once

#include <string>

#include "group/group.h"

namespace paoding {

/// Axes that the group's own reductions reduce (a row's), and the others.
inline std::uint32_t row_mask(const Group& group) {
  return group.reductions.empty() ? 0 : group.reductions[0].reduce_mask;
}
inline std::uint32_t rows_mask(const Group& group) { return ((1u << group.rank()) - 1) & ~row_mask(group); }

/// Why no single GPU kernel computes this canonical group with own reductions; empty when one does. Its outputs must
/// be one per point, one per row, one per place in the row (combined over all rows), or one for all.
std::string staged_refusal(const Group& canonical);

}  // namespace paoding
