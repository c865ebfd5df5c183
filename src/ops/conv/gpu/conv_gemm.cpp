// SPDX-License-Identifier: Apache-2.0
// Convolutions on the GPU as products of matrices that are gathered on the way (conv_gemm*.cu): on the tensor cores in
// TF32, bf16 and f16, and by three products in TF32 where f32 is not to be rounded. Images had better lie with their
// channels innermost, so that 16 bytes are gathered at once. This file decides the tile of a CTA, how much a thread
// brings at once, and into how many parts the sums of a gradient for weights are cut.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/gpu/conv_text.h"
#include "ops/conv/gpu/conv_weight_pack.h"
#include "ops/conv/gpu/conv_weight_sum.h"
#include "ops/conv/gpu/window.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostGemmOffset = std::int64_t{1} << 30;  // sums of a row's and a column's fit 31 bits
constexpr std::int64_t kMostPosition = std::int64_t{1} << 29;
constexpr std::int64_t kGemmSharedBytes = 48 << 10;  // that a kernel has without asking
constexpr std::int64_t kLeastOfGroup = 8;            // columns of a tile of the tensor cores

std::string gemm_refusal(const KernelCall& call) {
  const ConvShape shape(call);
  if (shape.dtype == DType::f64) return "f64, for which it has no products";
  if (std::string why = shape.added_refusal(); !why.empty()) return why;
  if (call.target->major < 8) return "copies beside other work come with compute capability 8";
  if (shape.is_empty()) return "an extent is 0";
  const std::int64_t channels = shape.channels / shape.groups, outputs = shape.outputs / shape.groups;
  if (shape.groups > 1 && std::min(channels, outputs) < kLeastOfGroup) {
    return fmt::format("{} groups of {} channels in and {} out, fewer than the {} that a tile has", shape.groups,
                       channels, outputs, kLeastOfGroup);
  }
  const std::int64_t windows =
      shape.batch * std::max(shape.axes[0].outputs * shape.axes[1].outputs, shape.axes[0].size * shape.axes[1].size);
  const std::int64_t reach = std::max({gpu::reach_of(shape.x), gpu::reach_of(shape.y), gpu::reach_of(shape.w)});
  if (std::max(reach, windows) >= kMostGemmOffset) return "offsets of 2^30 elements or more";
  for (const WindowAxis& axis : shape.axes) {
    if (gpu::reach_of(axis) >= kMostPosition) return "positions of 2^29 or more";
  }
  return "";
}

// An image [n, channels, h, w] by its strides, in the order in which windows go over it.
struct Image {
  const Layout& layout;
  std::int64_t alignment;
  std::int64_t stride(std::size_t axis) const { return layout.strides[axis]; }
  std::int64_t extent(int axis) const { return layout.type.shape[axis]; }
  int piece(std::int64_t group_channels) const { return gpu::channels_at_once(layout, alignment, group_channels); }
};

// In a gradient for an image, taps that read the same pixels are so many apart.
std::int64_t apart_of(const WindowAxis& axis) { return axis.stride / std::gcd(axis.stride, axis.dilation); }

// The sizes and constants that all of the sources need.
class ConvText {
 public:
  ConvText(const KernelCall& call, std::string name, int threads) : shape_(call), target_(*call.target) {
    parts_.name = std::move(name);
    parts_.threads = threads;
    parts_.constants = fmt::format("using Stored = {};\n", gpu::stored_type(shape_.dtype));
    constant("bool kIsExact", shape_.dtype == DType::f32 && !call.allow_tf32);
  }

  void constant(const std::string& what, std::int64_t value) {
    parts_.constants += fmt::format("constexpr {} = {};\n", what, value);
  }
  gpu::SizeFields& sizes() { return parts_.sizes; }
  gpu::TextParts& parts() { return parts_; }

