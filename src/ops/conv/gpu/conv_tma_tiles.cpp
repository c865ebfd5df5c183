// SPDX-License-Identifier: Apache-2.0
#include "ops/conv/gpu/conv_tma_tiles.h"

#include <algorithm>
#include <numeric>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "ops/conv/gpu/conv_tap_rows.h"
#include "ops/conv/gpu/window.h"

namespace paoding::tma {
namespace {

constexpr std::int64_t kLeastChannels = 32;  // of fewer, most of a TMA tile of 64 would be zeros
constexpr std::int64_t kLeastOfOneTap = 16;  // whose products take less time than their results
constexpr std::int64_t kMostOffset = std::int64_t{1} << 30;

// An image [n, channels, h, w] whose channels lie innermost, as TMA wants it described.
bool is_described(const Layout& image, std::int64_t alignment) {
  return gpu::channels_at_once(image, alignment, image.type.shape[1]) * size_bytes(image.type.dtype) == 16;
}

}  // namespace

Walk Walk::forward(const WindowAxis& axis) {
  Walk walk;
  walk.windows = axis.outputs, walk.first = -axis.before, walk.step = axis.stride;
  walk.taps = axis.kernel, walk.tap_step = axis.dilation;
  return walk;
}

Walk Walk::back(const WindowAxis& axis, std::int64_t phase) {
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

Walked::Walked(const ConvShape& shape)
    : axes(shape.axes),
      channels(shape.kind == ConvKind::grad_input ? shape.outputs : shape.channels),
      is_back(shape.kind == ConvKind::grad_input),
      has_tap_rows(is_few_channels(shape)) {
  if (!has_tap_rows) return;
  const TapRows rows(shape);
  axes[1] = {.size = rows.windows, .outputs = rows.windows};
  channels = rows.channels, image_bytes = rows.image_bytes();
}

std::int64_t Patch::bytes() const { return round_up(rows * columns * kDepth * 2, kAlign); }
std::int64_t Patch::squares(const Walk& walk) { return ceil_div(walk.windows, kSide); }

std::optional<Patch> Patch::of(const Walked& walked, const Walk& down, const Walk& across) {
  constexpr std::int64_t kMostSide = 256;  // of a TMA tile
  const Patch patch{kSide + down.last_tap(), kSide + across.last_tap(), down.taps * across.taps};
  if (walked.has_tap_rows || patch.taps < 2 || down.step * across.step > 1) return {};
  if (std::max(patch.rows, patch.columns) > kMostSide) return {};
  return patch;
}

TensorMap map_of(const Layout& image, int operand, const Windows& windows, std::int64_t rows) {
  const Shape& extents = image.type.shape;
  return {.operand = operand,
          .dtype = image.type.dtype,
          .extents = {extents[1], extents[3], extents[2], extents[0]},
          .strides = {image.strides[3], image.strides[2], image.strides[0]},
          .tile_rows = static_cast<int>(rows),
          .windows = windows};
}
TensorMap map_of(const Layout& image, int operand, const Patch& patch) {
  TensorMap map = map_of(image, operand, {}, patch.rows * patch.columns);
  map.windows.reset(), map.tile_columns = static_cast<int>(patch.columns);
  return map;
}
TensorMap map_of(const ConvShape& shape, const Walked& walked, const Windows& windows, std::int64_t rows) {
  if (!walked.has_tap_rows) return map_of(walked.is_back ? shape.y : shape.x, 0, windows, rows);
  TensorMap map = TapRows(shape).map();
  if (map.is_plain) return map;
  map.tile_rows = static_cast<int>(rows), map.windows = windows;
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
  const bool is_weight = shape.kind == ConvKind::grad_weight;
  const std::int64_t least = walked.taps() == 1 && !is_weight ? kLeastOfOneTap : kLeastChannels;
  if (walked.channels < least || shape.outputs < kLeastChannels) {
    return fmt::format("{} channels in and {} out, needed {}", shape.channels, shape.outputs, least);
  }
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
    if (along.stride > 8) return "a stride of more than 8";  // of TMA's
    const std::int64_t phases = walked.is_back ? along.stride : 1, size = walked.is_back ? along.outputs : along.size;
    for (std::int64_t phase = 0; phase < phases; ++phase) {
      const Walk walk = walked.walk(axis, phase);
      const std::int64_t beyond = walk.first + (walk.windows - 1) * walk.step + 1 - size;
      if (std::max(std::abs(walk.first), std::abs(beyond)) > Windows::kMostReach) {
        return "windows that begin far beyond the image";
      }
      if (walk.last_tap() > Windows::kMostTap) return "a tap further away than TMA reaches";
    }
  }
  return "";
}

std::int64_t Tile::bytes_of_cta(const Target& target) const {
  constexpr std::int64_t kOfSystem = 1 << 10;  // a CTA's
  return (target.shared_bytes + kOfSystem) / ctas_of_sm - kOfSystem - kAlign;
}
double Tile::stage_us() const {
  constexpr double kProducts = 4.05e6, kBytes = 71e3;  // a us and SM: of an H200
  return std::max(double(rows * columns * kDepth) / kProducts, double(stage_bytes()) / kBytes);
}

unsigned shared_bytes(std::int64_t stages, std::int64_t stage_bytes) {
  return static_cast<unsigned>(kAlign + stages * (stage_bytes + kMbarrierBytes));
}

gpu::TextParts parts_of_text(const ConvShape& shape, std::string name, int threads, std::int64_t stages,
                             const std::string& products) {
  gpu::TextParts parts;
  parts.name = std::move(name);
  parts.threads = threads;
  parts.constants =
      fmt::format("using Stored = {};\nconstexpr int kStages = {};\n", gpu::stored_type(shape.dtype), stages);
  parts.functions = fmt::format("{}{}{}{}", k_exchange_cu, k_tensor_cores_cu, k_tma_stages_cu, products);
  return parts;
}

std::string tap_constants(const Walk& down, const Walk& across) {
  return fmt::format("constexpr int kTapsH = {}, kTapsW = {}, kTapH = {}, kTapW = {};\n", down.taps, across.taps,
                     down.tap_step, across.tap_step);
}

}  // namespace paoding::tma
