// SPDX-License-Identifier: Apache-2.0
// Layout: how a value lies in memory.
#pragma once

#include <algorithm>
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

/// Axes of [N, C, H, W] from the outermost to the innermost in memory when the channels lie last.
inline constexpr std::array<int, 4> kChannelsLast = {0, 2, 3, 1};

/// A dense value [N, C, H, W] that lies as [N, H, W, C].
inline Layout channels_last(const Type& type) {
  Layout layout{type, {}};
  std::int64_t stride = 1;
  for (std::size_t i = 4; i-- > 0;) {
    layout.strides[static_cast<std::size_t>(kChannelsLast[i])] = stride;
    stride *= std::max<std::int64_t>(type.shape[kChannelsLast[i]], 1);
  }
  return layout;
}

/// Whether [N, C, H, W] lies as channels_last() would have it; axes of extent 1 may have any stride.
inline bool is_channels_last(const Layout& layout) {
  const Layout expected = channels_last(layout.type);
  for (int axis = 0; axis < 4; ++axis) {
    const auto at = static_cast<std::size_t>(axis);
    if (layout.type.shape[axis] > 1 && layout.strides[at] != expected.strides[at]) return false;
  }
  return true;
}

}  // namespace paoding
