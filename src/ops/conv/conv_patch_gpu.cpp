// SPDX-License-Identifier: Apache-2.0
// Convolutions of few channels on the tensor cores (conv_patch*.cu): what a CTA's windows read is brought near once,
// not once per tap. What is decided here: whether the weights and a patch of the images fit beside those of other CTAs,
// and how many CTAs share the windows.
#include <algorithm>

#include "base/check.h"
#include "cuda_text.h"
#include "gpu/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/window_gpu.h"

namespace paoding {
namespace {

constexpr int kThreads = 128;
constexpr std::int64_t kRows = 128;                            // windows of a tile
constexpr std::int64_t kMostChannels = 64, kMostDepth = 1024;  // in and out; of (tap, channel)
constexpr std::int64_t kMostOffset = std::int64_t{1} << 30;
constexpr std::int64_t kReservedBytes = 1 << 10;  // of shared memory, per CTA
constexpr std::int64_t kMostCtas = 5;             // of an SM: what their registers allow

// A convolution as windows over images; its gradient for the images is one, of the taps in their opposite order.
struct Patch {
  ConvShape shape;
  bool is_back;
  const Layout &image, &out;
  std::int64_t channels, columns, windows;
  std::int64_t slot = 0;  // elements of a pixel in the patch
  std::int64_t step = 0;  // elements along (tap, channel) that are multiplied at once
  std::int64_t tile_columns = 8;
  std::int64_t first[2], steps[2];  // where windows begin, and how far they are apart
  std::int64_t spans[2];            // pixels from a window's first tap to its last
  std::int64_t tall_rows, patch_rows, patch_columns;

