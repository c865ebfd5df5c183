// SPDX-License-Identifier: Apache-2.0
// Convolutions with few channels a group, depthwise ones above all, as sums by threads that have some channels each
// (conv_channel*.cu): they are bound by memory, and tiles of the tensor cores would be empty. This file decides how
// many channels and windows a thread has, and, for the gradient for the weights, how many taps.
#include <algorithm>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_text.h"
#include "ops/conv/gpu/conv_weight_sum.h"
#include "ops/conv/gpu/window.h"

namespace paoding {
namespace {

constexpr int kChannelThreads = 128;
constexpr std::int64_t kMostReads = 8;           // channels of a group that a window reads
constexpr std::int64_t kLeastGroupChannels = 8;  // products' tiles are for those
constexpr std::int64_t kMostChannelOffset = std::int64_t{1} << 30;
constexpr std::int64_t kChannelSharedBytes = 48 << 10;                 // that a kernel has without asking
constexpr std::int64_t kStrip = 4, kMostReach = 12, kMostPixels = 48;  // windows; pixels of a row, and their parts
constexpr std::int64_t kMostSums = 96;                                 // of a thread, in registers

// A convolution channel by channel, as its kernels want it; its gradient for the image is one that reads the gradient.
struct Channelwise {
  ConvShape shape;
  bool is_back, is_spread;
  const Layout &image, &out;
  std::int64_t reads, made;  // channels of a group
  std::int64_t vector = 1, lanes = 1, strip = 1, tap_rows;
  std::int64_t first[2], steps[2], taps[2];  // where windows begin, how far they and their taps are apart

  explicit Channelwise(const KernelCall& call)
      : shape(call),
        is_back(shape.kind == ConvKind::grad_input),
        is_spread(is_back && std::max(shape.axes[0].stride, shape.axes[1].stride) > 1),
        image(is_back ? shape.y : shape.x),
        out(is_back ? shape.x : shape.y),
        reads(image.type.shape[1] / shape.groups),
        made(out.type.shape[1] / shape.groups),
        tap_rows(shape.axes[0].kernel) {
    const bool is_weight = shape.kind == ConvKind::grad_weight;
    for (std::size_t i = 0; i < 2; ++i) {
      const WindowAxis& axis = shape.axes[i];
      first[i] = !is_back ? -axis.before : is_spread ? axis.before : axis.before - (axis.kernel - 1) * axis.dilation;
      steps[i] = is_back ? 1 : axis.stride;
      taps[i] = is_spread ? -axis.dilation : axis.dilation;
    }
    if (is_weight) {
      choose_taps(call);
    } else {
      vector = widest(call);
      while (vector > 1 && (!is_vector(vector) || shared_bytes() > kChannelSharedBytes)) vector /= 2;
    }
    const std::int64_t reach = reach_of(kStrip), pieces = vector > 1 ? 1 : reads;
    if (!is_spread && out.type.shape[3] > 2 && reach <= kMostReach && reach * pieces <= kMostPixels) strip = kStrip;
    while (lanes < 32 && lanes * vector < channels()) lanes *= 2;
    while (lanes > 1 && !is_weight && shared_bytes() > kChannelSharedBytes) lanes /= 2;
  }

  std::int64_t channels() const { return out.type.shape[1]; }
  std::int64_t taps_of_row() const { return shape.axes[1].kernel; }
  std::int64_t all_taps() const { return shape.axes[0].kernel * taps_of_row(); }
  std::int64_t sums_of_row() const { return taps_of_row() * reads * vector; }
  std::int64_t reach_of(std::int64_t windows) const {
    return (windows - 1) * steps[1] + (taps_of_row() - 1) * shape.axes[1].dilation + 1;
  }
  std::int64_t shared_bytes() const { return all_taps() * reads * lanes * vector * 4; }
  std::int64_t chunks() const { return ceil_div(channels(), lanes * vector); }
  std::int64_t row_strips() const { return ceil_div(out.type.shape[3], strip); }
  std::int64_t strips() const { return out.type.shape[0] * out.type.shape[2] * row_strips(); }
  std::int64_t cta_rows() const { return ceil_div(strips(), kChannelThreads / lanes); }
  std::int64_t tap_parts() const { return ceil_div(shape.axes[0].kernel, tap_rows); }

