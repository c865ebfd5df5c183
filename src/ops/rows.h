// SPDX-License-Identifier: Apache-2.0
// Kernels that work along one axis see a layout as three: the axes before it as one, the axis, those after it as one.
#pragma once

#include <optional>
#include <string>

#include "ops/kernel.h"

namespace paoding {

/// Axes first .. last - 1 of a layout seen as one; nullopt when their strides do not allow it. No axes: extent 1.
struct JointAxis {
  std::int64_t extent = 1;
  std::int64_t stride = 1;  // in elements
};
std::optional<JointAxis> joint_axis(const Layout& layout, int first, int last);

/// A value as [outer, axis, inner]: `count` axes from `axis` on are the middle.
struct Rows {
  JointAxis outer, middle, inner;
};
std::optional<Rows> rows_of(const Layout& layout, int axis, int count = 1);

/// The refusal where the axes before, at or after `axis` do not merge, or the inner elements are not contiguous.
std::string rows_refusal(const Layout& layout, int axis, int count, const std::string& name);

/// "[2, 0]": the index of element `flat` of a value of this shape.
std::string index_text(const Shape& shape, std::int64_t flat);

}  // namespace paoding
