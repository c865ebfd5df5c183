// SPDX-License-Identifier: Apache-2.0
// Convolutions on the GPU, any float, layout and group count: the sums of the definition, one thread per element of an
// image and one CTA per weight, in a fixed order. They take the calls that the other kernels decline.
#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_text.h"
#include "ops/conv/gpu/window.h"

namespace paoding {
namespace {

constexpr int kElementThreads = 256;

// y[n, o, i, j]; c counts the channels of o's group.
// x[n, c, h, w]: the sum of the gradients of the outputs of c's group that read it.
// w[o, c, k, l]: a sum over all windows of all images, which the threads of a CTA share.
gpu::TextPlan plan(const KernelCall& call) {
  const ConvShape shape(call);
  const bool is_weight = shape.kind == ConvKind::grad_weight;
  const Layout& result = is_weight ? shape.w : shape.kind == ConvKind::forward ? shape.y : shape.x;
  const Shape& extents = result.type.shape;
  if (extents.elements() == 0) return {};
  gpu::TextParts text;
  text.name = call.op->name;
  text.threads = kElementThreads;
  std::int64_t most = std::max({gpu::reach_of(shape.x), gpu::reach_of(shape.y), gpu::reach_of(shape.w)});
  for (const WindowAxis& axis : shape.axes) most = std::max(most, gpu::reach_of(axis));
  text.is_wide = gpu::needs_wide_index(most);

  auto& sizes = text.sizes;
  sizes.number("group_channels", shape.w.type.shape[1]);
  sizes.number("group_outputs", shape.groups == 0 ? 0 : shape.outputs / shape.groups);
  gpu::add_strides(&sizes, "x", shape.x), gpu::add_strides(&sizes, "w", shape.w);
  gpu::add_strides(&sizes, "y", shape.y);
  if (is_weight) {
    sizes.divisor("weight_channels", extents[1]);
    sizes.divisor("kernel_height", extents[2]), sizes.divisor("kernel_width", extents[3]);
    sizes.divisor("output_height", shape.axes[0].outputs), sizes.divisor("output_width", shape.axes[1].outputs);
    sizes.number("windows", shape.batch * shape.axes[0].outputs * shape.axes[1].outputs);
    text.ctas = extents.elements();
  } else {
    text.constants =
        fmt::format("constexpr bool kChannelsLast = {};\n{}", is_channels_last(result), epilogue_constants(shape));
    gpu::add_strides(&sizes, "added", shape.added);
    sizes.number("total", extents.elements());
    sizes.number("bias", shape.has_bias ? shape.bias.strides[0] : 0);
    sizes.divisor("channels", extents[1]), sizes.divisor("height", extents[2]), sizes.divisor("width", extents[3]);
    text.ctas = ceil_div(extents.elements(), kElementThreads);
  }
  text.functions = fmt::format("{}{}{}", k_window_cu, is_weight ? "" : k_conv_image_cu,
                               is_weight                         ? k_conv_grad_weight_cu
                               : shape.kind == ConvKind::forward ? k_conv_forward_cu
                                                                 : k_conv_grad_input_cu);
  text.call = gpu::add_window(&sizes, "vertical", shape.axes[0]) + "  " +
              gpu::add_window(&sizes, "horizontal", shape.axes[1]) + "  ";
  if (shape.kind == ConvKind::forward) {
    add_image_operands(&text, shape);
    text.call += fmt::format("convolve(image, weights, {}, {}, out, vertical, horizontal, size)",
                             shape.has_bias ? "bias" : "image", shape.has_added ? "added" : "image");
  } else {
    for (const char* name : {"a", "b"}) text.operands.push_back(gpu::input_parameter(shape.dtype, name));
    text.operands.push_back(gpu::output_parameter(result.type.dtype, "out"));
    text.call += "convolve(a, b, out, vertical, horizontal, size)";
  }
  gpu::TextPlan made;
  made.launches.push_back(gpu::make_text_kernel(text));
  return made;
}

}  // namespace

void register_convolution_gpu() {
  for (const char* op :
       {"conv2d", "conv2d_bias", "conv2d_add", "conv2d_grad_input", "conv2d_grad_weight", "conv2d_grad_weight_wide"}) {
    gpu::register_text_kernel(
        op, "sums", [](const KernelCall&) { return std::string(); }, plan);
  }
}

}  // namespace paoding
