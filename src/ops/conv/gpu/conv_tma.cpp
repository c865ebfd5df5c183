// SPDX-License-Identifier: Apache-2.0
// Convolutions, and gradients for their images, by TMA: the tile, the data that a CTA keeps, and which groups after
// are worth having as epilogues.
#include <algorithm>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/wgmma_products.h"
#include "ops/all_kernels.h"
#include "ops/conv/gpu/conv_epilogue.h"
#include "ops/conv/gpu/conv_tap_rows.h"
#include "ops/conv/gpu/conv_text.h"
#include "ops/conv/gpu/conv_tma_tiles.h"
#include "ops/conv/gpu/conv_weight_pack.h"

namespace paoding {
namespace tma {
namespace {

// Tiles of groups of four warps that have 64 windows each. The larger, the fewer bytes has L2 to bring, and the fewer
// CTAs compute while one stores its results: where a CTA does more than store its sums, two of them on an SM are
// faster.
constexpr Tile kNarrow{128, 64, 3}, kUsual{128, 128, 2};
constexpr std::array<Tile, 5> kTiles{{kUsual, {192, 128, 1}, {256, 128, 1}, {128, 256, 1}, {192, 256, 1}}};
// Three groups with 128 sums a thread have too few registers, unless a fourth gives some up.
constexpr int kRegisters = 160, kFewRegisters = 32;
bool takes_registers(const Tile& tile) { return tile.rows == 192 && tile.columns == 256; }

constexpr std::int64_t kLeastStages = 2, kMostAhead = 4;  // beside the epilogue's reads; pixels of a thread
constexpr int kMostAtOnce = 2;                            // images of four pixels that have registers beside few sums
constexpr std::int64_t kKeptBytes = 110 << 10;  // weights of all taps and a stage of patches: two CTAs fit an SM
constexpr std::int64_t kPartsAlignment = 256;

// Patches where a CTA can keep the weights of their taps and enough of the squares is windows.
std::int64_t kept_bytes(const Patch& patch) { return patch.taps * kChunk * kDepth * 2; }
std::optional<Patch> patch_of(const Walked& walked, const Walk& down, const Walk& across) {
  const std::optional<Patch> patch = Patch::of(walked, down, across);
  if (!patch || walked.channels > kDepth) return {};
  if (kept_bytes(*patch) + kSquares * patch->bytes() > kKeptBytes) return {};
  const std::int64_t windows = down.windows * across.windows;
  const std::int64_t of_squares = Patch::squares(down) * Patch::squares(across) * kSide * kSide;
  return windows * 5 < of_squares * 3 ? std::nullopt : patch;
}

// How long all tiles of so many windows and columns take.
double takes_us(const Target& target, const Tile& tile, std::int64_t windows, std::int64_t columns,
                std::int64_t blocks) {
  constexpr double kStart = 1.5;  // until the first stage is there and after the last
  const std::int64_t tiles = ceil_div(windows, tile.rows) * ceil_div(columns, tile.columns);
  return double(ceil_div(tiles, target.sm_count)) *
         (double(blocks) * tile.stage_us() + kStart / double(tile.ctas_of_sm));
}
Tile fastest(const Target& target, std::int64_t windows, std::int64_t columns, std::int64_t blocks) {
  return *std::ranges::min_element(kTiles, {},
                                   [&](const Tile& tile) { return takes_us(target, tile, windows, columns, blocks); });
}

// Rows of windows over an image of few channels: a stage has a row's pixels, or its results when the epilogue goes over
// them.
struct Rows {
  TapRows laid;
  std::int64_t zeros_at, kept_bytes;

  static std::optional<Rows> of(const ConvShape& shape, const Walked& walked) {
    if (!walked.has_tap_rows) return {};
    const TapRows laid(shape);
    const std::int64_t of_tile = kNarrow.rows * (kNarrow.columns + 8) * 2;
    const Rows rows{laid, round_up(std::max(laid.rows_brought * laid.row_bytes(), of_tile), kAlign),
                    laid.kernel_rows * kChunk * kDepth * 2};
    return laid.is_by_rows ? std::optional(rows) : std::nullopt;
  }
  std::int64_t stage_bytes() const { return zeros_at + kAlign; }
};

// How a launch goes over its windows: the tile of a CTA, and the form of its factors.
struct Tiles {
  std::optional<Patch> patch;  // neither: tap by tap
  std::optional<Rows> by_rows;
  Tile tile;
  std::int64_t stage_bytes, stages;
  bool is_ahead = false;   // the tile has a place of its own
  int images = 0;          // that an epilogue reads,
  std::int64_t ahead = 0;  // of so many pixels of each thread ahead