  /// Windows go over `image`, `of_window` has a pixel per window: for `is_back` the other way round.
  void walk(const Image& image, const Image& of_window, bool is_back, std::int64_t group_channels) {
    auto& s = sizes();
    const auto& [vertical, horizontal] = shape_.axes;
    const bool has_phases = is_back && std::max(vertical.stride, horizontal.stride) > 1;
    const std::int64_t rows = has_phases ? ceil_div(of_window.extent(2), vertical.stride) : of_window.extent(2);
    const std::int64_t columns = has_phases ? ceil_div(of_window.extent(3), horizontal.stride) : of_window.extent(3);
    gpu::add_strides(&s, "image", image.layout), gpu::add_strides(&s, "of_window", of_window.layout);
    s.number("image_rows", image.extent(2)), s.number("image_columns", image.extent(3));
    s.number("image_group", group_channels * image.stride(1));
    s.number("windows", of_window.extent(0) * rows * columns);
    s.divisor("window_rows", rows), s.divisor("window_columns", columns);
    s.divisor("channels", group_channels), s.divisor("kernel_columns", horizontal.kernel);
    s.number("depth", depth(group_channels));
    for (std::size_t i = 0; i < 2; ++i) {
      const WindowAxis& axis = shape_.axes[i];
      const std::string end = i == 0 ? "_h" : "_w";
      const std::int64_t apart = apart_of(axis);
      s.number("step" + end, is_back ? 1 : axis.stride), s.number("first" + end, is_back ? axis.before : -axis.before);
      s.number("tap" + end, !is_back     ? axis.dilation
                            : has_phases ? -apart * axis.dilation / axis.stride
                                         : -axis.dilation);
      s.number("stride" + end, axis.stride), s.number("dilation" + end, axis.dilation);
      s.number("apart" + end, apart), s.number("kernel" + end, axis.kernel);
    }
    s.number("pixel_rows", of_window.extent(2)), s.number("pixel_columns", of_window.extent(3));
    s.divisor("phases", has_phases ? vertical.stride * horizontal.stride : 1);
    constant("bool kHasPhases", has_phases);
    constant("int kPiece", image.piece(group_channels));
  }
  /// Where weights lie: [row, channel, h, w], the channels of one tap.
  void weights(const Layout& layout) {
    const char* const names[] = {"weight_n", "weight_c", "weight_h", "weight_w"};
    for (std::size_t i = 0; i < 4; ++i) sizes().number(names[i], layout.strides[i]);
  }
  std::int64_t depth(std::int64_t group_channels) const {
    return group_channels * shape_.axes[0].kernel * shape_.axes[1].kernel;
  }

  gpu::TextLaunch finish(std::string_view text) {
    parts_.functions = fmt::format("{}{}{}{}", k_warp_products_cu, k_exact_factors_cu, k_conv_gemm_cu, text);
    gpu::TextLaunch launch = gpu::make_text_kernel(parts_);
    launch.is_alone = true;
    return launch;
  }

  const ConvShape& shape() const { return shape_; }
  const Target& target() const { return target_; }

 private:
  const ConvShape shape_;
  const Target& target_;
  gpu::TextParts parts_;
};

// The number of stages: as many as fit, up to 4; no more than there are blocks for, and at least 2.
std::int64_t stages_of(std::int64_t stage_bytes, std::int64_t other_bytes, std::int64_t blocks) {
  return std::clamp<std::int64_t>((kGemmSharedBytes - other_bytes) / stage_bytes, 2,
                                  std::clamp<std::int64_t>(blocks, 2, 4));
}

constexpr std::int64_t kPlaceBytes = 16;

// Elements of 16 bits that do not lie side by side cannot be brought beside other work, and those of 32 bits one by one
// take longer to bring than to multiply. So they are packed first, where so many tiles of windows read them.
constexpr std::int64_t kWorthPacking = 8;

// Where the tiles are fewer than the SMs, their sums are cut into parts for twice as many CTAs, of which each has
// blocks enough to be worth the adding up of its part.
constexpr std::int64_t kLeastBlocksOfPart = 8, kMostParts = 16;

