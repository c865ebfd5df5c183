// SPDX-License-Identifier: Apache-2.0
#include "group/operands.h"

namespace paoding {

const std::vector<std::int64_t>& operand_strides(const Group& group, std::size_t i) {
  return i < group.loads.size() ? group.loads[i].strides : group.outputs[i - group.loads.size()].strides;
}

DType operand_dtype(const Group& group, std::size_t i) {
  return i < group.loads.size() ? group.loads[i].dtype : group.outputs[i - group.loads.size()].dtype;
}

std::int64_t distinct_elements(const Group& group, std::size_t i) {
  std::int64_t elements = 1;
  const std::vector<std::int64_t>& strides = operand_strides(group, i);
  for (std::size_t axis = 0; axis < strides.size(); ++axis) elements *= strides[axis] != 0 ? group.extents[axis] : 1;
  return elements;
}

}  // namespace paoding
