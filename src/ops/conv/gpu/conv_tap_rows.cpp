// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/gpu/conv_tap_rows.h"

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "ops/conv/gpu/window.h"

namespace paoding {
namespace {

constexpr int kTapThreads = 256;
constexpr std::int64_t kMostInRow = 64;  // elements of a TMA tile
constexpr std::int64_t kTapAlign = 256;
// Limits of convolutions by rows of windows: a tile is one row, for the columns that it has; phases of its pixels;
// pixels of 128 bytes, of which a TMA tile has so many.
constexpr std::int64_t kMostWindows = 128, kMostOutputs = 64, kMostKernelRows = 8, kMostStep = 2;
constexpr std::int64_t kAlignedPixels = 8, kMostPieces = 256, kWindowsAtOnce = 16;  // of which none may be missing

gpu::TextParts parts_of_text(const KernelCall& call, const ConvShape& shape, std::string name, std::int64_t units,
                             const Epilogue* epilogue) {
  gpu::TextParts parts;
  parts.name = std::move(name);
  parts.threads = kTapThreads;
  parts.constants = fmt::format("using Stored = {};\n", gpu::stored_type(shape.dtype));
  parts.ctas = ceil_div(units, kTapThreads);
  parts.operands = {gpu::input_parameter(shape.dtype, "image"), gpu::input_parameter(shape.dtype, "weights")};
  if (shape.has_bias) parts.operands.push_back(gpu::input_parameter(shape.dtype, "bias"));
  if (shape.has_added) parts.operands.push_back(gpu::input_parameter(shape.dtype, "added"));
  if (epilogue != nullptr) {
    add_epilogue_operands(&parts, shape.dtype, *epilogue);
  } else {
    parts.operands.push_back(gpu::output_parameter(call.outputs[0].type.dtype, "out"));
  }
  return parts;
}

}  // namespace

bool is_few_channels(const ConvShape& shape) {
  const WindowAxis& along = shape.axes[1];
  return size_bytes(shape.dtype) == 2 && shape.kind != ConvKind::grad_input && !shape.is_pooled && shape.groups == 1 &&
         shape.channels < TapRows::kChannels && along.dilation == 1 && along.kernel * TapRows::kChannels <= kMostInRow;
}

TapRows::TapRows(const ConvShape& shape)
    : windows(shape.axes[1].outputs),
      channels(shape.axes[1].kernel * kChannels),
      rows(shape.axes[0].size),
      batch(shape.batch),
      step(shape.axes[1].stride),
      outputs(shape.outputs),
      kernel_rows(shape.axes[0].kernel),
      dtype(shape.dtype) {
  columns = ceil_div((windows - 1) * step + shape.axes[1].kernel, step) * step;
  if (step > kMostStep || (shape.kind == ConvKind::grad_weight && windows % kWindowsAtOnce != 0)) return;
  if (outputs > kMostOutputs || kernel_rows > kMostKernelRows) return;  // whose weights a CTA keeps
  if (windows > kMostWindows || windows * 5 < kMostWindows * 3) return;
  const WindowAxis& down = shape.axes[0];
  const std::int64_t of_row = round_up(columns, kAlignedPixels), brought = (kernel_rows - 1) * down.dilation + 1;
  if (brought * of_row / kAlignedPixels > kMostPieces) return;
  is_by_rows = true, planes = step, columns = of_row;
  rows_above = down.before, rows_brought = brought, row_apart = down.dilation;
  rows = (down.outputs - 1) * down.stride + brought;
}

std::int64_t TapRows::image_bytes() const {
  return ceil_div(batch * rows * columns * kChannels * size_bytes(dtype), kTapAlign) * kTapAlign;
}

gpu::TensorMap TapRows::map() const {
  const std::int64_t row = columns * kChannels, piece = kAlignedPixels * kChannels;
  if (is_by_rows) {
    gpu::TensorMap pieces = gpu::TensorMap::matrix(gpu::TensorMap::kWorkspace, batch * rows * row / piece, piece, piece,
                                                   static_cast<int>(rows_brought * row / piece));
    pieces.dtype = dtype, pieces.is_plain = true;
    return pieces;
  }
  return {.operand = gpu::TensorMap::kWorkspace,
          .dtype = dtype,
          .extents = {channels, windows, rows, batch},
          .strides = {step * kChannels, row, rows * row},
          .windows = {}};
}

gpu::TextLaunch plan_tap_rows(const KernelCall& call, const Epilogue* epilogue) {
  const ConvShape shape(call);
  const TapRows rows(shape);
  const std::int64_t pixels = rows.batch * rows.rows * rows.columns;
  gpu::TextParts parts = parts_of_text(call, shape, "conv2d_tap_rows", pixels, epilogue);
  auto& s = parts.sizes;
  s.number("pixels", pixels), s.divisor("columns", rows.columns / rows.planes), s.divisor("planes", rows.planes);
  s.divisor("rows", rows.rows), s.number("image_rows", shape.axes[0].size), s.number("before_h", rows.rows_above);
  s.number("before", shape.axes[1].before), s.number("image_columns", shape.axes[1].size);
  s.number("channels", shape.channels);
  gpu::add_strides(&s, "image", shape.x);
  parts.functions = k_conv_tap_rows_cu;
  parts.call = "lay_tap_rows(image, (Stored*)scratch.workspace, size)";
  return gpu::make_text_kernel(parts);
}

gpu::TextLaunch plan_weight_tap_rows(const KernelCall& call, const Epilogue* epilogue) {
  const ConvShape shape(call);
  const TapRows rows(shape);
  const std::int64_t taps = shape.outputs * shape.axes[0].kernel * shape.axes[1].kernel;
  gpu::TextParts parts = parts_of_text(call, shape, "conv2d_weight_tap_rows", taps, epilogue);
  auto& s = parts.sizes;
  s.number("taps", taps), s.number("channels", shape.channels);
  s.divisor("kernel_columns", shape.axes[1].kernel), s.divisor("kernel_rows", shape.axes[0].kernel);
  const char* const names[] = {"weight_n", "weight_c", "weight_h", "weight_w"};
  for (std::size_t i = 0; i < 4; ++i) s.number(names[i], shape.w.strides[i]);
  s.wide_number("image_bytes", rows.image_bytes());
  parts.functions = k_conv_weight_tap_rows_cu;
  parts.call = "lay_weight_tap_rows(weights, (Stored*)((char*)scratch.workspace + size.image_bytes_wide), size)";
  return gpu::make_text_kernel(parts);
}

}  // namespace paoding
