// SPDX-License-Identifier: Apache-2.0
#include "ops/rows.h"

#include <algorithm>

#include "base/check.h"

namespace paoding {

std::optional<JointAxis> joint_axis(const Layout& layout, int first, int last) {
  JointAxis joint;
  for (int axis = last - 1; axis >= first; --axis) {
    const std::int64_t extent = layout.type.shape[axis], stride = layout.strides[static_cast<std::size_t>(axis)];
    if (extent == 1) continue;
    if (joint.extent == 1) {
      joint = {extent, stride};
    } else if (stride == joint.stride * joint.extent || joint.extent == 0 || extent == 0) {
      joint.extent *= extent;
    } else {
      return std::nullopt;
    }
  }
  return joint;
}

std::optional<Rows> rows_of(const Layout& layout, int axis, int count) {
  const auto outer = joint_axis(layout, 0, axis), middle = joint_axis(layout, axis, axis + count),
             inner = joint_axis(layout, axis + count, layout.type.shape.rank());
  if (!outer || !middle || !inner || (inner->stride != 1 && inner->extent > 1)) return std::nullopt;
  return Rows{*outer, *middle, *inner};
}

std::string rows_refusal(const Layout& layout, int axis, int count, const std::string& name) {
  if (rows_of(layout, axis, count)) return "";
  return fmt::format("{} lies in strides that are not rows along axis {}", name, axis);
}

std::string index_text(const Shape& shape, std::int64_t flat) {
  std::vector<std::int64_t> index(static_cast<std::size_t>(shape.rank()));
  for (int axis = shape.rank() - 1; axis >= 0; --axis) {
    const std::int64_t extent = std::max<std::int64_t>(shape[axis], 1);
    index[static_cast<std::size_t>(axis)] = flat % extent;
    flat /= extent;
  }
  return fmt::format("[{}]", fmt::join(index, ", "));
}

}  // namespace paoding
