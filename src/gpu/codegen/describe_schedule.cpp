// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>

#include "base/rounding.h"
#include "gpu/codegen/group_schedule.h"

namespace paoding::gpu {

std::string describe(const GroupSchedule& s, const Target& target, double in_flight_kilobytes) {
  std::string grid;
  for (const GridDim& dim : s.grid) {
    const std::string name = dim.over == GridDim::Over::axis     ? fmt::format("axis {}", dim.axis)
                             : dim.over == GridDim::Over::serial ? std::string("serial parts")
                                                                 : std::string("inner parts");
    grid += fmt::format("{}{} {}", grid.empty() ? "" : " x ", dim.count, name);
  }
  return fmt::format(
      "{}{}: {} lanes x {} elements, {} rows, unroll {}{}{}; {} CTAs{}{}, {:.1f} per SM; "
      "{} serial and {} inner steps per thread, {:.0f} KB in flight per SM",
      s.is_transposed ? "transposed " : "", s.form == LoopForm::tile ? "tile" : "sweep", s.lanes, s.vector, s.rows,
      s.unroll, s.block > 1 ? fmt::format(", {} of axis {} per load", s.block, s.block_axis) : "",
      s.chunk > 1 ? fmt::format(", {} of axis {} per CTA", s.chunk, s.chunk_axis) : "", s.ctas,
      grid.empty() ? "" : " = ", grid, double(s.ctas) / target.sm_count,
      ceil_div(std::min(s.serial_chunk, s.serial_count), s.rows),
      ceil_div(std::min(s.inner_chunk, s.inner_vectors), s.lanes), in_flight_kilobytes);
}

}  // namespace paoding::gpu
