// SPDX-License-Identifier: Apache-2.0
// How a reshape goes along axes: which axes of its input and of its result have the same elements.
#pragma once

#include <optional>
#include <vector>

#include "paoding/types.h"

namespace paoding {

/// Neighbouring axes with as many elements on both sides, as few as may be; none of extent 1.
struct AxisRun {
  std::vector<int> from, to;
};
/// Lists runs from the outermost on. The shapes have the same number of elements, which is not 0.
std::vector<AxisRun> axis_runs(const Shape& from, const Shape& to);

/// The shape that an operand which broadcasts to `from` needs to broadcast to `to` in the same way, without leading
/// axes of extent 1; nullopt where it varies along a part of a run.
std::optional<Shape> reshaped_operand(const Shape& operand, const Shape& from, const Shape& to);

}  // namespace paoding
