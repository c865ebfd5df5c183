// SPDX-License-Identifier: Apache-2.0
#include "group/staged.h"

#include <fmt/format.h>

namespace paoding {
namespace {

// A row is one CTA's work: fewer rows than this leave most of a large GPU idle while long ones run.
constexpr std::int64_t kFewRows = 64, kLongRow = 32 << 10;

}  // namespace

std::string staged_refusal(const Group& canonical) {
  if (canonical.reductions.empty()) return "";
  const std::uint32_t row = row_mask(canonical), rows = rows_mask(canonical);
  const bool is_row_inner = (row >> (canonical.rank() - 1)) & 1u;
  for (std::size_t o = 0; o < canonical.outputs.size(); ++o) {
    const std::uint32_t mask = canonical.outputs[o].reduce_mask;
    if (mask == 0 || mask == row || mask == (row | rows)) continue;
    if (mask != rows) return fmt::format("output {} reduces some axes of its rows or some of the rows", o);
    if (!is_row_inner) return fmt::format("output {} is combined over rows that are not contiguous", o);
  }
  std::int64_t length = 1, count = 1;
  for (int axis = 0; axis < canonical.rank(); ++axis) {
    ((row >> axis) & 1u ? length : count) *= canonical.extents[static_cast<std::size_t>(axis)];
  }
  if (count < kFewRows && length > kLongRow) {
    return fmt::format("{} rows of {} elements: separate kernels split such rows over the GPU", count, length);
  }
  return "";
}

}  // namespace paoding
