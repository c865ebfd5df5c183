// SPDX-License-Identifier: Apache-2.0
// A window that moves over the last two axes of an image: convolutions and pooling share it.
#pragma once

#include <array>
#include <cstdint>
#include <utility>
#include <vector>

#include "paoding/op.h"

namespace paoding {

/// Positions along one axis.
struct WindowAxis {
  std::int64_t size = 0;    // of the image
  std::int64_t kernel = 1;  // taps
  std::int64_t stride = 1;
  std::int64_t dilation = 1;
  std::int64_t before = 0, after = 0;  // padding
  std::int64_t outputs = 0;            // positions of the window

  /// Where tap k of output o reads; outside [0, size) is padding.
  std::int64_t input(std::int64_t o, std::int64_t k) const { return o * stride + k * dilation - before; }
  /// The outputs [first, second) for which tap k reads the image.
  std::pair<std::int64_t, std::int64_t> outputs_of(std::int64_t k) const;
};

/// The axes H and W for the attributes stride, padding (top, bottom, left, right) and dilation. Calls fail() of `call`
/// when one is out of range or the window is larger than the padded image.
std::array<WindowAxis, 2> window_axes(const OpCall& call, const Attrs& attrs, std::array<std::int64_t, 2> size,
                                      std::array<std::int64_t, 2> kernel);
/// The same for attributes that were checked before.
std::array<WindowAxis, 2> window_axes(const Attrs& attrs, std::array<std::int64_t, 2> size,
                                      std::array<std::int64_t, 2> kernel);

/// The specs of the attributes stride, padding and dilation.
std::vector<AttrSpec> window_attr_specs();

}  // namespace paoding
