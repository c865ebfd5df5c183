// SPDX-License-Identifier: Apache-2.0
// Convolutions of 16 bits on Hopper (conv_tma*.cu): TMA, which knows images and windows, brings the windows' pixels,
// and groups of four warps multiply them. All such launches share these parts: which windows, taps and pixels one has
// (a gradient for the image of a convolution with strides is a launch for each of its phases), and how they are
// described.
#pragma once

#include <optional>
#include <string>

#include "gpu/codegen/text_kernel.h"
#include "ops/conv/conv_shape.h"

namespace paoding::tma {

using gpu::TensorMap;
using Windows = TensorMap::Windows;

inline constexpr std::int64_t kDepth = 64, kChunk = 64;  // channels of a TMA tile
inline constexpr std::int64_t kMbarrierBytes = 16, kAlign = 1 << 10;
inline constexpr std::int64_t kSide = 8, kSquares = 2;  // of windows that a patch is of; of a stage

/// One axis of the windows that read the taps of one phase: where the first begins, how far the next is, and the taps,
/// of which each reads `tap_step` further than the one before.
struct Walk {
  std::int64_t windows = 0, first = 0, step = 1;
  std::int64_t taps = 0, tap_step = 1, first_tap = 0, next_tap = 1;
  std::int64_t out_first = 0, out_step = 1;  // pixels of the result

  static Walk forward(const WindowAxis& axis);
  /// Pixels `phase`, `phase` + stride, .. of the image: tap k has been at pixel i for output (i + before - k dilation)
  /// / stride, so taps that did come at the same distance from each other, and the last of them read first.
  static Walk back(const WindowAxis& axis, std::int64_t phase);
  std::int64_t last_tap() const { return (taps - 1) * tap_step; }
};

/// The image that windows go over: as it lies, or as rows of taps.
struct Walked {
  std::array<WindowAxis, 2> axes;
  std::int64_t channels;  // of a tap
  bool is_back, has_tap_rows;
  std::int64_t image_bytes = 0;  // of the workspace

  explicit Walked(const ConvShape& shape);
  Walk walk(std::size_t axis, std::int64_t phase) const {
    return is_back ? Walk::back(axes[axis], phase) : Walk::forward(axes[axis]);
  }
  std::int64_t taps() const { return axes[0].kernel * axes[1].kernel; }
  /// Launches along an axis.
  std::int64_t phases(std::size_t axis) const { return is_back ? axes[axis].stride : 1; }
};

/// The pixels that all taps read of a square of 8 x 8 windows that are next to each other.
struct Patch {
  std::int64_t rows = kSide, columns = kSide, taps = 1;

  std::int64_t bytes() const;
  static std::int64_t squares(const Walk& walk);
  /// None where one tap reads pixels that no other does.
  static std::optional<Patch> of(const Walked& walked, const Walk& down, const Walk& across);
};

TensorMap map_of(const Layout& image, int operand, const Windows& windows, std::int64_t rows);
TensorMap map_of(const Layout& image, int operand, const Patch& patch);
TensorMap map_of(const ConvShape& shape, const Walked& walked, const Windows& windows, std::int64_t rows);
Windows windows_of(const Walk& rows, const Walk& columns);

/// Why no launch by TMA does the call.
std::string refusal(const KernelCall& call);

/// The part of a result that a CTA makes at once from two TMA tiles: so many rows, 64 to a group of four warps or to
/// two, and columns.
struct Tile {
  std::int64_t rows, columns, ctas_of_sm;

  bool operator==(const Tile&) const = default;
  std::int64_t stage_bytes() const { return (rows + columns) * kDepth * 2; }
  /// Stages of a CTA beside something else that it has in shared memory.
  std::int64_t stages(const Target& target, std::int64_t other_bytes = 0) const {
    return (bytes_of_cta(target) - other_bytes) / (stage_bytes() + kMbarrierBytes);
  }
  /// Beside so many stages.
  std::int64_t bytes_beside(const Target& target, std::int64_t stages) const {
    return bytes_of_cta(target) - stages * (stage_bytes() + kMbarrierBytes);
  }
  std::int64_t bytes_of_cta(const Target& target) const;
  /// An SM's time for a stage: that of its tensor cores' products, or that of L2 to bring it.
  double stage_us() const;
};

unsigned shared_bytes(std::int64_t stages, std::int64_t stage_bytes);
gpu::TextParts parts_of_text(const ConvShape& shape, std::string name, int threads, std::int64_t stages,
                             const std::string& products);
/// The constants that say where taps are in a patch.
std::string tap_constants(const Walk& down, const Walk& across);

/// The gradient for the weights.
gpu::TextPlan plan_weights(const KernelCall& call);

}  // namespace paoding::tma

namespace paoding {

/// Whether a convolution, or a gradient for its image, is one launch by TMA that brings the taps' common pixels once,
/// for all columns.
bool goes_by_patches(const KernelCall& call);

}  // namespace paoding
