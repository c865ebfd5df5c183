// SPDX-License-Identifier: Apache-2.0
// Convolutions of few channels as ones of many: with 8 channels a pixel, 16 bytes of 16 bits, a window's pixels of a
// row of taps are contiguous in memory, and the next window's begin whole pixels further on. So a row of taps is one
// tap of an image whose pixels overlap.
#pragma once

#include "gpu/codegen/text_kernel.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_epilogue.h"

namespace paoding {

/// Whether the images are worth laying out so: 16 bits, up to 8 channels, a row of taps of up to 64 elements; of
/// forward convolutions and of gradients for weights.
bool is_few_channels(const ConvShape& shape);

struct TapRows {
  static constexpr std::int64_t kChannels = 8;  // a pixel
  std::int64_t windows, channels;               // along a row, each of so many channels
  std::int64_t columns;                         // pixels of a row, those beside the image included
  std::int64_t rows, batch, step;
  std::int64_t outputs, kernel_rows;
  DType dtype;
  /// Where a row of windows is brought at once: columns a stride apart lie side by side, rows above and below the image
  /// are there too, and rows begin at multiples of 128 bytes.
  bool is_by_rows = false;
  std::int64_t planes = 1, rows_above = 0;
  std::int64_t rows_brought = 0, row_apart = 1;  // for a row of windows; of its taps

  explicit TapRows(const ConvShape& shape);
  /// Bytes of the workspace: the image from its start on, and the weights after it.
  std::int64_t image_bytes() const;
  std::int64_t row_bytes() const { return columns * kChannels * size_bytes(dtype); }
  std::int64_t weight_bytes() const { return outputs * kernel_rows * channels * size_bytes(dtype); }
  /// The image in the workspace, without rows of a TMA tile and windows; or, by rows, as pieces of 128 bytes.
  gpu::TensorMap map() const;
};

/// Lays the image out.
gpu::TextLaunch plan_tap_rows(const KernelCall& call, const Epilogue* epilogue = nullptr);
/// Lays the weights out: [o, row of taps, column of taps, 8].
gpu::TextLaunch plan_weight_tap_rows(const KernelCall& call, const Epilogue* epilogue = nullptr);

}  // namespace paoding
