// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/gpu/conv_weight_sum.h"

#include "base/rounding.h"
#include "cuda_text.h"
#include "ops/conv/conv_shape.h"

namespace paoding {

gpu::TextLaunch plan_weight_sum(const KernelCall& call, std::int64_t parts, std::int64_t channels_of_tap,
                                std::int64_t first_byte) {
  constexpr int kThreads = 256;
  constexpr std::int64_t kFewParts = 32;  // that a thread adds up alone
  const ConvShape shape(call);
  const std::int64_t of_weights = shape.w.type.shape.elements();
  const std::int64_t elements = of_weights + (shape.has_bias ? shape.outputs : 0);
  gpu::TextParts text;
  text.name = "conv2d_grad_weight_sum";
  text.threads = kThreads;
  const int width = parts <= kFewParts ? kThreads : 32;
  text.ctas = ceil_div(elements, width);
  text.constants =
      fmt::format("constexpr bool kHasBiasGradient = {};\nconstexpr int kWidth = {};\n", shape.has_bias, width);
  auto& s = text.sizes;
  s.number("elements", elements), s.number("parts", parts);
  s.number("of_weights", of_weights), s.number("bias", shape.has_bias ? shape.bias.strides[0] : 0);
  const Shape& extents = shape.w.type.shape;
  s.divisor("channels", extents[1]), s.divisor("kernel_columns", extents[3]), s.divisor("kernel_rows", extents[2]);
  if (channels_of_tap == 0) channels_of_tap = extents[1];
  const std::int64_t taps = extents[2] * extents[3];
  s.number("part_c", channels_of_tap), s.number("part_bias", shape.outputs * taps * channels_of_tap);
  s.wide_number("part", shape.outputs * taps * channels_of_tap + elements - of_weights);
  s.number("weight_n", shape.w.strides[0]), s.number("weight_c", shape.w.strides[1]);
  s.number("weight_h", shape.w.strides[2]), s.number("weight_w", shape.w.strides[3]);
  for (const char* name : {"image", "gradient"}) text.operands.push_back(gpu::input_parameter(shape.dtype, name));
  if (shape.is_pooled) text.operands.push_back(gpu::input_parameter(shape.index.type.dtype, "index"));
  text.operands.push_back(gpu::output_parameter(shape.w.type.dtype, "out"));
  if (shape.is_pooled) text.operands.push_back(gpu::output_parameter(shape.bias.type.dtype, "of_bias"));
  text.functions = k_conv_weight_sum_cu;
  s.wide_number("first_byte", first_byte);
  text.call =
      fmt::format("add_parts((const float*)((const char*)scratch.workspace + size.first_byte_wide), out, {}, size)",
                  shape.has_bias ? "of_bias" : "out");
  return gpu::make_text_kernel(text);
}

}  // namespace paoding
