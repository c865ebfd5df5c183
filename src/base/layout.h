// SPDX-License-Identifier: Apache-2.0
// Layout: how a value lies in memory.
#pragma once

#include <array>

#include "paoding/types.h"

namespace paoding {

/// Element (i0, i1, ..) of the value is at sum of i_k * strides[k] elements from its start.
struct Layout {
  Type type;
  std::array<std::int64_t, Shape::kMaxRank> strides{};

  static Layout dense(const Type& type) { return {type, dense_strides(type.shape)}; }

  bool is_dense() const {
    const auto expected = dense_strides(type.shape);
    for (int axis = 0; axis < type.shape.rank(); ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      if (type.shape[axis] > 1 && strides[at] != expected[at]) return false;
    }
    return true;
  }
};

}  // namespace paoding
