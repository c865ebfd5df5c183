// SPDX-License-Identifier: Apache-2.0
// What a schedule asks of a group's operands.
#include <algorithm>
#include <cstdlib>

#include "gpu/group_schedule.h"

namespace paoding::gpu {

DType operand_dtype(const Group& group, std::size_t i) {
  return i < group.loads.size() ? group.loads[i].dtype : group.outputs[i - group.loads.size()].dtype;
}

bool needs_wide_offsets(const Group& group) {
  constexpr std::int64_t kLimit = (std::int64_t{1} << 31) - (1 << 16);  // room for one step past the end
  if (group.points() >= kLimit) return true;
  for (std::size_t i = 0; i < group.operands(); ++i) {
    std::int64_t reach = 0;
    for (std::size_t axis = 0; axis < group.extents.size(); ++axis) {
      reach += std::abs(operand_strides(group, i)[axis]) * (group.extents[axis] - 1);
    }
    if (reach >= kLimit) return true;
  }
  return false;
}

bool fits_vector(const Group& group, std::size_t i, std::int64_t alignment, int vector) {
  const std::vector<std::int64_t>& strides = operand_strides(group, i);
  const std::int64_t size = size_bytes(operand_dtype(group, i)), piece = std::min<std::int64_t>(16, vector * size);
  if (strides.back() != 1 || alignment % piece != 0) return false;
  return std::all_of(strides.begin(), strides.end() - 1,
                     [&](std::int64_t step) { return step * size % piece == 0 && step % vector == 0; });
}

const std::vector<std::int64_t>& operand_strides(const Group& group, std::size_t i) {
  return i < group.loads.size() ? group.loads[i].strides : group.outputs[i - group.loads.size()].strides;
}

}  // namespace paoding::gpu