std::int64_t parts_of(std::int64_t tiles, std::int64_t blocks, const Target& target) {
  if (tiles == 0 || tiles >= target.sm_count) return 1;
  return std::clamp<std::int64_t>(2 * target.sm_count / tiles, 1,
                                  std::clamp<std::int64_t>(blocks / kLeastBlocksOfPart, 1, kMostParts));
}

// ---- forward, and the gradient for the image ----

gpu::TextPlan plan_gemm_images(const KernelCall& call) {
  const ConvShape shape(call);
  const bool is_back = shape.kind == ConvKind::grad_input;
  const Layout &from = is_back ? shape.y : shape.x, &to = is_back ? shape.x : shape.y;
  const Image image{from, call.alignments[0]}, out{to, call.alignments.back()};
  const std::int64_t channels = image.extent(1) / shape.groups, columns = out.extent(1) / shape.groups;
  const std::int64_t size = size_bytes(shape.dtype);
  const auto& [vertical, horizontal] = shape.axes;
  // The extents are of one phase; without strides there is one phase.
  const std::int64_t phases = is_back ? vertical.stride * horizontal.stride : 1;
  const auto of_phase = [&](std::int64_t extent, std::int64_t steps) {
    return is_back ? ceil_div(extent, steps) : extent;
  };
  const std::int64_t windows =
      out.extent(0) * of_phase(out.extent(2), vertical.stride) * of_phase(out.extent(3), horizontal.stride);
  const std::int64_t depth =
      channels * of_phase(vertical.kernel, apart_of(vertical)) * of_phase(horizontal.kernel, apart_of(horizontal));

  // The narrowest tile that has all columns; of 64 and 128 the one that leaves fewer of them empty.
  std::int64_t tile_columns = 8;
  while (tile_columns < 64 && tile_columns < columns) tile_columns *= 2;
  if (columns > 64 && ceil_div(columns, 128) * 2 == ceil_div(columns, 64)) tile_columns = 128;
  const std::int64_t tiles_n = ceil_div(columns, tile_columns) * shape.groups * phases;
  const std::int64_t rows = ceil_div(windows, 128) * tiles_n < call.target->sm_count ? 64 : 128;
  const int warps_n = tile_columns == 128 ? 2 : 1;
  const std::int64_t block = 64 / size;  // elements along (tap, channel)

  ConvText text(call, call.op->name, 128 * warps_n);
  const std::int64_t blocks = ceil_div(depth, block);
  text.constant("int kRows", rows), text.constant("int kColumns", tile_columns);
  text.constant("int kWarpRows", rows / 4), text.constant("int kWarpColumns", tile_columns / warps_n);
  text.constant("int kStages", stages_of((rows + tile_columns) * 80, (rows + 2 * block) * kPlaceBytes, blocks));
  text.walk(image, out, is_back, channels);
  // [column, channel, h, w] as an image: the channels lie side by side.
  Layout weights = shape.w;
  if (is_back) {
    std::swap(weights.strides[0], weights.strides[1]);
    weights.type.shape =
        Shape{shape.w.type.shape[1], shape.w.type.shape[0], shape.w.type.shape[2], shape.w.type.shape[3]};
  }
  int weight_piece = Image{weights, call.alignments[1]}.piece(channels);
  const int whole_piece = static_cast<int>(16 / size);
  const bool is_packed = weight_piece == 1 && channels % whole_piece == 0 && ceil_div(windows, rows) >= kWorthPacking;
  if (is_packed) weights = packed_weights(shape), weight_piece = whole_piece;
  text.weights(weights);
  text.constant("int kWeightPiece", weight_piece);
  text.constant("bool kAreWeightsByRows", weight_piece == 1 && weights.strides[0] < weights.strides[1]);
  text.parts().constants += epilogue_constants(shape);
  text.constant("bool kIsOutInPairs", out.piece(columns) > 1);
  auto& sizes = text.sizes();
  sizes.number("columns", columns), sizes.number("blocks", blocks);
  sizes.divisor("tiles_n", ceil_div(columns, tile_columns)), sizes.divisor("groups", shape.groups);
  sizes.number("weight_group",
               is_packed ? columns * weights.strides[0] : shape.outputs / shape.groups * shape.w.strides[0]);
  sizes.number("out_group", columns * out.stride(1));
  sizes.number("bias", shape.has_bias ? shape.bias.strides[0] : 0);
  const std::int64_t tiles = ceil_div(windows, rows) * tiles_n, parts = parts_of(tiles, blocks, *call.target);
  const std::int64_t parts_at = is_packed ? round_up(size_bytes(shape.w.type), kPlaceBytes) : 0;
  text.constant("bool kHasParts", parts > 1);
  sizes.divisor("parts", parts), sizes.wide_number("parts_at", parts_at);
  text.parts().ctas = tiles * parts;
  add_image_operands(&text.parts(), shape);
  text.parts().call = fmt::format("convolve(image, {}, {}, {}, out, scratch, size)",
                                  is_packed ? "(const Stored*)scratch.workspace" : "weights",
                                  shape.has_bias ? "bias" : "nullptr", shape.has_added ? "added" : "nullptr");
  gpu::TextPlan made;
  if (is_packed) made.launches.push_back(plan_weight_pack(call));
  made.workspace_bytes = parts_at + (parts > 1 ? tiles * parts * rows * tile_columns * 4 : 0);
  made.launches.push_back(text.finish(k_conv_gemm_images_cu));
  if (parts > 1) made.ticket_count = made.launches.back().ticket_count = tiles;
  made.launches.back().why = fmt::format(
      "{} tiles of {} x {}{}{}{}", tiles, rows, tile_columns, phases > 1 ? fmt::format(" in {} phases", phases) : "",
      parts > 1 ? fmt::format(" in {} parts", parts) : "", is_packed ? ", weights packed" : "");
  return made;
}

