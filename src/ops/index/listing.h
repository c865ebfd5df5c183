// SPDX-License-Identifier: Apache-2.0
// The room of a GPU's CTAs where each lists the indices of its own rows (gpu/kernels/scatter_listed.cu): asked by the
// pass that sorts indices in front instead (passes/sort_indices.cpp), and by the planning of the kernel.
#pragma once

#include <algorithm>
#include <cstdint>

#include "base/rounding.h"

namespace paoding {

/// In shared memory, if all indices are of a CTA's rows.
inline constexpr std::int64_t kMostListed = 1 << 15;
/// A row of a CTA's and an index's place are 16 bits each.
inline constexpr std::int64_t kMostRowsOfCta = 1 << 16;

/// CTAs that the rows of a result are shared out over, as many as make one for each SM. `tiles`: that a row, or one of
/// several results, is cut into.
inline std::int64_t row_classes(std::int64_t rows, std::int64_t tiles, std::int64_t sm_count) {
  return std::clamp<std::int64_t>(sm_count / tiles, 1, rows);
}

inline bool may_list(std::int64_t count, std::int64_t rows, std::int64_t tiles, std::int64_t sm_count) {
  return count <= kMostListed && ceil_div(rows, row_classes(rows, tiles, sm_count)) <= kMostRowsOfCta;
}

}  // namespace paoding