  explicit Patch(const KernelCall& call)
      : shape(call),
        is_back(shape.kind == ConvKind::grad_input),
        image(is_back ? shape.y : shape.x),
        out(is_back ? shape.x : shape.y),
        channels(image.type.shape[1]),
        columns(out.type.shape[1]),
        windows(out.type.shape[0] * out.type.shape[2] * out.type.shape[3]) {
    const std::int64_t size = size_bytes(shape.dtype);
    step = 32 / size;
    while (tile_columns < columns) tile_columns *= 2;
    for (std::size_t i = 0; i < 2; ++i) {
      const WindowAxis& axis = shape.axes[i];
      spans[i] = (axis.kernel - 1) * axis.dilation;
      first[i] = is_back ? axis.before - spans[i] : -axis.before;
      steps[i] = is_back ? 1 : axis.stride;
    }
    const std::int64_t rows = out.type.shape[2], row = std::max<std::int64_t>(out.type.shape[3], 1);
    tall_rows = (rows - 1) * steps[0] + spans[0] + 1;
    patch_columns = (row - 1) * steps[1] + spans[1] + 1;
    // Of the rows of windows that a tile touches, those that begin another image are further apart.
    const std::int64_t touched = gpu::parts_of(kRows - 1, row) + 1;
    const std::int64_t images = gpu::parts_of(touched - 1, std::max<std::int64_t>(rows, 1));
    patch_rows = (touched - 1) * steps[0] + images * std::max<std::int64_t>(spans[0] + 1 - steps[0], 0) + spans[0] + 1;
    // 16 bytes more than a pixel has: the same words of neighbours come from different banks.
    slot = is_by_channels() ? channels + 16 / size : piece(call) > 1 ? channels + piece(call) : channels;
  }
  std::int64_t taps() const { return shape.axes[0].kernel * shape.axes[1].kernel; }
  std::int64_t depth() const { return gpu::parts_of(taps() * channels, step) * step; }
  bool is_by_channels() const { return channels % step == 0; }
  int piece(const KernelCall& call) const { return gpu::channels_at_once(image, call.alignments[0], channels); }
  std::int64_t shared_bytes() const {
    const std::int64_t size = size_bytes(shape.dtype);
    return tile_columns * (depth() * size + 16) + kRows * 16 + (is_by_channels() ? 0 : depth() * 4) +
           patch_rows * patch_columns * slot * size;
  }
};

std::string refusal(const KernelCall& call) {
  const Patch p(call);
  const ConvShape& shape = p.shape;
  if (shape.dtype == DType::f64) return "f64, for which it has no products";
  if (shape.dtype == DType::f32 && !call.allow_tf32) return "f32 that is not to be rounded";
  if (call.target->major < 8) return "copies beside other work come with compute capability 8";
  if (shape.is_empty()) return "an extent is 0";
  if (shape.groups > 1) return "several groups";
  if (p.is_back && std::max(shape.axes[0].stride, shape.axes[1].stride) > 1) {
    return "windows with a stride, whose gradients lie spread out";
  }
  if (std::max(p.channels, p.columns) > kMostChannels || p.depth() > kMostDepth) {
    return fmt::format("{} channels to {} by {} taps, more than shared memory is for", p.channels, p.columns, p.taps());
  }
  if (p.channels > 1 && p.image.strides[1] != 1) return "the image's channels do not lie last";
  const std::int64_t size = size_bytes(shape.dtype);
  if (!p.is_by_channels() && size < 4) return fmt::format("{} channels of 16 bits, no multiple of 16", p.channels);
  if (p.piece(call) * size < 4) return "pixels do not start at multiples of 4 bytes";
  const std::int64_t reach = std::max({gpu::reach_of(shape.x), gpu::reach_of(shape.y), gpu::reach_of(shape.w)});
  if (std::max({reach, p.windows, p.tall_rows, p.patch_columns}) >= kMostOffset ||
      shape.batch >= kMostOffset / p.tall_rows || p.patch_rows >= kMostOffset / p.patch_columns / p.slot) {
    return "offsets of 2^30 elements or more";
  }
  const std::int64_t most = call.target->shared_bytes / 2 - kReservedBytes;
  if (p.shared_bytes() > most) {
    return fmt::format("weights and patch take {} bytes of shared memory, {} leave room for a second CTA",
                       p.shared_bytes(), most);
  }
  return "";
}

gpu::TextPlan plan(const KernelCall& call) {
  const Patch p(call);
  const ConvShape& shape = p.shape;
  gpu::TextParts text;
  text.name = call.op->name;
  text.threads = kThreads;
  const auto constant = [&](const char* what, std::int64_t value) {
    text.constants += fmt::format("constexpr {} = {};\n", what, value);
  };
  text.constants = fmt::format("using Stored = {};\n", gpu::stored_type(shape.dtype));
  constant("int kRows", kRows), constant("int kColumns", p.tile_columns);
  constant("int kChannels", p.channels), constant("int kSlot", p.slot), constant("int kPiece", p.piece(call));
  constant("int kTaps", p.taps()), constant("int kKernelColumns", shape.axes[1].kernel);
  constant("bool kIsByChannels", p.is_by_channels());
  constant("bool kHasBias", shape.has_bias), constant("bool kHasRelu", shape.has_relu);
  constant("bool kIsOutInPairs", gpu::channels_at_once(p.out, call.alignments.back(), p.columns) > 1);
  auto& s = text.sizes;
  gpu::add_strides(&s, "image", p.image), gpu::add_strides(&s, "of_window", p.out);
  s.number("image_rows", p.image.type.shape[2]), s.number("image_columns", p.image.type.shape[3]);
  s.number("windows", p.windows), s.number("columns", p.columns);
  s.divisor("window_rows", p.out.type.shape[2]), s.divisor("window_columns", p.out.type.shape[3]);
  s.number("first_h", p.first[0]), s.number("first_w", p.first[1]);
  s.number("step_h", p.steps[0]), s.number("step_w", p.steps[1]);
  s.divisor("tall_rows", p.tall_rows), s.number("patch_columns", p.patch_columns);
  s.number("reach_h", p.spans[0]);
  s.number("tap_h", shape.axes[0].dilation * p.patch_columns), s.number("tap_w", shape.axes[1].dilation);
  const auto& w = shape.w.strides;
  const std::int64_t sign = p.is_back ? -1 : 1;
  s.number("weight_n", w[p.is_back ? 1 : 0]), s.number("weight_c", w[p.is_back ? 0 : 1]);
  s.number("weight_h", sign * w[2]), s.number("weight_w", sign * w[3]);
  s.number("weight_first", p.is_back ? (shape.axes[0].kernel - 1) * w[2] + (shape.axes[1].kernel - 1) * w[3] : 0);
  s.number("bias", shape.has_bias ? shape.bias.strides[0] : 0);
  const std::int64_t tiles = gpu::parts_of(p.windows, kRows);
  s.number("tiles", tiles);
  const std::int64_t ctas = std::min(call.target->shared_bytes / (p.shared_bytes() + kReservedBytes), kMostCtas);
  text.ctas = gpu::parts_of(tiles, gpu::parts_of(tiles, call.target->sm_count * ctas));  // as many tiles for each
  for (const char* name : {"images", "weights"}) text.operands.push_back(gpu::input_parameter(shape.dtype, name));
  if (shape.has_bias) text.operands.push_back(gpu::input_parameter(shape.dtype, "bias"));
  text.operands.push_back(gpu::output_parameter(shape.dtype, "out"));
  text.functions = fmt::format("{}{}{}", k_warp_products_cu, k_conv_patch_cu, k_conv_patch_images_cu);
  text.call = fmt::format("convolve(images, weights, {}, out, size)", shape.has_bias ? "bias" : "nullptr");
  gpu::TextPlan made;
  made.launches.push_back(gpu::make_text_kernel(text));
  made.launches.back().shared_bytes = static_cast<unsigned>(p.shared_bytes());
  made.launches.back().is_alone = true;
  made.launches.back().why = fmt::format("{} tiles of {} x {}, patches of {} x {} pixels, {} CTAs", tiles, kRows,
                                         p.tile_columns, p.patch_rows, p.patch_columns, text.ctas);
  return made;
}

}  // namespace

void register_convolution_patch_gpu() {
  for (const char* op : {"conv2d", "conv2d_bias", "conv2d_grad_input"}) {
    gpu::register_text_kernel(op, "patch", refusal, plan);
  }
}

}  // namespace paoding