// ---- the gradient for the weights ----

// Windows of a part: of less, adding up the parts takes longer than making them.
constexpr std::int64_t kLeastWindows = 256, kLeastOfLarge = 512;
constexpr std::int64_t kLeastOfFew = 128;  // where SMs have no tile otherwise

// A CTA's part of a gradient for weights, and how its warps share it.
struct WeightTile {
  std::int64_t rows = 16, columns = 16;
  int warps_m = 1, warps_n = 1, warps = 4;

  // Warps have all of a small tile. Every tile of columns reads the gradient again; 72 is 9 taps of 8 channels.
  static WeightTile small(std::int64_t all_rows, std::int64_t depth) {
    WeightTile tile;
    tile.rows = all_rows <= 16 ? 16 : 32;
    const auto work_of = [&](std::int64_t columns) { return ceil_div(depth, columns) * (columns + tile.rows); };
    for (const std::int64_t columns : {32, 64, 72}) {
      if (work_of(columns) < work_of(tile.columns)) tile.columns = columns;
    }
    return tile;
  }
  // Warps have 64 x 32, or 32 x 32, of a large tile, which is read less often.
  static WeightTile large(std::int64_t all_rows, std::int64_t depth) {
    const auto is_double = [](std::int64_t count) {
      return count > 64 && ceil_div(count, 128) * 2 == ceil_div(count, 64);
    };
    WeightTile tile;
    tile.rows = is_double(all_rows) ? 128 : 64, tile.columns = is_double(depth) ? 128 : 64;
    tile.warps_n = static_cast<int>(tile.columns / 32);
    tile.warps_m = tile.rows == 128 || tile.columns == 64 ? 2 : 1;
    tile.warps = tile.warps_m * tile.warps_n;
    return tile;
  }
  static WeightTile of(std::int64_t rows, std::int64_t depth) {
    return rows <= 32 || depth < 64 ? small(rows, depth) : large(rows, depth);
  }
  bool is_large() const { return warps_m * warps_n > 1; }
  std::int64_t block(std::int64_t element_size) const { return warps / (warps_m * warps_n) * 32 / element_size; }
};

