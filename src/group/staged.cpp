// SPDX-License-Identifier: Apache-2.0
#include "group/staged.h"

#include <fmt/format.h>

namespace paoding {

std::string staged_refusal(const Group& canonical) {
  if (canonical.reductions.empty()) return "";
  const std::uint32_t row = row_mask(canonical), rows = rows_mask(canonical);
  for (std::size_t o = 0; o < canonical.outputs.size(); ++o) {
    const std::uint32_t mask = canonical.outputs[o].reduce_mask;
    if (mask == 0 || mask == row || mask == rows || mask == (row | rows)) continue;
    return fmt::format("output {} reduces some axes of its rows, or some of the rows", o);
  }
  return "";
}

}  // namespace paoding
