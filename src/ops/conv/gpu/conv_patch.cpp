// SPDX-License-Identifier: Apache-2.0
// Convolutions of few channels on the tensor cores (conv_patch*.cu), and those whose windows are pooled: the pixels of
// a CTA's windows are brought near once, not once per tap. This file decides whether the weights and a patch of the
// images fit beside those of other CTAs, and how many CTAs share the windows.
#include <algorithm>
#include <bit>
#include <numeric>

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

constexpr int kPatchThreads = 128;
constexpr std::int64_t kMostChannels = 64, kMostDepth = 1024;  // in and out; of (tap, channel)
constexpr std::int64_t kMostPatchOffset = std::int64_t{1} << 30;
constexpr std::int64_t kReservedBytes = 1 << 10;  // of shared memory, per CTA
// CTAs of an SM that registers for 32 columns allow, and for more.
constexpr std::int64_t kMostCtas = 8, kMostWideCtas = 4;
constexpr std::int64_t kLongPart = 2 << 10;                      // of the sums of a gradient for weights
constexpr std::int64_t kMostPooledChannels = 32;                 // in and out, where there are TMA tiles
constexpr std::int64_t kMostPoolRows = 2, kMostPoolColumns = 8;  // of a cell, which a warp's windows are to hold whole

// A convolution as windows over images; its gradient for the images is one, of the taps in their opposite order.
struct PatchTile {
  ConvShape shape;
  bool is_back;
  const Layout &image, &out;
  std::int64_t channels, columns;
  std::array<std::int64_t, 2> cell, spread;  // windows that are pooled; pixels that share a pool's gradient
  std::int64_t cells;
  std::int64_t slot = 0;  // elements of a pixel in the patch
  std::int64_t step = 0;  // elements along (tap, channel) that are multiplied at once
  std::int64_t tile_columns = 8;
  std::int64_t first[2], steps[2];  // where windows begin, and how far they are apart
  std::int64_t spans[2];            // pixels from a window's first tap to its last
  std::int64_t rows_of_tile = 128;  // windows
  std::int64_t tall_rows, patch_rows, patch_columns;

  explicit PatchTile(const KernelCall& call)
      : shape(call),
        is_back(shape.kind == ConvKind::grad_input),
        image(is_back ? shape.y : shape.x),
        out(is_back ? shape.x : shape.y),
        channels(image.type.shape[1]),
        columns(out.type.shape[1]),
        cell(is_back ? std::array<std::int64_t, 2>{1, 1} : shape.pool),
        spread(is_back ? shape.pool : std::array<std::int64_t, 2>{1, 1}),
        cells(out.type.shape[0] * out.type.shape[2] * out.type.shape[3]) {
    const std::int64_t size = size_bytes(shape.dtype);
    step = 32 / size;
    while (tile_columns < columns) tile_columns *= 2;
    if (tiles() < 2 * call.target->sm_count) rows_of_tile = 64;
    for (std::size_t i = 0; i < 2; ++i) {
      const WindowAxis& axis = shape.axes[i];
      spans[i] = (axis.kernel - 1) * axis.dilation;
      first[i] = is_back ? axis.before - spans[i] : -axis.before;
      steps[i] = is_back ? 1 : axis.stride;
    }
    const std::int64_t rows = out.type.shape[2], row = std::max<std::int64_t>(out.type.shape[3], 1);
    tall_rows = (rows * cell[0] - 1) * steps[0] + spans[0] + 1;
    patch_columns = (row * cell[1] - 1) * steps[1] + spans[1] + 1;
    // Among the rows of cells that a tile touches, those that begin another image are further apart.
    const std::int64_t touched = ceil_div(cells_of_tile() - 1, row) + 1;
    const std::int64_t images = ceil_div(touched - 1, std::max<std::int64_t>(rows, 1));
    patch_rows =
        (touched * cell[0] - 1) * steps[0] + images * std::max<std::int64_t>(spans[0] + 1 - steps[0], 0) + spans[0] + 1;
    // So much more than a pixel has that the words that a warp reads of neighbours come from different banks.
    const bool is_weight = shape.kind == ConvKind::grad_weight;
    if (is_by_channels())
      slot = channels + (is_weight && size == 4 ? (channels % 16 == 0 ? 8 : 0) : 16 / size);
    else if (shape.is_pooled)  // whatever the pieces are: a kernel is asked before they are known
      slot = channels + (channels % 2 == 0 ? std::gcd(channels, 16 / size) : 0);
    else
      slot = piece(call) > 1 ? channels + piece(call) : channels;
  }
  std::int64_t taps() const { return shape.axes[0].kernel * shape.axes[1].kernel; }
  std::int64_t depth() const { return ceil_div(taps() * channels, step) * step; }
  bool is_by_channels() const { return channels % step == 0; }
  int piece(const KernelCall& call) const {
    const int of_image = gpu::channels_at_once(image, call.alignments[0], channels);
    if (!is_back || !shape.is_pooled) return of_image;
    return std::min(of_image, gpu::channels_at_once(shape.index, call.alignments[1], channels));
  }
  int gradient_piece(const KernelCall& call) const {
    const int of_gradient = gpu::channels_at_once(out, call.alignments[1], columns);
    if (!shape.is_pooled) return of_gradient;
    return std::min(of_gradient, gpu::channels_at_once(shape.index, call.alignments[2], columns));
  }
  std::int64_t cells_of_tile() const { return rows_of_tile / (cell[0] * cell[1]); }
  std::int64_t patch_bytes() const { return patch_rows * patch_columns * slot * size_bytes(shape.dtype); }
  std::int64_t window_bytes() const { return rows_of_tile * 16; }
  std::int64_t tiles() const { return ceil_div(cells, cells_of_tile()); }
  std::int64_t shared_bytes() const {
    const std::int64_t weights = tile_columns * (depth() * size_bytes(shape.dtype) + 16);
    return weights + 2 * window_bytes() + (is_by_channels() ? 0 : depth() * 4) + patch_bytes();
  }
};