gpu::TextPlan plan_gemm_weights(const KernelCall& call) {
  const ConvShape shape(call);
  const Image image{shape.x, call.alignments[0]}, gradient{shape.y, call.alignments[1]};
  const std::int64_t channels = shape.channels / shape.groups, rows = shape.outputs / shape.groups;
  const std::int64_t windows = shape.batch * shape.axes[0].outputs * shape.axes[1].outputs;
  const std::int64_t depth = channels * shape.axes[0].kernel * shape.axes[1].kernel;

  const WeightTile tile = WeightTile::of(rows, depth);
  const std::int64_t block = tile.block(size_bytes(shape.dtype)), tile_rows = tile.rows, tile_columns = tile.columns;
  ConvText text(call, "conv2d_grad_weight", 32 * tile.warps);
  const std::int64_t tiles_m = ceil_div(rows, tile_rows), tiles_n = ceil_div(depth, tile_columns);
  const std::int64_t blocks = ceil_div(windows, block), tiles = tiles_m * tiles_n * shape.groups;
  const std::int64_t least = tile.is_large() ? kLeastOfLarge : kLeastWindows * 2 / size_bytes(shape.dtype);
  const std::int64_t sms = call.target->sm_count;
  const std::int64_t worth =
      std::clamp<std::int64_t>(sms * 16 / tile.warps / tiles, 1, std::max<std::int64_t>(blocks * block / least, 1));
  const std::int64_t parts = std::max(worth, std::min(ceil_div(sms, tiles), blocks * block / kLeastOfFew));
  const std::int64_t in_row = tile_rows + 8 + (tile_columns % 32 == 8 ? tile_columns : tile_columns + 8);
  text.constant("int kRows", tile_rows), text.constant("int kColumns", tile_columns);
  text.constant("int kWarpsM", tile.warps_m), text.constant("int kWarpsN", tile.warps_n);
  text.constant("int kStages", stages_of(block * in_row * size_bytes(shape.dtype),
                                         (tile_columns + 2 * block) * kPlaceBytes, blocks / parts));
  text.walk(image, gradient, false, channels);
  text.weights(shape.w);
  text.constant("int kGradientPiece", gradient.piece(rows));
  auto& sizes = text.sizes();
  sizes.number("rows", rows), sizes.number("blocks", blocks), sizes.number("parts", parts);
  sizes.divisor("tiles_m", tiles_m), sizes.divisor("tiles_n", tiles_n), sizes.divisor("groups", shape.groups);
  text.parts().ctas = tiles * parts;
  for (const char* name : {"image", "gradient"}) {
    text.parts().operands.push_back(gpu::input_parameter(shape.dtype, name));
  }
  text.parts().operands.push_back(gpu::output_parameter(shape.w.type.dtype, "out"));
  text.parts().call = "add_up(image, gradient, (float*)scratch.workspace, size)";
  gpu::TextPlan made;
  made.launches.push_back(text.finish(k_conv_gemm_weights_cu));
  made.launches.back().why =
      fmt::format("{} tiles of {} x {}, windows in {} parts", tiles, tile_rows, tile_columns, parts);
  const std::int64_t elements = shape.outputs * depth;
  made.launches.push_back(plan_weight_sum(call, parts));
  made.workspace_bytes = parts * elements * 4;
  return made;
}

}  // namespace

void register_convolution_gemm_gpu() {
  // Images, not weights and not the bias.
  const auto add = [](const char* op, std::uint32_t images, gpu::TextPlan (*plan)(const KernelCall&)) {
    gpu::register_text_kernel(op, "implicit_gemm", gemm_refusal, plan, Faults::none, images);
  };
  add("conv2d", 0b101, plan_gemm_images), add("conv2d_bias", 0b1001, plan_gemm_images),
      add("conv2d_add", 0b11001, plan_gemm_images);
  add("conv2d_grad_input", 0b101, plan_gemm_images), add("conv2d_grad_weight", 0b011, plan_gemm_weights);
  add("conv2d_grad_weight_wide", 0b011, plan_gemm_weights);
}

}  // namespace paoding
