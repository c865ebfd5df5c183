// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/gpu/conv_weight_pack.h"

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "ops/conv/gpu/conv_tap_rows.h"
#include "ops/conv/gpu/conv_text.h"

namespace paoding {
namespace {

bool is_back(const ConvShape& shape) { return shape.kind == ConvKind::grad_input; }
std::int64_t columns_of(const ConvShape& shape) {
  return (is_back(shape) ? shape.channels : shape.outputs) / shape.groups;
}
std::int64_t channels_of(const ConvShape& shape) {
  return (is_back(shape) ? shape.outputs : shape.channels) / shape.groups;
}

}  // namespace

Layout packed_weights(const ConvShape& shape) {
  const std::int64_t rows = shape.axes[0].kernel, taps = shape.axes[1].kernel, channels = channels_of(shape);
  Layout packed;
  packed.type = {shape.dtype, {shape.groups * columns_of(shape), channels, rows, taps}};
  packed.strides = {rows * taps * channels, 1, taps * channels, channels};
  return packed;
}

namespace {

gpu::TextLaunch plan_pack(const ConvShape& shape, const Epilogue* epilogue) {
  constexpr int kThreads = 256;
  const auto& w = shape.w.strides;
  gpu::TextParts text;
  text.name = "conv2d_weight_pack";
  text.threads = kThreads;
  text.constants = fmt::format("using Stored = {};\n", gpu::stored_type(shape.dtype));
  auto& s = text.sizes;
  const std::int64_t pairs = shape.groups * columns_of(shape) * channels_of(shape);
  s.number("pairs", pairs), s.divisor("channels", channels_of(shape)), s.divisor("columns", columns_of(shape));
  s.number("kernel_rows", shape.axes[0].kernel), s.number("kernel_columns", shape.axes[1].kernel);
  s.number("weight_group", shape.outputs / shape.groups * w[0]);
  s.number("weight_n", w[is_back(shape) ? 1 : 0]), s.number("weight_c", w[is_back(shape) ? 0 : 1]);
  s.number("weight_h", w[2]), s.number("weight_w", w[3]);
  text.ctas = ceil_div(pairs, kThreads);
  add_image_operands(&text, shape, epilogue);
  text.functions = k_conv_weight_pack_cu;
  text.call = "pack_weights(weights, (Stored*)scratch.workspace, size)";
  return gpu::make_text_kernel(text);
}

}  // namespace

std::uint32_t transposed_weights(const KernelCall& call) {
  const ConvShape shape(call);
  return is_few_channels(shape) || is_channels_last(shape.w) ? 0 : 0b10;
}

gpu::TextLaunch plan_weight_pack(const KernelCall& call) { return plan_pack(ConvShape(call), nullptr); }

gpu::TextLaunch plan_forward_weight_pack(const KernelCall& call, const Epilogue* epilogue) {
  ConvShape shape(call);
  shape.kind = ConvKind::forward;
  return plan_pack(shape, epilogue);
}

}  // namespace paoding
