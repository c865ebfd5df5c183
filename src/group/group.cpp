// SPDX-License-Identifier: Apache-2.0
// What can be asked of a Group without running it: sizes and its text.
#include "group/group.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "scalar/primitive.h"

namespace paoding {

std::int64_t Group::points() const {
  std::int64_t product = 1;
  for (const std::int64_t extent : extents) product *= extent;
  return product;
}

std::int64_t Group::min_bytes() const {
  std::int64_t bytes = 0;
  if (points() > 0) {
    for (const GroupLoad& load : loads) {
      std::int64_t elements = 1;
      for (std::size_t axis = 0; axis < extents.size(); ++axis) {
        if (load.strides[axis] != 0) elements *= extents[axis];
      }
      bytes += elements * size_bytes(load.dtype);
    }
  }
  for (const GroupOutput& output : outputs) {
    std::int64_t elements = output.accumulate ? 2 : 1;  // what is there is read too
    for (std::size_t axis = 0; axis < extents.size(); ++axis) {
      if (!((output.reduce_mask >> axis) & 1u)) elements *= extents[axis];
    }
    bytes += elements * size_bytes(output.dtype);
  }
  return bytes;
}

std::string to_string(const Group& group) {
  std::string text = fmt::format("space [{}]\n", fmt::join(group.extents, ", "));
  for (std::size_t i = 0; i < group.loads.size(); ++i) {
    const GroupLoad& load = group.loads[i];
    text += fmt::format("load {} {} ({})\n", i, to_string(load.dtype), fmt::join(load.strides, ", "));
  }
  for (std::size_t i = 0; i < group.outputs.size(); ++i) {
    const GroupOutput& output = group.outputs[i];
    text += fmt::format("output {} {} ({})", i, to_string(output.dtype), fmt::join(output.strides, ", "));
    text += output.accumulate ? " += " : " = ";
    if (output.combine == Combine::sum) {
      std::vector<int> axes;
      for (int axis = 0; axis < group.rank(); ++axis) {
        if ((output.reduce_mask >> axis) & 1u) axes.push_back(axis);
      }
      text += fmt::format("sum over {{{}}} of ", fmt::join(axes, ", "));
    }
    text += fmt::format("%{}\n", output.value);
  }
  return text + to_string(group.expr);
}

}  // namespace paoding