  Tiles(const KernelCall& call, const Walked& walked, const Walk& down, const Walk& across, const Epilogue* epilogue)
      : patch(patch_of(walked, down, across)),
        by_rows(Rows::of(ConvShape(call), walked)),
        images(epilogue != nullptr ? images_of(*epilogue) : 0) {
    const ConvShape shape(call);
    const Layout &from = walked.is_back ? shape.y : shape.x, &to = walked.is_back ? shape.x : shape.y;
    if (patch) {
      tile = {kSquares * kSide * kSide, kChunk, 2}, stage_bytes = kSquares * patch->bytes(), stages = 1;
      return;
    }
    if (by_rows) {
      tile = {kNarrow.rows, kNarrow.columns, 2}, stage_bytes = by_rows->stage_bytes(), stages = 1;
      return;
    }
    const std::int64_t columns = to.type.shape[1];
    const bool stores_only = epilogue == nullptr && !shape.has_added;
    tile = columns <= kNarrow.columns ? kNarrow
           : stores_only              ? fastest(*call.target, to.type.shape[0] * down.windows * across.windows, columns,
                                                down.taps * across.taps * ceil_div(walked.channels, kDepth))
                                      : kUsual;
    stage_bytes = tile.stage_bytes();
    if (images > 0) {
      const std::int64_t turns = tile.rows * tile.columns / 8 / consumers();
      ahead = std::min({turns, kMostAhead, tile.bytes_beside(*call.target, kLeastStages) / bytes_ahead()});
    }
    // Data from memory are asked for while a tile is gone over: the image, unless L2 has it, or those that an epilogue
    // reads.
    is_ahead = epilogue != nullptr && images == 0 && size_bytes(from.type) > call.target->last_cache_bytes;
    stages = tile.stages(*call.target, own_bytes());
  }
  /// The tiles of all phases, where there is one.
  Tiles(const KernelCall& call, const Walked& walked, const Epilogue& epilogue)
      : Tiles(call, walked, walked.walk(0, 0), walked.walk(1, 0), &epilogue) {}

