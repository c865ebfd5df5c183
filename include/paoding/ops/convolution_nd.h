// SPDX-License-Identifier: Apache-2.0
// Convolutions that are written in terms of those of convolution.h: over volumes, and transposed.
#pragma once

#include "paoding/ops/convolution.h"

namespace paoding {

/// How a window moves over a volume. Axis 0 is depth, axis 1 vertical, axis 2 horizontal.
struct Conv3dOptions {
  std::array<std::int64_t, 3> stride = {1, 1, 1};
  std::array<std::int64_t, 6> padding = {0, 0, 0, 0, 0, 0};  // zeros at the front, back, top, bottom, left, right
  std::array<std::int64_t, 3> dilation = {1, 1, 1};
  std::int64_t groups = 1;
  Activation activation = Activation::none;
};

/// conv2d over volumes: x [N, C, D, H, W], w [O, C / groups, KD, KH, KW], bias [O] or invalid; the result is
/// [N, O, OD, OH, OW], extents as of conv2d. It is one conv2d over N * OD images whose channels are the C * KD slices
/// that a window sees, so these are copied side by side first. Errors: as conv2d.
Value conv3d(const Value& x, const Value& w, const Value& bias = {}, const Conv3dOptions& options = {});

/// A window that is spread over an image. Axis 0 is vertical, axis 1 horizontal.
struct ConvTranspose2dOptions {
  std::array<std::int64_t, 2> stride = {1, 1};
  std::array<std::int64_t, 4> padding = {0, 0, 0, 0};   // taken off at the top, bottom, left, right
  std::array<std::int64_t, 2> output_padding = {0, 0};  // rows and columns more, at the bottom and the right
  std::array<std::int64_t, 2> dilation = {1, 1};
  std::int64_t groups = 1;
};

/// The gradient of conv2d for its image, as a layer: x [N, C, H, W], w [C, O / groups, KH, KW], bias [O] or invalid;
/// the result is [N, O, OH, OW], OH = (H - 1) * stride - top - bottom + dilation * (KH - 1) + 1 + output_padding.
/// Errors: as conv2d; (argument) when output_padding is negative, or neither less than the stride nor than the
/// dilation.
Value conv_transpose2d(const Value& x, const Value& w, const Value& bias = {},
                       const ConvTranspose2dOptions& options = {});

}  // namespace paoding