// How a CTA shares out the sums of a gradient for weights: so many outputs by columns of (tap, channel), of which
// warps_n warps have a part each.
struct PatchWeightTile {
  std::int64_t outputs, columns, warps_n, tiles_m, tiles_n;

  explicit PatchWeightTile(const PatchTile& p) {
    outputs = p.columns <= 16 ? 16 : 32;
    tiles_m = ceil_div(p.columns, outputs);
    const std::int64_t most = outputs == 16 ? 16 : 9;  // eights of columns of a warp, whose sums are in registers
    const std::int64_t eights = ceil_div(p.taps() * p.channels, 8);
    tiles_n = ceil_div(eights, most * 4);
    const std::int64_t of_cta = ceil_div(eights, tiles_n);
    warps_n = of_cta <= most ? 1 : of_cta <= most * 2 ? 2 : 4;
    columns = round_up(of_cta, warps_n) * 8;
    tiles_n = ceil_div(p.taps() * p.channels, columns);
  }
  std::int64_t shared_bytes(const PatchTile& p) const {
    const std::int64_t tile =
        p.rows_of_tile * (outputs + 8) * size_bytes(p.shape.dtype) + p.window_bytes() + p.patch_bytes();
    return std::max(tile, outputs * columns * 4);
  }
};

std::string patch_refusal(const KernelCall& call) {
  const PatchTile p(call);
  const ConvShape& shape = p.shape;
  if (shape.is_pooled) {
    const auto [rows, columns] = shape.pool;
    if (!std::has_single_bit(static_cast<std::uint64_t>(rows)) || rows > kMostPoolRows ||
        !std::has_single_bit(static_cast<std::uint64_t>(columns)) || columns > kMostPoolColumns) {
      return fmt::format("pools of {} x {}: it has those of 1 or 2 by 1, 2, 4 or 8", rows, columns);
    }
    const bool has_tma = call.target->major == 9 && shape.dtype != DType::f32;
    if (has_tma && std::max(p.channels, p.columns) > kMostPooledChannels) {
      return fmt::format("{} channels to {} in 16 bits: by TMA, with a pool after it, as fast", p.channels, p.columns);
    }
  }
  if (shape.dtype == DType::f64) return "f64, for which it has no products";
  if (shape.dtype == DType::f32 && !call.allow_tf32) return "f32 that is not to be rounded";
  if (call.target->major < 8) return "copies beside other work come with compute capability 8";
  if (shape.is_empty()) return "an extent is 0";
  if (shape.kind == ConvKind::grad_weight && !shape.has_result) return "sums for weights that nobody reads";
  if (shape.groups > 1) return "several groups";
  if (p.is_back && std::max(shape.axes[0].stride, shape.axes[1].stride) > 1) {
    return "windows with a stride, whose gradients lie spread out";
  }
  if (std::max(p.channels, p.columns) > kMostChannels || p.taps() * p.channels > kMostDepth) {
    return fmt::format("{} channels to {} by {} taps, more than shared memory is for", p.channels, p.columns, p.taps());
  }
  if (!shape.is_pooled && p.channels > 1 && p.image.strides[1] != 1) return "the image's channels do not lie last";
  const std::int64_t size = size_bytes(shape.dtype);
  if (!shape.is_pooled) {
    if (!p.is_by_channels() && size < 4) return fmt::format("{} channels of 16 bits, no multiple of 16", p.channels);
    if (p.piece(call) * size < 4) return "pixels do not start at multiples of 4 bytes";
  }
  const std::int64_t reach = std::max({gpu::reach_of(shape.x), gpu::reach_of(shape.y), gpu::reach_of(shape.w)});
  if (std::max({reach, p.cells * p.cell[0] * p.cell[1], p.tall_rows, p.patch_columns}) >= kMostPatchOffset ||
      shape.batch >= kMostPatchOffset / p.tall_rows || p.patch_rows >= kMostPatchOffset / p.patch_columns / p.slot) {
    return "offsets of 2^30 elements or more";
  }
  const bool is_weight = shape.kind == ConvKind::grad_weight;
  if (is_weight && !shape.is_pooled && p.gradient_piece(call) * size < 4) {
    return "pixels of the gradient do not start at multiples of 4 bytes";
  }
  const std::int64_t bytes = is_weight ? PatchWeightTile(p).shared_bytes(p) : p.shared_bytes();
  const std::int64_t most = call.target->shared_bytes / 2 - kReservedBytes;
  if (bytes > most) {
    return fmt::format("a tile and its patch take {} bytes of shared memory, {} leave room for a second CTA", bytes,
                       most);
  }
  return "";
}

