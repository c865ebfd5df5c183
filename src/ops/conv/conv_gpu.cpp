// SPDX-License-Identifier: Apache-2.0
// Convolutions on the GPU, any float, layout and group count: the sums of the definition, one thread per element of an
// image and one CTA per weight, in a fixed order. No tensor cores and no tiles: a product of matrices (implicit GEMM)
// is yet to come, which the table says.
#include "base/check.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/window_gpu.h"

namespace paoding {
namespace {

constexpr int kThreads = 256;

constexpr std::string_view kImageText = R"cuda(
// Coordinates of an element of an image, in the order in which it lies.
struct Place { Index n, c, h, w; };
PD_DEVICE Place place_of(Index rest, const Sizes& size) {
  Place p{};
  if constexpr (kChannelsLast) p.c = next_coordinate(rest, size.channels);
  p.w = next_coordinate(rest, size.width), p.h = next_coordinate(rest, size.height);
  if constexpr (!kChannelsLast) p.c = next_coordinate(rest, size.channels);
  p.n = rest;
  return p;
}
)cuda";

// y[n, o, i, j]; c counts the channels of o's group.
constexpr std::string_view kForwardText = R"cuda(
template <class T>
PD_DEVICE void convolve(const T* x, const T* w, const T* bias, T* y, const Window& vertical, const Window& horizontal,
                        const Sizes& size) {
  const Index first = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (first >= size.total) return;
  const Place p = place_of(first, size);
  const Index channel = p.c / size.group_outputs * size.group_channels;
  const Taps rows = taps_of(vertical, p.h), columns = taps_of(horizontal, p.w);
  Compute<T> sum = 0;
  for (Index c = 0; c < size.group_channels; ++c) {
    for (Index k = rows.first; k < rows.last; ++k) {
      const T* const from =
          x + (p.n * size.x_n + (channel + c) * size.x_c + element_of(vertical, p.h, k) * size.x_h);
      const T* const weights = w + (p.c * size.w_n + c * size.w_c + k * size.w_h);
      for (Index l = columns.first; l < columns.last; ++l) {
        sum += load_one<true>(from + element_of(horizontal, p.w, l) * size.x_w) * load_one<true>(weights + l * size.w_w);
      }
    }
  }
  if constexpr (kHasBias) sum += load_one<true>(bias + p.c * size.bias);
  if constexpr (kHasRelu) sum = sum > 0 ? sum : Compute<T>(0);
  store_sum<false>(y + (p.n * size.y_n + p.c * size.y_c + p.h * size.y_h + p.w * size.y_w), sum);
}
)cuda";

// x[n, c, h, w]: what the outputs of c's group that read it give back.
constexpr std::string_view kGradInputText = R"cuda(
template <class T>
PD_DEVICE void convolve(const T* y, const T* w, T* x, const Window& vertical, const Window& horizontal,
                        const Sizes& size) {
  const Index at = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (at >= size.total) return;
  const Place p = place_of(at, size);
  const Index group = p.c / size.group_channels, c = p.c - group * size.group_channels;
  Compute<T> sum = 0;
  for (Index o = group * size.group_outputs; o < (group + 1) * size.group_outputs; ++o) {
    for (Index k = 0; k < vertical.kernel; ++k) {
      const Index i = window_of(vertical, p.h, k);
      if (i < 0) continue;
      const T* const from = y + (p.n * size.y_n + o * size.y_c + i * size.y_h);
      const T* const weights = w + (o * size.w_n + c * size.w_c + k * size.w_h);
      for (Index l = 0; l < horizontal.kernel; ++l) {
        const Index j = window_of(horizontal, p.w, l);
        if (j >= 0) sum += load_one<true>(from + j * size.y_w) * load_one<true>(weights + l * size.w_w);
      }
    }
  }
  store_sum<false>(x + (p.n * size.x_n + p.c * size.x_c + p.h * size.x_h + p.w * size.x_w), sum);
}
)cuda";

