// SPDX-License-Identifier: Apache-2.0
// Convolutions of 16 bits on Hopper (conv_box*.cu): what windows read is brought by the copy engine, which knows images
// and windows, and multiplied by groups of four warps. What is decided here: which windows, taps and pixels a launch
// has (a gradient for the image of a convolution with strides is a launch for each of its phases), the tile, and into
// how many parts the sums of a gradient for weights are cut.
#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/box_products.h"
#include "ops/all_kernels.h"
#include "ops/conv/conv_end_gpu.h"
#include "ops/conv/conv_shape.h"
#include "ops/conv/conv_tap_rows_gpu.h"
#include "ops/conv/conv_text_gpu.h"
#include "ops/conv/conv_weight_pack_gpu.h"
#include "ops/conv/conv_weight_sum_gpu.h"
#include "ops/conv/window_gpu.h"

namespace paoding {
namespace {

using gpu::BoxMap;
using Windows = BoxMap::Windows;

constexpr int kThreads = 288;  // two groups of four warps that multiply, a warp that has boxes brought
constexpr std::int64_t kRows = 128, kDepth = 64, kChunk = 64;
// All stages of a CTA, so that two CTAs, or three of few columns, fit an SM.
constexpr std::int64_t kStageBytes = 96 << 10, kNarrowStageBytes = 72 << 10;
constexpr std::int64_t kMailboxBytes = 16, kAlign = 1 << 10;
constexpr std::int64_t kTileBytes = 24 << 10;  // that a tile takes of those of the stages, at least
constexpr std::int64_t kLeastChannels = 32;    // of fewer, most of a box of 64 would be zeros
constexpr std::int64_t kMostOffset = std::int64_t{1} << 30;
constexpr std::int64_t kPartsAlignment = 256;

// One axis of the windows that read the taps of one phase: where the first begins, how far the next is, and the taps,
// of which each reads `tap_step` further than the one before.
struct Walk {
  std::int64_t windows = 0, first = 0, step = 1;
  std::int64_t taps = 0, tap_step = 1, first_tap = 0, next_tap = 1;
  std::int64_t out_first = 0, out_step = 1;  // pixels of the result

  static Walk forward(const WindowAxis& axis) {
    Walk walk;
    walk.windows = axis.outputs, walk.first = -axis.before, walk.step = axis.stride;
    walk.taps = axis.kernel, walk.tap_step = axis.dilation;
    return walk;
  }
  // Pixels `phase`, `phase` + stride, .. of the image: tap k has been at pixel i for output (i + before - k dilation) /
  // stride, so taps that did come at the same distance from each other, and the last of them read first.
  static Walk back(const WindowAxis& axis, std::int64_t phase) {
    Walk walk;
    walk.out_first = phase, walk.out_step = axis.stride;
    walk.windows = ceil_div(std::max<std::int64_t>(axis.size - phase, 0), axis.stride);
    const std::int64_t apart = axis.stride / std::gcd(axis.stride, axis.dilation);
    std::int64_t k = 0;
    while (k < std::min(apart, axis.kernel) && (phase + axis.before - k * axis.dilation) % axis.stride != 0) ++k;
    if (k == std::min(apart, axis.kernel)) return walk;  // no tap was there
    walk.taps = ceil_div(axis.kernel - k, apart);
    walk.first_tap = k + (walk.taps - 1) * apart, walk.next_tap = -apart;
    walk.tap_step = apart * axis.dilation / axis.stride;
    walk.first = (phase + axis.before - walk.first_tap * axis.dilation) / axis.stride;
    return walk;
  }
  std::int64_t last_tap() const { return (taps - 1) * tap_step; }
};

// What windows go over: an image as it lies, or as rows of taps.
struct Walked {
  std::array<WindowAxis, 2> axes;
  std::int64_t channels;  // of a tap
  bool is_back, has_tap_rows;
  std::int64_t image_bytes = 0;  // of the workspace

