// SPDX-License-Identifier: Apache-2.0
// A group's operands by their number: loads first, then outputs.
#pragma once

#include "group/group.h"

namespace paoding {

const std::vector<std::int64_t>& operand_strides(const Group& group, std::size_t i);
DType operand_dtype(const Group& group, std::size_t i);
/// Points of the space that differ in it.
std::int64_t distinct_elements(const Group& group, std::size_t i);

}  // namespace paoding