// The sizes and constants that both sources need.
class PatchText : public gpu::TextParts {
 public:
  PatchText(const KernelCall& call, const PatchTile& p);

  void constant(const char* what, std::int64_t value) { constants += fmt::format("constexpr {} = {};\n", what, value); }
  gpu::TextLaunch finish(std::string_view text, std::int64_t shared_bytes) {
    functions = fmt::format("{}{}{}", k_warp_products_cu, k_conv_patch_cu, text);
    gpu::TextLaunch launch = gpu::make_text_kernel(*this);
    launch.shared_bytes = static_cast<unsigned>(shared_bytes);
    launch.is_alone = true;
    return launch;
  }
};

PatchText::PatchText(const KernelCall& call, const PatchTile& p) {
  const ConvShape& shape = p.shape;
  name = call.op->name;
  threads = kPatchThreads;
  constants = fmt::format("using Stored = {};\n", gpu::stored_type(shape.dtype));
  constant("int kRows", p.rows_of_tile);
  constant("int kChannels", p.channels), constant("int kSlot", p.slot), constant("int kPiece", p.piece(call));
  constant("int kTaps", p.taps()), constant("int kKernelColumns", shape.axes[1].kernel);
  auto& s = sizes;
  gpu::add_strides(&s, "image", p.image), gpu::add_strides(&s, "of_window", p.out);
  s.number("image_rows", p.image.type.shape[2] * p.spread[0]);
  s.number("image_columns", p.image.type.shape[3] * p.spread[1]);
  s.number("cells", p.cells);
  s.divisor("cell_rows", p.out.type.shape[2]), s.divisor("cell_columns", p.out.type.shape[3]);
  constant("int kPoolRows", p.cell[0]), constant("int kPoolColumns", p.cell[1]);
  constant("int kSpreadRows", p.spread[0]), constant("int kSpreadColumns", p.spread[1]);
  constant("bool kIsPooled", shape.is_pooled && !p.is_back), constant("bool kIsSpread", shape.is_pooled && p.is_back);
  constant("bool kHasIndex", shape.has_index), constant("bool kHasResult", shape.has_result);
  gpu::add_strides(&s, "index", shape.index);
  s.number("first_h", p.first[0]), s.number("first_w", p.first[1]);
  s.number("step_h", p.steps[0]), s.number("step_w", p.steps[1]);
  s.divisor("tall_rows", p.tall_rows), s.number("patch_columns", p.patch_columns);
  s.number("reach_h", p.spans[0]);
  s.number("tap_h", shape.axes[0].dilation * p.patch_columns), s.number("tap_w", shape.axes[1].dilation);
  s.number("tiles", p.tiles());
}