  explicit Walked(const ConvShape& shape)
      : axes(shape.axes),
        channels(shape.kind == ConvKind::grad_input ? shape.outputs : shape.channels),
        is_back(shape.kind == ConvKind::grad_input),
        has_tap_rows(is_few_channels(shape)) {
    if (!has_tap_rows) return;
    const TapRows rows(shape);
    axes[1] = {.size = rows.windows, .outputs = rows.windows};
    channels = rows.channels, image_bytes = rows.image_bytes();
  }
  Walk walk(std::size_t axis, std::int64_t phase) const {
    return is_back ? Walk::back(axes[axis], phase) : Walk::forward(axes[axis]);
  }
  std::int64_t taps() const { return axes[0].kernel * axes[1].kernel; }
  /// Launches along an axis.
  std::int64_t phases(std::size_t axis) const { return is_back ? axes[axis].stride : 1; }
};

// An image [n, channels, h, w] whose channels lie innermost, as the copy engine wants it described.
bool is_described(const Layout& image, std::int64_t alignment) {
  return gpu::channels_at_once(image, alignment, image.type.shape[1]) * size_bytes(image.type.dtype) == 16;
}
BoxMap map_of(const Layout& image, int operand, const Windows& windows, std::int64_t rows) {
  const Shape& extents = image.type.shape;
  return {.operand = operand,
          .dtype = image.type.dtype,
          .extents = {extents[1], extents[3], extents[2], extents[0]},
          .strides = {image.strides[3], image.strides[2], image.strides[0]},
          .box_rows = static_cast<int>(rows),
          .windows = windows};
}
BoxMap map_of(const ConvShape& shape, const Walked& walked, const Windows& windows, std::int64_t rows) {
  if (!walked.has_tap_rows) return map_of(walked.is_back ? shape.y : shape.x, 0, windows, rows);
  BoxMap map = TapRows(shape).map();
  map.box_rows = static_cast<int>(rows), map.windows = windows;
  return map;
}
Windows windows_of(const Walk& rows, const Walk& columns) {
  return {{columns.first, rows.first}, {columns.step, rows.step}, {columns.windows, rows.windows}};
}

std::string refusal(const KernelCall& call) {
  const ConvShape shape(call);
  if (shape.dtype != DType::bf16 && shape.dtype != DType::f16) return "not 16 bits";
  if (call.target->major != 9) return "written for the tensor cores of compute capability 9";
  if (shape.is_empty()) return "an extent is 0";
  if (shape.groups > 1) return fmt::format("{} groups", shape.groups);
  const Walked walked(shape);
  if (walked.channels < kLeastChannels || shape.outputs < kLeastChannels) {
    return fmt::format("{} channels in and {} out, needed {}", shape.channels, shape.outputs, kLeastChannels);
  }
  const bool is_weight = shape.kind == ConvKind::grad_weight;
  for (const std::size_t i : {std::size_t{0}, is_weight ? std::size_t{1} : call.alignments.size() - 1}) {
    const Layout& image = i < call.inputs.size() ? call.inputs[i] : call.outputs[0];
    if (gpu::reach_of(image) >= kMostOffset) return "offsets of 2^30 elements or more";
    if (i == 0 && walked.has_tap_rows) continue;
    if (!is_described(image, call.alignments[i])) return "an image's channels do not lie in whole pieces of 16 bytes";
  }
  if (walked.image_bytes / 2 >= kMostOffset) return "rows of taps of 2^30 elements or more";
  if (shape.has_bias && shape.bias.strides[0] != 1) return "the bias does not lie side by side";
  if (std::string why = shape.added_refusal(); !why.empty()) return why;
  for (std::size_t axis = 0; axis < 2; ++axis) {
    const WindowAxis& along = walked.axes[axis];
    if (along.stride > 8) return "a stride of more than 8";  // of the copy engine's
    const std::int64_t phases = walked.is_back ? along.stride : 1, size = walked.is_back ? along.outputs : along.size;
    for (std::int64_t phase = 0; phase < phases; ++phase) {
      const Walk walk = walked.walk(axis, phase);
      const std::int64_t beyond = walk.first + (walk.windows - 1) * walk.step + 1 - size;
      if (std::max(std::abs(walk.first), std::abs(beyond)) > Windows::kMostReach) {
        return "windows that begin far beyond the image";
      }
      if (walk.last_tap() > Windows::kMostTap) return "a tap further away than the copy engine reaches";
    }
  }
  return "";
}

// What the texts for images and for weights share.
bool is_narrow(std::int64_t stage_bytes) { return stage_bytes < 32 << 10; }
std::int64_t ctas_of_sm(std::int64_t stage_bytes) { return is_narrow(stage_bytes) ? 3 : 2; }
// Where the tile has a place of its own (`is_ahead`), as many as that leaves.
std::int64_t stages_of(std::int64_t stage_bytes, bool is_ahead = false) {
  const std::int64_t bytes = is_narrow(stage_bytes) ? kNarrowStageBytes : kStageBytes;
  return (is_ahead ? bytes - kTileBytes : bytes) / stage_bytes;
}

gpu::TextParts parts_of_text(const ConvShape& shape, std::string name, std::int64_t stage_bytes,
                             std::int64_t columns_of_group, bool is_across, bool is_ahead = false) {
  gpu::TextParts parts;
  parts.name = std::move(name);
  parts.threads = kThreads;
  parts.constants = fmt::format("using Stored = {};\nconstexpr int kStages = {};\n", gpu::stored_type(shape.dtype),
                                stages_of(stage_bytes, is_ahead));
  parts.functions = fmt::format("{}{}{}{}", k_exchange_cu, k_tensor_cores_cu, k_box_stages_cu,
                                gpu::box_products(shape.dtype, static_cast<int>(columns_of_group), is_across));
  return parts;
}

std::int64_t tile_columns_of(const Layout& to) { return to.type.shape[1] <= 64 ? 64 : 128; }
std::int64_t stage_bytes_of(std::int64_t tile_columns) { return (kRows + tile_columns) * kDepth * 2; }
// CTAs that share the sums of a tile's columns, at most: all that run at once.
std::int64_t most_parts(const Target& target, std::int64_t stage_bytes, std::int64_t tiles_n) {
  return std::max<std::int64_t>(1, ctas_of_sm(stage_bytes) * target.sm_count / tiles_n);
}

unsigned shared_bytes(std::int64_t stage_bytes, std::int64_t tile_columns = 0) {
  const std::int64_t tile = tile_columns > 0 ? kRows * (tile_columns + 8) * 2 : 0;
  return static_cast<unsigned>(kAlign + stages_of(stage_bytes, tile > 0) * (stage_bytes + kMailboxBytes) + tile);
}

// ---- forward, and the gradient for the image ----

// `parts_at`: where of the workspace sums of an end's channels are.
gpu::TextLaunch plan_phase(const KernelCall& call, const Walk& rows, const Walk& columns, bool is_packed,
                           const KernelEnd* end, std::int64_t parts_at) {
  const ConvShape shape(call);
  const Walked walked(shape);
  const Layout& to = walked.is_back ? shape.x : shape.y;
  const std::int64_t channels = walked.channels, all_columns = to.type.shape[1];
  const std::int64_t windows = to.type.shape[0] * rows.windows * columns.windows;
  const std::int64_t tile_columns = tile_columns_of(to), stage_bytes = stage_bytes_of(tile_columns);
  // What comes from memory is asked for while a tile is gone over; what L2 has comes soon enough.
  const bool is_ahead =
      end != nullptr && size_bytes((walked.is_back ? shape.y : shape.x).type) > call.target->last_cache_bytes;

  gpu::TextParts parts = parts_of_text(shape, call.op->name, stage_bytes, tile_columns, false, is_ahead);
  parts.constants +=
      fmt::format("constexpr int kColumns = {};\nconstexpr bool kIsAhead = {};\n{}#define PD_HAS_END {}\n",
                  tile_columns, is_ahead, ending_constants(shape), end != nullptr ? 1 : 0);
  parts.functions += (end != nullptr ? end_text(&parts, *end) : text_without_end()) + k_conv_box_images_cu;
  auto& s = parts.sizes;
  const std::int64_t tiles_m = ceil_div(windows, kRows), tiles_n = ceil_div(all_columns, tile_columns);
  s.number("windows", windows), s.divisor("window_rows", std::max<std::int64_t>(rows.windows, 1));
  s.divisor("window_columns", std::max<std::int64_t>(columns.windows, 1));
  s.number("columns", all_columns), s.divisor("tiles_n", tiles_n);
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

  add_image_operands(&parts, shape, end);
  parts.maps = {"image_map", "weight_map"};
  parts.call =
      fmt::format("convolve(image_map, weight_map, {}, {}, {}, {}, room, size)", shape.has_bias ? "bias" : "nullptr",
                  shape.has_added ? "added" : "nullptr", end == nullptr || end->is_kept ? "out" : "nullptr",
                  end != nullptr ? end_argument(*end) : "End{}");
  std::int64_t ctas_of_columns = tiles_m;
  if (end != nullptr) {
    parts.resident_ctas = static_cast<int>(ctas_of_sm(stage_bytes));
    ctas_of_columns = std::min(tiles_m, most_parts(*call.target, stage_bytes, tiles_n));
  }
  s.number("tiles_apart", ctas_of_columns), s.wide_number("parts_at", parts_at);
  parts.ctas = ctas_of_columns * tiles_n;
  gpu::TextLaunch launch = gpu::make_text_kernel(parts);
  launch.is_alone = true;
  launch.shared_bytes = shared_bytes(stage_bytes, is_ahead ? tile_columns : 0);
  Windows windows_walked = windows_of(rows, columns);
  for (std::int64_t& count : windows_walked.count) count = std::max<std::int64_t>(count, 1);
  const std::int64_t taps = walked.taps();
  launch.maps = {map_of(shape, walked, windows_walked, kRows),
                 {.operand = is_packed ? BoxMap::kWorkspace : 1,
                  .offset = is_packed ? walked.image_bytes : 0,
                  .dtype = shape.dtype,
                  .extents = {channels, taps, all_columns},
                  .strides = {channels, taps * channels},
                  .box_rows = static_cast<int>(tile_columns),
                  .windows = {}}};
  launch.why = fmt::format("{} tiles of {} x {} by boxes{}", parts.ctas, kRows, tile_columns,
                           is_packed ? ", weights packed" : "");
  return launch;
}

gpu::TextPlan plan_with_end(const KernelCall& call, const KernelEnd* end) {
  const ConvShape shape(call);
  const Walked walked(shape);
  gpu::TextPlan made;
  // Weights as [column, tap, channel]: those of one tap, or of a program that keeps them so, may lie there.
  const Layout packed = packed_weights(shape);
  bool is_packed = walked.is_back || call.alignments[1] % 16 != 0;
  for (std::size_t axis = 0; axis < 4; ++axis) {
    const bool is_one = shape.w.type.shape[static_cast<int>(axis)] == 1;
    is_packed |= !is_one && shape.w.strides[axis] != packed.strides[axis];
  }
  if (walked.has_tap_rows) {
    const TapRows tap_rows(shape);
    made.launches = {plan_tap_rows(call, end), plan_weight_tap_rows(call, end)};
    made.workspace_bytes = tap_rows.image_bytes() + tap_rows.weight_bytes();
  } else if (is_packed) {
    made.launches.push_back(plan_weight_pack(call, end));
    made.workspace_bytes = size_bytes(shape.w.type);
  }
  const std::int64_t parts_at = round_up(made.workspace_bytes, kPartsAlignment);
  if (end != nullptr && sums_of(*end) > 0) {
    const Layout& to = walked.is_back ? shape.x : shape.y;
    const std::int64_t columns = tile_columns_of(to), tiles_n = ceil_div(to.type.shape[1], columns);
    const std::int64_t parts = tiles_n * most_parts(*call.target, stage_bytes_of(columns), tiles_n);
    made.workspace_bytes = parts_at + parts * sums_of(*end) * columns * 4;
    made.ticket_count = tiles_n;
  }
  for (std::int64_t i = 0; i < walked.phases(0); ++i) {
    for (std::int64_t j = 0; j < walked.phases(1); ++j) {
      made.launches.push_back(
          plan_phase(call, walked.walk(0, i), walked.walk(1, j), is_packed || walked.has_tap_rows, end, parts_at));
    }
  }
  return made;
}

gpu::TextPlan plan_images(const KernelCall& call) { return plan_with_end(call, nullptr); }

// What the end does not read and write again, and how much longer the kernel takes for having it: us, by how many tiles
// a CTA has (measured on an H200, results/2026-11-25-convolutions.txt).
double saved_us(const Target& target, const KernelEnd& end, std::int64_t bytes) {
  if (bytes <= target.last_cache_bytes) return double(bytes) / std::max(target.cached_bytes_per_us, 1e-3);
  return target.stream_us(double(bytes), end.is_kept ? 0 : double(bytes));
}
double lost_us(const KernelCall& call, const KernelEnd& end, const std::string& before) {
  constexpr double kBlock = 0.45, kImage = 1.8;
  const ConvShape shape(call);
  const Walked walked(shape);
  const Layout& to = walked.is_back ? shape.x : shape.y;
  const std::int64_t columns = tile_columns_of(to), blocks = walked.taps() * ceil_div(walked.channels, kDepth);
  const std::int64_t pixels = to.type.shape[0] * to.type.shape[2] * to.type.shape[3];
  const std::int64_t tiles = ceil_div(pixels, kRows) * ceil_div(to.type.shape[1], columns);
  const double turns = double(tiles) / double(ctas_of_sm(stage_bytes_of(columns)) * call.target->sm_count);
  const double of_products = before == "boxes" ? 0 : double(blocks) * kBlock;
  return turns * (of_products + images_of(end) * kImage);
}

std::string end_refusal_of(const KernelCall& call, const KernelEnd& end, const KernelImplementation& before) {
  if (std::string why = refusal(call); !why.empty()) return why;
  const ConvShape shape(call);
  const Walked walked(shape);
  const Layout& to = walked.is_back ? shape.x : shape.y;
  if (std::string why = paoding::end_refusal(to, end); !why.empty()) return why;
  const bool is_whole = walked.phases(0) * walked.phases(1) == 1;
  if (sums_of(end) > 0 && !is_whole) return "sums over several launches";
  if (reads_places(end) && !is_whole) return "it reads where it is, of pixels that are some apart";
  const double saved = saved_us(*call.target, end, size_bytes(to.type)), lost = lost_us(call, end, before.name);
  if (saved < lost) return fmt::format("it saves {:.1f} us and takes {:.1f} more than {}", saved, lost, before.name);
  return "";
}

// ---- the gradient for the weights ----

// Into how many parts the windows are cut: what takes the least time by how many blocks a CTA has, how many CTAs come
// after each other, and the sums of all parts that are written and read.
std::int64_t parts_of_windows(std::int64_t tiles, std::int64_t blocks, std::int64_t elements, std::int64_t at_once) {
  constexpr double kBlock = 0.85, kStart = 3, kBytes = 3e6;  // us, us, bytes a us: fitted on an H200
  std::int64_t best = 1;
  double least = 0;
  for (std::int64_t parts = 1; parts <= std::min<std::int64_t>(blocks, 128); ++parts) {
    const double turns = double(ceil_div(tiles * parts, at_once)), each = double(ceil_div(blocks, parts));
    const double takes = turns * (each * kBlock + kStart) + double(parts * elements * 8) / kBytes;
    if (parts == 1 || takes < least) best = parts, least = takes;
  }
  return best;
}

gpu::TextPlan plan_weights(const KernelCall& call) {
  const ConvShape shape(call);
  const Walked walked(shape);
  const std::int64_t rows = shape.outputs, channels = walked.channels, taps = walked.taps();
  const std::int64_t groups_m = rows <= 64 ? 1 : 2, stage_bytes = (groups_m + 2) * kChunk * kDepth * 2;
  gpu::TextParts text = parts_of_text(shape, "conv2d_grad_weight", stage_bytes, groups_m == 2 ? 128 : 64, true);
  text.functions += k_conv_box_weights_cu;
  text.constants += fmt::format("constexpr int kGroupsM = {};\n", groups_m);
  const Walk down = Walk::forward(walked.axes[0]), across = Walk::forward(walked.axes[1]);
  const std::int64_t windows = shape.batch * down.windows * across.windows, blocks = ceil_div(windows, kDepth);
  const std::int64_t chunks = taps * ceil_div(channels, kChunk);
  const std::int64_t tiles_m = ceil_div(rows, groups_m * 64), tiles_n = ceil_div(chunks, 2),
                     elements = rows * taps * channels;
  const std::int64_t parts =
      parts_of_windows(tiles_m * tiles_n, blocks, elements, ctas_of_sm(stage_bytes) * call.target->sm_count);
  auto& s = text.sizes;
  s.divisor("window_rows", down.windows), s.divisor("window_columns", across.windows);
  s.number("rows", rows), s.number("channels", channels), s.number("taps", taps), s.number("chunks", chunks);
  s.divisor("chunks_of_tap", ceil_div(channels, kChunk)), s.divisor("kernel_columns", walked.axes[1].kernel);
  s.divisor("tiles_m", tiles_m), s.divisor("tiles_n", tiles_n);
  s.number("blocks", blocks), s.number("parts", parts), s.wide_number("elements", elements);
  for (const auto& [walk, end] : {std::pair{&down, "_h"}, {&across, "_w"}}) {
    const auto field = [&](const char* name, std::int64_t value) { s.number(name + std::string(end), value); };
    field("first", walk->first), field("step", walk->step), field("tap", walk->tap_step);
  }
  text.ctas = tiles_m * tiles_n * parts;
  for (const char* name : {"image", "gradient"}) text.operands.push_back(gpu::input_parameter(shape.dtype, name));
  text.operands.push_back(gpu::output_parameter(shape.w.type.dtype, "out"));
  text.maps = {"image_map", "gradient_map"};
  text.call = fmt::format("add_up(image_map, gradient_map, (float*){}, size)",
                          walked.has_tap_rows ? "((char*)room.workspace + size.image_bytes_wide)" : "room.workspace");
  if (walked.has_tap_rows) s.wide_number("image_bytes", walked.image_bytes);
  gpu::TextLaunch launch = gpu::make_text_kernel(text);
  launch.is_alone = true;
  launch.shared_bytes = shared_bytes(stage_bytes);
  const Windows pixels{{0, 0}, {1, 1}, {across.windows, down.windows}};
  launch.maps = {map_of(shape, walked, windows_of(down, across), kDepth), map_of(shape.y, 1, pixels, kDepth)};
  launch.why =
      fmt::format("{} tiles of {} x 128 by boxes, windows in {} parts", tiles_m * tiles_n, groups_m * 64, parts);
  gpu::TextPlan made;
  if (walked.has_tap_rows) made.launches.push_back(plan_tap_rows(call));
  made.launches.push_back(std::move(launch));
  const std::int64_t channels_of_tap = walked.has_tap_rows ? TapRows::kChannels : channels;
  made.launches.push_back(plan_weight_sum(call, parts, channels_of_tap, walked.image_bytes));
  made.workspace_bytes = walked.image_bytes + parts * elements * 4;
  return made;
}

}  // namespace

void register_convolution_box_gpu() {
  // Images, not weights and not the bias.
  const auto add = [](const char* op, std::uint32_t images, gpu::TextPlan (*plan)(const KernelCall&)) {
    gpu::register_text_kernel(op, "boxes", refusal, plan, Faults::none, images);
  };
  add("conv2d", 0b101, plan_images), add("conv2d_bias", 0b1001, plan_images), add("conv2d_add", 0b11001, plan_images);
  add("conv2d_grad_input", 0b101, plan_images), add("conv2d_grad_weight", 0b011, plan_weights);
  add("conv2d_grad_weight_wide", 0b011, plan_weights);
  for (const char* op : {"conv2d", "conv2d_bias", "conv2d_grad_input"}) {
    register_ending_kernel(
        op, {.name = "boxes", .refusal = end_refusal_of, .plan_text = [](const KernelCall& call, const KernelEnd& end) {
               gpu::TextPlan made = plan_with_end(call, &end);
               std::erase_if(made.launches, [](const gpu::TextLaunch& each) { return each.grid[0] == 0; });
               return std::make_shared<const gpu::TextPlan>(std::move(made));
             }});
  }
}

}  // namespace paoding
