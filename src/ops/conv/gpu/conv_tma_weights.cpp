// SPDX-License-Identifier: Apache-2.0
// Gradients for weights by TMA: the tile, and into how many parts its sums over windows are cut.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/wgmma_products.h"
#include "ops/conv/gpu/conv_tap_rows.h"
#include "ops/conv/gpu/conv_tma_tiles.h"
#include "ops/conv/gpu/conv_weight_sum.h"

namespace paoding::tma {
namespace {

// How the sums are shared out: to groups of four warps, one below the other or two beside each other where 64 rows are
// all, that have all columns of a tile, or half of them; and the windows to so many parts.
struct Shares {
  Tile tile;
  std::int64_t tiles_m, tiles_n, parts = 1;
  double takes_us = 0;

  std::int64_t groups_m() const { return tile.rows / 64; }
  int threads() const { return static_cast<int>(std::max<std::int64_t>(groups_m(), 2) * 128 + 32); }
};

// The shares that take the least time by how many blocks a CTA has, how many CTAs come after each other, and the sums
// of all parts that are written and read.
Shares shares_of(const Target& target, std::int64_t rows, std::int64_t chunks, std::int64_t blocks,
                 std::int64_t elements) {
  constexpr double kStart = 3, kBytes = 3e6;  // us, bytes a us: fitted on an H200
  constexpr std::array<Tile, 4> kTiles{{{64, 128, 3}, {128, 128, 2}, {128, 256, 1}, {256, 128, 1}}};
  Shares best;
  for (const Tile& tile : kTiles) {
    if ((tile.rows == 64) != (rows <= 64)) continue;
    Shares shares{tile, ceil_div(rows, tile.rows), ceil_div(chunks * kChunk, tile.columns)};
    const std::int64_t at_once = tile.ctas_of_sm * target.sm_count;
    for (shares.parts = 1; shares.parts <= std::min<std::int64_t>(blocks, 128); ++shares.parts) {
      const double turns = double(ceil_div(shares.tiles_m * shares.tiles_n * shares.parts, at_once));
      const double each = double(ceil_div(blocks, shares.parts)) * double(tile.ctas_of_sm) * tile.stage_us();
      shares.takes_us = turns * (each + kStart) + double(shares.parts * elements * 8) / kBytes;
      if (best.takes_us == 0 || shares.takes_us < best.takes_us) best = shares;
    }
  }
  return best;
}

// Goes by squares of windows, whose patches all taps read: where squares are whole, as a window that is none would
// multiply NaN by 0.
std::optional<Patch> patch_of_weights(const Walked& walked, const Walk& down, const Walk& across) {
  constexpr std::int64_t kMostTaps = 9;  // whose sums fit the registers
  if (down.windows % kSide != 0 || across.windows % kSide != 0) return {};
  const std::optional<Patch> patch = Patch::of(walked, down, across);
  return patch && patch->taps <= kMostTaps ? patch : std::nullopt;
}

std::string tile_constants(std::int64_t rows, std::int64_t columns) {
  return fmt::format("constexpr int kTileRows = {}, kTileColumns = {};\n", rows, columns);
}

// The launches of a gradient whose sums, of tiles and parts of blocks, lie in the workspace: after the image, where
// that is laid out first.
struct Counts {
  std::int64_t rows, channels, taps;  // of the sums
  std::int64_t tiles_m, tiles_n, blocks, parts;
};
gpu::TextPlan plan_sums(const KernelCall& call, gpu::TextParts* text, const Counts& counts, std::int64_t stages,
                        std::int64_t stage_bytes, std::vector<TensorMap> maps, std::string why) {
  const ConvShape shape(call);
  const Walked walked(shape);
  const std::int64_t elements = counts.rows * counts.taps * counts.channels;
  auto& s = text->sizes;
  s.number("rows", counts.rows), s.number("channels", counts.channels), s.number("taps", counts.taps);
  s.divisor("tiles_m", counts.tiles_m), s.divisor("tiles_n", counts.tiles_n);
  s.number("blocks", counts.blocks), s.number("parts", counts.parts);
  s.wide_number("elements", elements);
  if (walked.has_tap_rows) s.wide_number("image_bytes", walked.image_bytes);
  text->ctas = counts.tiles_m * counts.tiles_n * counts.parts;
  for (const char* name : {"image", "gradient"}) text->operands.push_back(gpu::input_parameter(shape.dtype, name));
  text->operands.push_back(gpu::output_parameter(shape.w.type.dtype, "out"));
  text->maps = {"image_map", "gradient_map"};
  text->call =
      fmt::format("add_up(image_map, gradient_map, (float*){}, size)",
                  walked.has_tap_rows ? "((char*)scratch.workspace + size.image_bytes_wide)" : "scratch.workspace");
  gpu::TextLaunch launch = gpu::make_text_kernel(*text);
  launch.is_alone = true;
  launch.shared_bytes = shared_bytes(stages, stage_bytes);
  launch.maps = std::move(maps), launch.why = std::move(why);
  gpu::TextPlan made;
  if (walked.has_tap_rows) made.launches.push_back(plan_tap_rows(call));
  made.launches.push_back(std::move(launch));
  const std::int64_t channels_of_tap = walked.has_tap_rows ? TapRows::kChannels : counts.channels;
  made.launches.push_back(plan_weight_sum(call, counts.parts, channels_of_tap, walked.image_bytes));
  made.workspace_bytes = walked.image_bytes + counts.parts * elements * 4;
  return made;
}

gpu::TextPlan plan_weights_by_patches(const KernelCall& call, const Patch& patch) {
  constexpr std::int64_t kChannels = 64, kGroups = 3, kStages = 8, kLeastSquares = 4;
  constexpr std::int64_t kGradientBytes = kSide * kSide * kChannels * 2;
  const ConvShape shape(call);
  const Walked walked(shape);
  const Walk down = Walk::forward(walked.axes[0]), across = Walk::forward(walked.axes[1]);
  const std::int64_t stage_bytes = kGradientBytes + patch.bytes();
  const std::int64_t stages = std::min<std::int64_t>(kStages, (call.target->shared_bytes - 2 * kAlign) / stage_bytes);
  const std::array<int, 2> pitches{8, static_cast<int>(patch.columns)};
  gpu::TextParts text = parts_of_text(shape, "conv2d_grad_weight", (kGroups * 4 + 1) * 32, stages,
                                      gpu::wgmma_products(shape.dtype, kChannels, {true, true}, pitches));
  text.functions += std::string(k_conv_tma_weight_parts_cu) + k_conv_tma_patch_weights_cu;
  text.constants += tap_constants(down, across) + tile_constants(kChannels, kChannels);
  const std::int64_t squares = shape.batch * Patch::squares(down) * Patch::squares(across);
  const std::int64_t tiles_m = ceil_div(shape.outputs, kChannels), tiles_n = ceil_div(walked.channels, kChannels);
  const std::int64_t parts = std::clamp<std::int64_t>(call.target->sm_count / (tiles_m * tiles_n), 1,
                                                      std::max<std::int64_t>(squares / kLeastSquares, 1));
  auto& s = text.sizes;
  s.divisor("square_rows", Patch::squares(down)), s.divisor("square_columns", Patch::squares(across));
  s.number("first_h", down.first), s.number("first_w", across.first);
  return plan_sums(call, &text, {shape.outputs, walked.channels, patch.taps, tiles_m, tiles_n, squares, parts}, stages,
                   stage_bytes, {map_of(shape.x, 0, patch), map_of(shape.y, 1, Patch{})},
                   fmt::format("{} tiles of 64 x 64 for {} taps by patches, windows in {} parts", tiles_m * tiles_n,
                               patch.taps, parts));
}

gpu::TextPlan plan_weights_by_rows(const KernelCall& call, const TapRows& laid) {
  constexpr std::int64_t kChannels = 64, kGroups = 3, kMostStages = 8, kLeastRows = 4;
  const ConvShape shape(call);
  const std::int64_t stage_bytes =
      laid.windows * kChannels * 2 + round_up(laid.rows_brought * laid.row_bytes(), kAlign);
  const std::int64_t stages =
      std::min<std::int64_t>(kMostStages, (call.target->shared_bytes - 2 * kAlign) / stage_bytes);
  gpu::TextParts text = parts_of_text(shape, "conv2d_grad_weight", (kGroups * 4 + 1) * 32, stages,
                                      gpu::row_sums(shape.dtype, static_cast<int>(kChannels / laid.planes)));
  text.functions += std::string(k_conv_tma_weight_parts_cu) + k_conv_tma_row_weights_cu;
  text.constants += fmt::format(
      "constexpr int kKernelRows = {}, kRowsBrought = {}, kRowApart = {}, kPlanes = {}, kPlanePixels = {}, kWindows = "
      "{};\n",
      laid.kernel_rows, laid.rows_brought, laid.row_apart, laid.planes, laid.columns / laid.planes, laid.windows);
  text.constants += tile_constants(kChannels, kChannels);
  const std::int64_t rows = shape.batch * shape.axes[0].outputs, tiles_m = ceil_div(shape.outputs, kChannels);
  const std::int64_t parts =
      std::clamp<std::int64_t>(call.target->sm_count / tiles_m, 1, std::max<std::int64_t>(rows / kLeastRows, 1));
  auto& s = text.sizes;
  s.divisor("window_rows", shape.axes[0].outputs), s.number("laid_rows", laid.rows);
  s.number("step_h", shape.axes[0].stride);
  return plan_sums(call, &text, {shape.outputs, laid.channels, laid.kernel_rows, tiles_m, 1, rows, parts}, stages,
                   stage_bytes, {laid.map(), map_of(shape.y, 1, Patch{1, laid.windows})},
                   fmt::format("{} tiles of 64 x 64 for {} rows of taps by rows of windows, in {} parts", tiles_m,
                               laid.kernel_rows, parts));
}

}  // namespace

gpu::TextPlan plan_weights(const KernelCall& call) {
  const ConvShape shape(call);
  const Walked walked(shape);
  if (walked.has_tap_rows) {
    const TapRows laid(shape);
    if (laid.is_by_rows) return plan_weights_by_rows(call, laid);
  }
  if (const auto patch = patch_of_weights(walked, walked.walk(0, 0), walked.walk(1, 0)))
    return plan_weights_by_patches(call, *patch);
  const std::int64_t rows = shape.outputs, channels = walked.channels, taps = walked.taps();
  const Walk down = Walk::forward(walked.axes[0]), across = Walk::forward(walked.axes[1]);
  const std::int64_t windows = shape.batch * down.windows * across.windows, blocks = ceil_div(windows, kDepth);
  const std::int64_t chunks = taps * ceil_div(channels, kChunk);
  const Shares shares = shares_of(*call.target, rows, chunks, blocks, rows * taps * channels);
  const std::int64_t stages = shares.tile.stages(*call.target);
  const std::int64_t columns_of_group = shares.groups_m() == 1 ? shares.tile.columns / 2 : shares.tile.columns;
  gpu::TextParts text =
      parts_of_text(shape, "conv2d_grad_weight", shares.threads(), stages,
                    gpu::wgmma_products(shape.dtype, static_cast<int>(columns_of_group), {true, true}));
  text.functions += std::string(k_conv_tma_weight_parts_cu) + k_conv_tma_weights_cu;
  text.constants +=
      fmt::format("constexpr int kGroupsM = {}, kChunks = {};\n", shares.groups_m(), shares.tile.columns / kChunk) +
      tile_constants(shares.tile.rows, shares.tile.columns / kChunk);
  auto& s = text.sizes;
  s.divisor("window_rows", down.windows), s.divisor("window_columns", across.windows), s.number("chunks", chunks);
  s.divisor("chunks_of_tap", ceil_div(channels, kChunk)), s.divisor("kernel_columns", walked.axes[1].kernel);
  for (const auto& [walk, end] : {std::pair{&down, "_h"}, {&across, "_w"}}) {
    const auto field = [&](const char* name, std::int64_t value) { s.number(name + std::string(end), value); };
    field("first", walk->first), field("step", walk->step), field("tap", walk->tap_step);
  }
  const Windows pixels{{0, 0}, {1, 1}, {across.windows, down.windows}};
  return plan_sums(call, &text, {rows, channels, taps, shares.tiles_m, shares.tiles_n, blocks, shares.parts}, stages,
                   shares.tile.stage_bytes(),
                   {map_of(shape, walked, windows_of(down, across), kDepth), map_of(shape.y, 1, pixels, kDepth)},
                   fmt::format("{} tiles of {} x {} by TMA, windows in {} parts", shares.tiles_m * shares.tiles_n,
                               shares.tile.rows, shares.tile.columns, shares.parts));
}

}  // namespace paoding::tma