// CTAs, of which an SM has at most so many at once, for as many tiles each.
std::int64_t ctas_for(std::int64_t tiles, const Target& target, std::int64_t shared_bytes, std::int64_t most) {
  const std::int64_t of_sm = std::clamp<std::int64_t>(target.shared_bytes / (shared_bytes + kReservedBytes), 1, most);
  return ceil_div(tiles, ceil_div(tiles, target.sm_count * of_sm));
}

gpu::TextPlan plan_patch_images(const KernelCall& call) {
  const PatchTile p(call);
  const ConvShape& shape = p.shape;
  PatchText text(call, p);
  text.constant("int kColumns", p.tile_columns);
  text.constant("bool kIsByChannels", p.is_by_channels());
  text.constant("bool kHasBias", shape.has_bias), text.constants += activation_text(shape);
  const std::size_t result = call.inputs.size();
  text.constant("bool kIsOutInPairs",
                shape.has_result && gpu::channels_at_once(p.out, call.alignments[result], p.columns) > 1);
  const bool makes_index = shape.has_index && !p.is_back;
  text.constant("bool kIsIndexInPairs",
                makes_index && gpu::channels_at_once(shape.index, call.alignments[result + 1], p.columns) > 1);
  // Weights that lie densely are brought in the order in which they lie.
  const bool is_dense = shape.w.is_dense();
  const std::int64_t elements = shape.w.type.shape.elements(), size = size_bytes(shape.dtype);
  const std::int64_t alignment = call.alignments[shape.is_pooled && p.is_back ? 2 : 1];
  std::int64_t piece = is_dense ? 16 / size : 1;
  while (piece > 1 && (elements % piece != 0 || alignment % (piece * size) != 0)) piece /= 2;
  text.constant("bool kIsBack", p.is_back), text.constant("int kFilled", p.columns);
  text.constant("bool kAreWeightsDense", is_dense), text.constant("int kWeightPiece", piece);
  auto& s = text.sizes;
  const auto& w = shape.w.strides;
  s.number("weight_n", w[0]), s.number("weight_c", w[1]), s.number("weight_h", w[2]), s.number("weight_w", w[3]);
  s.number("bias", shape.has_bias ? shape.bias.strides[0] : 0);
  text.ctas = ctas_for(p.tiles(), *call.target, p.shared_bytes(), p.tile_columns > 32 ? kMostWideCtas : kMostCtas);
  text.operands.push_back(gpu::input_parameter(shape.dtype, "images"));
  if (shape.is_pooled && p.is_back) text.operands.push_back(gpu::input_parameter(DType::u8, "index"));
  text.operands.push_back(gpu::input_parameter(shape.dtype, "weights"));
  if (shape.has_bias) text.operands.push_back(gpu::input_parameter(shape.dtype, "bias"));
  text.operands.push_back(gpu::output_parameter(shape.dtype, "out"));
  if (shape.is_pooled && !p.is_back) text.operands.push_back(gpu::output_parameter(DType::u8, "index"));
  text.call = fmt::format("convolve(images, weights, {}, {}, out, size)", shape.has_bias ? "bias" : "nullptr",
                          shape.is_pooled ? "(unsigned char*)index" : "nullptr");
  gpu::TextPlan made;
  made.launches.push_back(text.finish(k_conv_patch_images_cu, p.shared_bytes()));
  made.launches.back().why = fmt::format("{} tiles of {} x {}, patches of {} x {} pixels, {} CTAs", p.tiles(),
                                         p.rows_of_tile, p.tile_columns, p.patch_rows, p.patch_columns, text.ctas);
  return made;
}