 private:
  // Several channels at once where their groups lie side by side in both images.
  bool is_vector(std::int64_t count) const { return count == 1 || (reads == made && count % reads == 0); }
  std::int64_t widest(const KernelCall& call) const {
    const bool is_weight = shape.kind == ConvKind::grad_weight;
    const std::int64_t of_out = is_weight ? call.alignments[1] : call.alignments.back();
    std::int64_t count = std::min(gpu::channels_at_once(image, call.alignments[0], image.type.shape[1]),
                                  gpu::channels_at_once(out, of_out, out.type.shape[1]));
    while (!is_vector(count)) count /= 2;
    return count;
  }
  // Takes as few walks over the images as sums in registers allow, and of those the one with the most channels at once.
  void choose_taps(const KernelCall& call) {
    std::int64_t fewest = shape.axes[0].kernel + 1;
    for (std::int64_t count = widest(call); count > 0; count /= 2) {
      const std::int64_t of_row = taps_of_row() * reads * count;
      if (!is_vector(count) || of_row > kMostSums) continue;
      const std::int64_t walks = ceil_div(shape.axes[0].kernel, kMostSums / of_row);
      if (walks >= fewest) continue;
      fewest = walks, vector = count, tap_rows = ceil_div(shape.axes[0].kernel, walks);
    }
  }
};

std::string channel_refusal(const KernelCall& call) {
  const ConvShape shape(call);
  if (shape.dtype == DType::f64) return "f64, for which sums are in f32";
  if (shape.is_empty()) return "an extent is 0";
  if (shape.groups == 1) return "one group";
  const Channelwise c(call);
  if (std::min(c.reads, c.made) >= kLeastGroupChannels) {
    return fmt::format("groups of {} channels in and {} out, which products are for", c.reads, c.made);
  }
  if (c.reads > kMostReads) return fmt::format("windows read {} channels, more than {}", c.reads, kMostReads);
  const std::int64_t reach = std::max({gpu::reach_of(shape.x), gpu::reach_of(shape.y), gpu::reach_of(shape.w)});
  if (std::max(reach, c.strips()) >= kMostChannelOffset) return "offsets of 2^30 elements or more";
  for (const WindowAxis& axis : shape.axes) {
    if (gpu::reach_of(axis) >= kMostChannelOffset) return "positions of 2^30 or more";
  }
  if (shape.kind != ConvKind::grad_weight && c.shared_bytes() > kChannelSharedBytes) {
    return fmt::format("weights of a channel take {} bytes, more than {}", c.shared_bytes(), kChannelSharedBytes);
  }
  if (shape.kind == ConvKind::grad_weight && c.sums_of_row() > kMostSums) {
    return fmt::format("{} sums of a row of taps, more than the {} that a thread keeps", c.sums_of_row(), kMostSums);
  }
  return "";
}

// The sizes and constants that both sources need.
gpu::TextParts text_of(const KernelCall& call, const Channelwise& c) {
  gpu::TextParts text;
  text.name = call.op->name;
  text.threads = kChannelThreads;
  const auto constant = [&](const char* what, std::int64_t value) {
    text.constants += fmt::format("constexpr {} = {};\n", what, value);
  };
  text.constants = fmt::format("using Stored = {};\n", gpu::stored_type(c.shape.dtype));
  constant("int kVector", c.vector), constant("int kLanes", c.lanes), constant("int kStrip", c.strip);
  constant("int kGroupReads", c.reads), constant("int kGroupMade", c.made);
  constant("int kKernelRows", c.shape.axes[0].kernel), constant("int kKernelColumns", c.shape.axes[1].kernel);
  constant("int kStepH", c.steps[0]), constant("int kStepW", c.steps[1]);
  constant("int kTapH", c.taps[0]), constant("int kTapW", c.taps[1]);
  auto& s = text.sizes;
  gpu::add_strides(&s, "image", c.image), gpu::add_strides(&s, "of_window", c.out);
  s.number("image_rows", c.image.type.shape[2]), s.number("image_columns", c.image.type.shape[3]);
  s.number("channels", c.channels()), s.number("window_columns", c.out.type.shape[3]);
  s.divisor("window_rows", c.out.type.shape[2]), s.divisor("row_strips", c.row_strips());
  s.divisor("chunks", c.chunks()), s.number("strips", c.strips());
  s.number("first_h", c.first[0]), s.number("first_w", c.first[1]);
  return text;
}

// Parts of all strips, of which an SM works on `most` at once.
std::int64_t parts_of_strips(const KernelCall& call, const Channelwise& c, std::int64_t of_part, std::int64_t most) {
  return std::clamp<std::int64_t>(call.target->sm_count * most / of_part, 1, c.cta_rows());
}

gpu::TextPlan finish(const Channelwise& c, gpu::TextParts* text, std::int64_t parts, std::string_view functions) {
  text->sizes.number("parts", parts);
  text->functions = fmt::format("{}{}", k_conv_channel_cu, functions);
  gpu::TextPlan made;
  made.launches.push_back(gpu::make_text_kernel(*text));
  made.launches.back().why =
      fmt::format("{} channels of {} windows a thread, {} lanes, {} parts", c.vector, c.strip, c.lanes, parts);
  return made;
}

gpu::TextPlan plan_channel_images(const KernelCall& call) {
  constexpr std::int64_t kMostCtas = 16, kMostUnrolled = 25;
  const Channelwise c(call);
  gpu::TextParts text = text_of(call, c);
  const auto& [vertical, horizontal] = c.shape.axes;
  text.constants += fmt::format(
      "constexpr bool kIsBack = {}, kIsSpread = {}, kHasBias = {};\n{}"
      "constexpr int kSpreadH = {}, kSpreadW = {}, kRowsAtOnce = {}, kColumnsAtOnce = {};\n",
      c.is_back, c.is_spread, c.shape.has_bias, activation_text(c.shape), c.is_spread ? vertical.stride : 1,
      c.is_spread ? horizontal.stride : 1, c.all_taps() <= kMostUnrolled ? vertical.kernel : 1,
      std::min<std::int64_t>(horizontal.kernel, kStrip));
  auto& s = text.sizes;
  const auto& w = c.shape.w.strides;
  s.number("weight_n", w[0]), s.number("weight_c", w[1]), s.number("weight_h", w[2]), s.number("weight_w", w[3]);
  s.number("bias", c.shape.has_bias ? c.shape.bias.strides[0] : 0);
  const std::int64_t parts = parts_of_strips(call, c, c.chunks(), kMostCtas);
  text.ctas = parts * c.chunks();
  for (const char* name : {"images", "weights"}) text.operands.push_back(gpu::input_parameter(c.shape.dtype, name));
  if (c.shape.has_bias) text.operands.push_back(gpu::input_parameter(c.shape.dtype, "bias"));
  text.operands.push_back(gpu::output_parameter(c.shape.dtype, "out"));
  text.call = fmt::format("convolve(images, weights, {}, out, size)", c.shape.has_bias ? "bias" : "weights");
  gpu::TextPlan made = finish(c, &text, parts, k_conv_channel_images_cu);
  made.launches.back().shared_bytes = static_cast<unsigned>(c.shared_bytes());
  return made;
}

gpu::TextPlan plan_channel_weights(const KernelCall& call) {
  constexpr std::int64_t kMostCtas = 4;  // whose sums are added up
  const Channelwise c(call);
  gpu::TextParts text = text_of(call, c);
  text.constants += fmt::format("constexpr int kTapRows = {};\n", c.tap_rows);
  text.sizes.divisor("tap_parts", c.tap_parts());
  const std::int64_t parts = parts_of_strips(call, c, c.chunks() * c.tap_parts(), kMostCtas);
  text.ctas = parts * c.chunks() * c.tap_parts();
  for (const char* name : {"images", "gradients"}) text.operands.push_back(gpu::input_parameter(c.shape.dtype, name));
  text.operands.push_back(gpu::output_parameter(c.shape.w.type.dtype, "out"));
  text.call = "add_up(images, gradients, (float*)scratch.workspace, size)";
  gpu::TextPlan made = finish(c, &text, parts, k_conv_channel_weights_cu);
  made.launches.push_back(plan_weight_sum(call, parts));
  made.workspace_bytes = parts * c.shape.w.type.shape.elements() * 4;
  return made;
}

}  // namespace

void register_convolution_channel_gpu() {
  for (const char* op : {"conv2d", "conv2d_bias", "conv2d_grad_input"}) {
    gpu::register_text_kernel(op, "by_channel", channel_refusal, plan_channel_images);
  }
  for (const char* op : {"conv2d_grad_weight", "conv2d_grad_weight_wide"}) {
    gpu::register_text_kernel(op, "by_channel", channel_refusal, plan_channel_weights);
  }
}

}  // namespace paoding