  int consumers() const { return static_cast<int>(tile.rows / 64 * 128); }
  int threads() const { return consumers() + (takes_registers(tile) ? 128 : 32); }
  std::int64_t of_windows(std::int64_t images, const Walk& down, const Walk& across) const {
    if (patch) return ceil_div(images * Patch::squares(down) * Patch::squares(across), kSquares);
    if (by_rows) return images * down.windows;
    return ceil_div(images * down.windows * across.windows, tile.rows);
  }
  std::int64_t of_columns(const Layout& to) const { return ceil_div(to.type.shape[1], tile.columns); }
  /// CTAs that have tiles of the same columns, at most: all that run at once.
  std::int64_t most_ctas(const Target& target, std::int64_t tiles_n) const {
    return std::max<std::int64_t>(1, tile.ctas_of_sm * target.sm_count / tiles_n);
  }
  /// Whether a CTA has tile after tile: where no other on its SM multiplies while it stores one.
  bool stay(const Epilogue* epilogue) const { return epilogue != nullptr || patch || by_rows || tile.ctas_of_sm == 1; }
  std::int64_t bytes_ahead() const { return images * consumers() * 16; }  // of a pixel of each thread
  std::int64_t own_bytes() const { return (is_ahead ? tile.rows * (tile.columns + 8) * 2 : 0) + ahead * bytes_ahead(); }
  /// Pixels that a thread has registers for, of an epilogue.
  int at_once() const {
    if (ahead > 0) return 1;
    return images == 0 || (patch && images <= kMostAtOnce) ? 4 : 1;
  }
  unsigned shared() const {
    const std::int64_t kept = patch ? kept_bytes(*patch) : by_rows ? by_rows->kept_bytes : 0;
    return shared_bytes(stages, stage_bytes) + static_cast<unsigned>(own_bytes() + kept);
  }
};

gpu::TextParts parts_of_images(const ConvShape& shape, const std::string& name, const Tiles& tiles, const Walk& down,
                               const Walk& across, const Epilogue* epilogue) {
  const auto pitch = static_cast<int>(tiles.patch ? tiles.patch->columns : 8);
  const bool is_across = shape.kind == ConvKind::grad_input;
  gpu::TextParts parts =
      parts_of_text(shape, name, tiles.threads(), tiles.stages,
                    gpu::wgmma_products(shape.dtype, static_cast<int>(tiles.tile.columns), {false, is_across},
                                        {pitch, 8}, takes_registers(tiles.tile) ? 128 : 256));
  parts.constants += fmt::format(
      "constexpr int kRows = {}, kDepth = {}, kConsumers = {}, kColumns = {};\n"
      "constexpr int kRegisters = {}, kFewRegisters = {};\nconstexpr bool kStays = {}, kIsAhead = {}, kIsAcross = {};\n"
      "{}#define PD_HAS_END {}\n#define PD_AHEAD {}\n",
      tiles.tile.rows, kDepth, tiles.consumers(), tiles.tile.columns, takes_registers(tiles.tile) ? kRegisters : 0,
      kFewRegisters, tiles.stay(epilogue), tiles.is_ahead, is_across, epilogue_constants(shape),
      epilogue != nullptr ? 1 : 0, tiles.ahead);
  if (tiles.ahead > 0) parts.functions += k_warp_products_cu;
  if (tiles.patch) parts.constants += tap_constants(down, across);
  if (tiles.by_rows) {
    const auto& [laid, zeros_at, kept_bytes] = *tiles.by_rows;
    parts.constants += fmt::format(
        "constexpr int kKernelRows = {}, kKernelColumns = {}, kRowsBrought = {}, kRowApart = {};\n"
        "constexpr int kPlanes = {}, kPlanePixels = {}, kStageElements = {}, kZerosAt = {};\n",
        laid.kernel_rows, shape.axes[1].kernel, laid.rows_brought, laid.row_apart, laid.planes,
        laid.columns / laid.planes, tiles.stage_bytes / 2, zeros_at / 2);
    parts.functions += gpu::row_products(shape.dtype, static_cast<int>(tiles.tile.columns));
  }
  parts.functions += k_conv_tma_filters_cu;
  parts.functions += tiles.patch ? k_conv_tma_patches_cu : tiles.by_rows ? k_conv_tma_rows_cu : k_conv_tma_windows_cu;
  parts.functions +=
      (epilogue != nullptr ? epilogue_text(&parts, *epilogue, tiles.at_once(), tiles.ahead) + k_conv_epilogue_sums_cu
                           : text_without_epilogue()) +
      k_conv_tma_images_cu;
  return parts;
}

// `parts_at`: where of the workspace sums of an epilogue's channels are.
gpu::TextLaunch plan_stage(const KernelCall& call, const Walk& rows, const Walk& columns, bool is_packed,
                           const Epilogue* epilogue, std::int64_t parts_at) {
  const ConvShape shape(call);
  const Walked walked(shape);
  const Layout& to = walked.is_back ? shape.x : shape.y;
  const std::int64_t channels = walked.channels, all_columns = to.type.shape[1], images = to.type.shape[0];
  const Tiles tiles(call, walked, rows, columns, epilogue);
  gpu::TextParts parts = parts_of_images(shape, call.op->name, tiles, rows, columns, epilogue);
  auto& s = parts.sizes;
  const std::int64_t tiles_m = tiles.of_windows(images, rows, columns), tiles_n = tiles.of_columns(to);
  if (tiles.patch) {
    s.number("images", images), s.number("window_rows", rows.windows), s.number("window_columns", columns.windows);
    s.divisor("square_rows", Patch::squares(rows)), s.divisor("square_columns", Patch::squares(columns));
  } else if (tiles.by_rows) {
    s.number("images", images), s.divisor("window_rows", rows.windows), s.number("window_columns", columns.windows);
    s.number("laid_rows", tiles.by_rows->laid.rows);
  } else {
    s.number("windows", images * rows.windows * columns.windows);
    s.divisor("window_rows", std::max<std::int64_t>(rows.windows, 1));
    s.divisor("window_columns", std::max<std::int64_t>(columns.windows, 1));
  }
  s.number("columns", all_columns), s.divisor("tiles_n", tiles_n), s.number("tiles", tiles_m);
  s.number("channels", channels), s.number("blocks", rows.taps * columns.taps * ceil_div(channels, kDepth));
  for (const auto& [walk, end] : {std::pair{&rows, "_h"}, {&columns, "_w"}}) {
    const auto field = [&](const char* name, std::int64_t value) { s.number(name + std::string(end), value); };
    field("first", walk->first), field("step", walk->step), field("taps", walk->taps), field("tap", walk->tap_step);
  }
  const std::int64_t kernel_columns = walked.axes[1].kernel;
  s.number("first_tap", rows.first_tap * kernel_columns + columns.first_tap);
  s.number("next_tap_h", rows.next_tap * kernel_columns), s.number("next_tap_w", columns.next_tap);
  s.number("out_first", rows.out_first * to.strides[2] + columns.out_first * to.strides[3]);
  s.number("out_n", to.strides[0]);
  s.number("out_h", to.strides[2] * rows.out_step), s.number("out_w", to.strides[3] * columns.out_step);

  add_image_operands(&parts, shape, epilogue);
  parts.maps = {"image_map", "weight_map"};
  parts.call =
      fmt::format("convolve(image_map, weight_map, {}, {}, {}, {}, scratch, size)", shape.has_bias ? "bias" : "nullptr",
                  shape.has_added ? "added" : "nullptr", epilogue == nullptr || epilogue->is_kept ? "out" : "nullptr",
                  epilogue != nullptr ? epilogue_argument(*epilogue) : "EpilogueOperands{}");
  std::int64_t ctas_of_columns = tiles_m;
  if (tiles.stay(epilogue)) {
    parts.resident_ctas = static_cast<int>(tiles.tile.ctas_of_sm);
    ctas_of_columns = std::min(tiles_m, tiles.most_ctas(*call.target, tiles_n));
  }
  s.number("tiles_apart", ctas_of_columns), s.wide_number("parts_at", parts_at);
  parts.ctas = ctas_of_columns * tiles_n;
  gpu::TextLaunch launch = gpu::make_text_kernel(parts);
  launch.is_alone = true;
  launch.shared_bytes = tiles.shared();
  Windows windows_walked = windows_of(rows, columns);
  for (std::int64_t& count : windows_walked.count) count = std::max<std::int64_t>(count, 1);
  const std::int64_t taps = walked.taps();
  // Weights [o, tap, channel]: gradients add up along o, which is across.
  const std::int64_t inner = walked.is_back ? all_columns : channels, outer = walked.is_back ? channels : all_columns;
  launch.maps = {tiles.patch ? map_of(walked.is_back ? shape.y : shape.x, 0, *tiles.patch)
                             : map_of(shape, walked, windows_walked, tiles.tile.rows),
                 {.operand = is_packed ? TensorMap::kWorkspace : 1,
                  .offset = is_packed ? walked.image_bytes : 0,
                  .dtype = shape.dtype,
                  .extents = {inner, taps, outer},
                  .strides = {inner, taps * inner},
                  .tile_rows = static_cast<int>(walked.is_back ? kDepth : tiles.tile.columns),
                  .windows = {}}};
  launch.why = fmt::format("{} tiles of {} x {} by {}{}", tiles_m * tiles_n, tiles.tile.rows, tiles.tile.columns,
                           tiles.patch     ? "patches"
                           : tiles.by_rows ? "rows of windows"
                                           : "tma",
                           is_packed ? ", weights packed" : "");
  return launch;
}

gpu::TextPlan plan_with_epilogue(const KernelCall& call, const Epilogue* epilogue) {
  const ConvShape shape(call);
  const Walked walked(shape);
  gpu::TextPlan made;
  // Weights as [o, tap, channel]: those of one tap, or of a program that keeps them so, may lie there.
  const bool is_packed = !is_channels_last(shape.w) || call.alignments[1] % 16 != 0;
  if (walked.has_tap_rows) {
    const TapRows tap_rows(shape);
    made.launches = {plan_tap_rows(call, epilogue), plan_weight_tap_rows(call, epilogue)};
    made.workspace_bytes = tap_rows.image_bytes() + tap_rows.weight_bytes();
  } else if (is_packed) {
    made.launches.push_back(plan_forward_weight_pack(call, epilogue));
    made.workspace_bytes = size_bytes(shape.w.type);
  }
  const std::int64_t parts_at = round_up(made.workspace_bytes, kPartsAlignment);
  if (epilogue != nullptr && sums_of(*epilogue) > 0) {
    const Tiles tiles(call, walked, *epilogue);
    const std::int64_t tiles_n = tiles.of_columns(walked.is_back ? shape.x : shape.y);
    const std::int64_t parts = tiles_n * tiles.most_ctas(*call.target, tiles_n);
    made.workspace_bytes = parts_at + parts * sums_of(*epilogue) * tiles.tile.columns * 4;
    made.ticket_count = tiles_n;
  }
  for (std::int64_t i = 0; i < walked.phases(0); ++i) {
    for (std::int64_t j = 0; j < walked.phases(1); ++j) {
      made.launches.push_back(
          plan_stage(call, walked.walk(0, i), walked.walk(1, j), is_packed || walked.has_tap_rows, epilogue, parts_at));
    }
  }
  return made;
}

gpu::TextPlan plan_box_images(const KernelCall& call) { return plan_with_epilogue(call, nullptr); }

// The memory accesses that the epilogue saves, and how much longer the kernel takes than the one that has no epilogue,
// where that is another's or goes by larger tiles: us, by how many tiles a CTA has (measured on an H200,
// results/2026-11-25-convolutions.txt). Images that the epilogue reads take no longer than in a kernel of its own
// (results/2026-11-25-convolutions-2.txt).
double saved_us(const Target& target, const Epilogue& epilogue, std::int64_t bytes) {
  if (bytes <= target.last_cache_bytes) return double(bytes) / std::max(target.cached_bytes_per_us, 1e-3);
  return target.stream_us(double(bytes), epilogue.is_kept ? 0 : double(bytes));
}
double lost_us(const KernelCall& call, const Epilogue& epilogue, const std::string& before) {
  constexpr double kBlock = 0.45;
  const ConvShape shape(call);
  const Walked walked(shape);
  const Layout& to = walked.is_back ? shape.x : shape.y;
  const Tiles tiles(call, walked, epilogue);
  const Walk down = walked.walk(0, 0), across = walked.walk(1, 0);
  const std::int64_t all =
      tiles.of_windows(to.type.shape[0], down, across) * tiles.of_columns(to) * walked.phases(0) * walked.phases(1);
  const double turns = double(all) / double(tiles.tile.ctas_of_sm * call.target->sm_count);
  const std::int64_t blocks = tiles.patch || tiles.by_rows ? 0 : walked.taps() * ceil_div(walked.channels, kDepth);
  const Tiles alone(call, walked, down, across, nullptr);
  return before == "tma" && alone.tile == tiles.tile ? 0 : turns * double(blocks) * kBlock;
}

std::string epilogue_refusal_of(const KernelCall& call, const Epilogue& epilogue, const KernelImplementation& before) {
  if (std::string why = refusal(call); !why.empty()) return why;
  const ConvShape shape(call);
  const Walked walked(shape);
  const Layout& to = walked.is_back ? shape.x : shape.y;
  if (std::string why = paoding::epilogue_refusal(to, epilogue); !why.empty()) return why;
  const bool is_whole = walked.phases(0) * walked.phases(1) == 1;
  if (sums_of(epilogue) > 0 && !is_whole) return "sums over several launches";
  if (reads_places(epilogue) && !is_whole) return "it reads where it is, of pixels that are some apart";
  const double saved = saved_us(*call.target, epilogue, size_bytes(to.type)),
               lost = lost_us(call, epilogue, before.name);
  if (saved < lost) return fmt::format("it saves {:.1f} us and takes {:.1f} more than {}", saved, lost, before.name);
  return "";
}

}  // namespace
}  // namespace tma

bool goes_by_patches(const KernelCall& call) {
  if (!tma::refusal(call).empty()) return false;
  const ConvShape shape(call);
  const tma::Walked walked(shape);
  if (walked.phases(0) * walked.phases(1) > 1 || (walked.is_back ? shape.channels : shape.outputs) > tma::kChunk)
    return false;
  return tma::patch_of(walked, walked.walk(0, 0), walked.walk(1, 0)).has_value();
}

void register_convolution_tma_gpu() {
  using namespace tma;
  // Images, not weights and not the bias.
  for (const auto& [op, images] : {std::pair{"conv2d", 0b101U},
                                   {"conv2d_bias", 0b1001U},
                                   {"conv2d_add", 0b11001U},
                                   {"conv2d_grad_input", 0b101U}}) {
    gpu::register_text_kernel(op, "tma", refusal, plan_box_images, Faults::none, images, 0, {}, {}, transposed_weights);
  }
  for (const char* op : {"conv2d_grad_weight", "conv2d_grad_weight_wide"}) {
    gpu::register_text_kernel(op, "tma", refusal, plan_weights, Faults::none, 0b011);
  }
  for (const char* op : {"conv2d", "conv2d_bias", "conv2d_grad_input"}) {
    register_epilogue_kernel(op, {.name = "tma",
                                  .refusal = epilogue_refusal_of,
                                  .plan_text = [](const KernelCall& call, const Epilogue& epilogue) {
                                    gpu::TextPlan made = plan_with_epilogue(call, &epilogue);
                                    std::erase_if(made.launches,
                                                  [](const gpu::TextLaunch& each) { return each.grid[0] == 0; });
                                    return std::make_shared<const gpu::TextPlan>(std::move(made));
                                  }});
  }
}

}  // namespace paoding