gpu::TextPlan plan_patch_weights(const KernelCall& call) {
  const PatchTile p(call);
  const PatchWeightTile tile(p);
  PatchText text(call, p);
  text.constant("int kOutputs", tile.outputs), text.constant("int kColumns", tile.columns);
  text.constant("int kWarpsN", tile.warps_n);
  const auto& y = p.out.strides;
  const Shape& extents = p.out.type.shape;
  text.constant("bool kIsGradientDense", y[2] == extents[3] * y[3] && y[0] == extents[2] * y[2]);
  text.constant("int kGradientPiece", p.gradient_piece(call));
  text.constant("bool kHasBiasGradient", p.shape.has_bias);
  const std::int64_t elements = p.columns * (p.taps() * p.channels + (p.shape.has_bias ? 1 : 0)), tiles = p.tiles();
  // Parts are written and read again.
  const std::int64_t most = elements > kLongPart ? 2 : 4, of_part = tile.tiles_m * tile.tiles_n;
  const std::int64_t parts = ceil_div(ctas_for(tiles, *call.target, tile.shared_bytes(p), most), of_part);
  auto& s = text.sizes;
  s.number("rows", p.columns), s.number("depth", p.taps() * p.channels), s.number("parts", parts);
  s.divisor("tiles_m", tile.tiles_m), s.divisor("tiles_n", tile.tiles_n);
  text.ctas = parts * of_part;
  for (const char* name : {"images", "gradient"}) {
    text.operands.push_back(gpu::input_parameter(p.shape.dtype, name));
  }
  if (p.shape.is_pooled) text.operands.push_back(gpu::input_parameter(DType::u8, "index"));
  text.operands.push_back(gpu::output_parameter(p.shape.w.type.dtype, "out"));
  if (p.shape.is_pooled) text.operands.push_back(gpu::output_parameter(p.shape.bias.type.dtype, "of_bias"));
  text.call = fmt::format("add_up(images, gradient, {}, (float*)scratch.workspace, size)",
                          p.shape.is_pooled ? "index" : "nullptr");
  gpu::TextPlan made;
  made.launches.push_back(text.finish(k_conv_patch_weights_cu, tile.shared_bytes(p)));
  made.launches.back().why =
      fmt::format("{} x {} sums a CTA, {} tiles of windows in {} parts, patches of {} x {} pixels", tile.outputs,
                  tile.columns, tiles, parts, p.patch_rows, p.patch_columns);
  made.launches.push_back(plan_weight_sum(call, parts));
  made.workspace_bytes = parts * elements * 4;
  return made;
}

}  // namespace

void register_convolution_patch_gpu() {
  for (const char* op : {"conv2d", "conv2d_bias", "conv2d_grad_input"}) {
    gpu::register_text_kernel(op, "patch", patch_refusal, plan_patch_images);
  }
  for (const char* op : {"conv2d_grad_weight", "conv2d_grad_weight_wide"}) {
    gpu::register_text_kernel(op, "patch", patch_refusal, plan_patch_weights);
  }
  // Images; pooled ones lie as their other readers want them.
  gpu::register_text_kernel("conv2d_pool", "patch", patch_refusal, plan_patch_images, Faults::none, 0b10001, 0b01000);
  gpu::register_text_kernel("conv2d_pool_grad_input", "patch", patch_refusal, plan_patch_images, Faults::none, 0b1000);
  gpu::register_text_kernel("conv2d_pool_grad_weight", "patch", patch_refusal, plan_patch_weights, Faults::none,
                            0b00001);
}

}  // namespace paoding