// w[o, c, k, l]: a sum over all windows of all images, which the threads of a CTA share.
constexpr std::string_view kGradWeightText = R"cuda(
template <class T>
PD_DEVICE void convolve(const T* x, const T* y, T* w, const Window& vertical, const Window& horizontal,
                        const Sizes& size) {
  __shared__ Compute<T> shared[kThreads / 32];
  Index rest = blockIdx.x;
  const Index l = next_coordinate(rest, size.kernel_width), k = next_coordinate(rest, size.kernel_height);
  const Index c = next_coordinate(rest, size.weight_channels), o = rest;
  const Index channel = o / size.group_outputs * size.group_channels + c;
  Compute<T> sum = 0;
  for (Index at = threadIdx.x; at < size.windows; at += kThreads) {
    Index n = at;
    const Index j = next_coordinate(n, size.output_width), i = next_coordinate(n, size.output_height);
    const Index h = element_of(vertical, i, k), v = element_of(horizontal, j, l);
    if (h < 0 || h >= vertical.size || v < 0 || v >= horizontal.size) continue;
    sum += load_one<true>(x + (n * size.x_n + channel * size.x_c + h * size.x_h + v * size.x_w)) *
           load_one<true>(y + (n * size.y_n + o * size.y_c + i * size.y_h + j * size.y_w));
  }
  sum = combine_threads<Sum, kThreads>(sum, shared);
  if (threadIdx.x == 0) store_sum<false>(w + (o * size.w_n + c * size.w_c + k * size.w_h + l * size.w_w), sum);
}
)cuda";

gpu::TextPlan plan(const KernelCall& call) {
  const ConvShape shape(call);
  const bool is_weight = shape.kind == ConvKind::grad_weight;
  const Layout& result = is_weight ? shape.w : shape.kind == ConvKind::forward ? shape.y : shape.x;
  const Shape& extents = result.type.shape;
  if (extents.elements() == 0) return {};
  gpu::TextParts text;
  text.name = call.op->name;
  text.threads = kThreads;
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
    text.constants = fmt::format("constexpr bool kChannelsLast = {}, kHasBias = {}, kHasRelu = {};\n",
                                 is_channels_last(result), shape.has_bias, shape.has_relu);
    sizes.number("total", extents.elements());
    sizes.number("bias", shape.has_bias ? shape.bias.strides[0] : 0);
    sizes.divisor("channels", extents[1]), sizes.divisor("height", extents[2]), sizes.divisor("width", extents[3]);
    text.ctas = gpu::parts_of(extents.elements(), kThreads);
  }
  text.functions = fmt::format("{}{}{}", gpu::kWindowText, is_weight ? "" : kImageText,
                               is_weight                         ? kGradWeightText
                               : shape.kind == ConvKind::forward ? kForwardText
                                                                 : kGradInputText);
  text.call = gpu::add_window(&sizes, "vertical", shape.axes[0]) + "  " +
              gpu::add_window(&sizes, "horizontal", shape.axes[1]) + "  ";
  const auto input = [&](const char* name) { text.operands.push_back(gpu::input_parameter(shape.dtype, name)); };
  input("a"), input("b");
  if (shape.has_bias) input("bias");
  text.operands.push_back(gpu::output_parameter(shape.dtype, "out"));
  text.call += shape.kind != ConvKind::forward ? "convolve(a, b, out, vertical, horizontal, size)"
               : shape.has_bias                ? "convolve(a, b, bias, out, vertical, horizontal, size)"
                                               : "convolve(a, b, a, out, vertical, horizontal, size)";
  gpu::TextPlan made;
  made.launches.push_back(gpu::make_text_kernel(text));
  return made;
}

}  // namespace

void register_convolution_gpu() {
  for (const char* op : {"conv2d", "conv2d_bias", "conv2d_grad_input", "conv2d_grad_weight"}) {
    register_kernel(op, {.name = "implicit_gemm",
                         .device = DeviceKind::cuda,
                         .refusal = [](const KernelCall&) -> std::string {
                           return "not written yet: on a GPU convolutions run as plain sums, far below its speed";
                         },
                         .prepare = nullptr});
    gpu::register_text_kernel(
        op, "sums", [](const KernelCall&) { return std::string(); }, plan);
  }
}

}  // namespace paoding
