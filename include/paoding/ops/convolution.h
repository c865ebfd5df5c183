// SPDX-License-Identifier: Apache-2.0
// Convolutions and pooling over images [N, C, H, W].
#pragma once

#include <array>
#include <utility>

#include "paoding/graph.h"

namespace paoding {

/// The op after a convolution: none, or an elementwise one.
enum class Activation : std::uint8_t { none, relu, sigmoid, tanh };

/// How a window moves over an image. Axis 0 is vertical, axis 1 horizontal.
struct Conv2dOptions {
  std::array<std::int64_t, 2> stride = {1, 1};
  std::array<std::int64_t, 4> padding = {0, 0, 0, 0};  // zeros at the top, bottom, left, right
  std::array<std::int64_t, 2> dilation = {1, 1};       // distance between taps
  std::int64_t groups = 1;                             // channels in as many groups that do not mix
  Activation activation = Activation::none;
};

struct Conv1dOptions {
  std::int64_t stride = 1;
  std::array<std::int64_t, 2> padding = {0, 0};  // zeros at the start, at the end
  std::int64_t dilation = 1;
  std::int64_t groups = 1;
  Activation activation = Activation::none;
};

/// A pooling window. A stride of 0 means as long as the kernel.
struct Pool2dOptions {
  std::array<std::int64_t, 2> kernel = {2, 2};
  std::array<std::int64_t, 2> stride = {0, 0};
  std::array<std::int64_t, 4> padding = {0, 0, 0, 0};  // at the top, bottom, left, right
  std::array<std::int64_t, 2> dilation = {1, 1};
};

/// Cross-correlation, which deep learning calls a convolution:
///   y[n, o, i, j] = sum over c, k, l of x[n, c, i * stride + k * dilation - top, j * stride + l * dilation - left]
///                   * w[o, c, k, l],
/// x being 0 outside. x [N, C, H, W], w [O, C / groups, KH, KW]; output o reads the channels of its group. The result
/// is [N, O, OH, OW], OH = (H + top + bottom - dilation * (KH - 1) - 1) / stride + 1, rounded down. Floats of one dtype
/// after promotion; f16 and bf16 accumulate in f32. Errors (shape): ranks, groups that do not divide C and O, a window
/// larger than the padded image, an attribute out of range.
Value conv2d(const Value& x, const Value& w, const Conv2dOptions& options = {});
/// The same plus bias [O], then the activation: three nodes, which the pass fuse_convolutions makes one where a kernel
/// can do it in one go. A ReLU within such a kernel gives 0 for NaN.
Value conv2d(const Value& x, const Value& w, const Value& bias, const Conv2dOptions& options = {});
/// The gradient of conv2d for x, an image of `size` (H, W), from that of y: linear in both.
Value conv2d_grad_input(const Value& dy, const Value& w, std::array<std::int64_t, 2> size,
                        const Conv2dOptions& options = {});
/// The gradient of conv2d for w, of extents `kernel` (KH, KW), from that of y: linear in both.
Value conv2d_grad_weight(const Value& x, const Value& dy, std::array<std::int64_t, 2> kernel,
                         const Conv2dOptions& options = {});
/// conv2d over one axis: x [N, C, L], w [O, C / groups, K], bias [O] or invalid.
Value conv1d(const Value& x, const Value& w, const Value& bias = {}, const Conv1dOptions& options = {});

/// The largest element of every window, [N, C, OH, OW], extents as of conv2d; NaN where the window has one. The
/// gradient goes to the first of equal elements. Every window must hold an element of x (error (shape) otherwise).
Value max_pool2d(const Value& x, const Pool2dOptions& options = {});
/// The same, and where in its window the element was: row * KW + column, u8, or i32 for more than 256 taps.
std::pair<Value, Value> max_pool2d_with_index(const Value& x, const Pool2dOptions& options = {});
/// The mean of every window. Padding counts as zeros, or not at all without `count_padding`.
Value avg_pool2d(const Value& x, const Pool2dOptions& options = {}, bool count_padding = true);
/// The mean over all pixels: [N, C, H, W] to [N, C].
Value global_avg_pool(const Value& x);

}  // namespace paoding
