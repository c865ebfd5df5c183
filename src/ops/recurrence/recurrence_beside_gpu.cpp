// SPDX-License-Identifier: Apache-2.0
#include "ops/recurrence/recurrence_beside_gpu.h"

#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/box_products.h"

namespace paoding {
namespace {

// A CTA's tile; a stage has so much of K.
constexpr std::int64_t kTileRows = 128, kColumns = 256, kDepth = 64, kStages = 4, kConsumers = 256;
constexpr std::int64_t kStageBytes = (kTileRows + kColumns) * kDepth * 2;
constexpr std::int64_t kAlign = 1 << 10, kMailboxBytes = 16, kPlaces = 256;
// Each step asks whether a stretch of rows is there; it is a part of all.
constexpr std::int64_t kMostStretches = 16, kCounters = 5;

// On an H200 (benchmarks/results/2026-11-26-recurrence-beside.txt), us: what a CTA takes for a stage, where all of the
// chip's want theirs from L2 and where those beside a recurrence do; for a tile's end; what is in front of and behind
// all that. Products of factors of 16 bits that a library makes in a us.
constexpr double kStageOfAllUs = 1.15, kStageUs = 0.75, kTileUs = 1.1, kStartUs = 5, kLibraryPerUs = 320e6;
constexpr double kLeastGainUs = 2;

}  // namespace

InputProduct::InputProduct(const KernelCall& call, const LayerExtents& layer, const Team& team)
    : target_(*call.target),
      dtype_(layer.dtype),
      rows_(layer.steps * layer.batch),
      depth_(call.inputs[0].type.shape[2]),
      columns_(layer.gates * layer.hidden),
      row_tiles_(ceil_div(rows_, kTileRows)),
      tiles_across_(ceil_div(columns_, kColumns)),
      stretches_(std::min(row_tiles_, kMostStretches)),
      recurrence_ctas_(team.ctas * team.count),
      w_(call.inputs.size() - 1),
      steps_(static_cast<double>(layer.steps)),
      loop_us_(team.step_us * steps_) {
  stretches_ = ceil_div(row_tiles_, ceil_div(row_tiles_, stretches_));
  const std::int64_t most = ceil_div(tiles(), ctas());
  for (std::int64_t first = 2; first <= most; ++first) {
    if (us(first) < us(first_tiles_)) first_tiles_ = first;
  }
}

std::int64_t InputProduct::ctas() const { return std::min<std::int64_t>(tiles(), target_.sm_count); }

double InputProduct::us(std::int64_t first_tiles) const {
  const auto stages = static_cast<double>(ceil_div(depth_, kDepth));
  const std::int64_t rest = std::max<std::int64_t>(tiles() - first_tiles * ctas(), 0);
  const std::int64_t staying = std::max<std::int64_t>(target_.sm_count - recurrence_ctas_, 1);
  const double rest_us = static_cast<double>(ceil_div(rest, staying)) * (stages * kStageUs + kTileUs);
  const double first_us = static_cast<double>(first_tiles) * (stages * kStageOfAllUs + kTileUs);
  return kStartUs + first_us + std::max(loop_us_, rest_us);
}

std::string InputProduct::refusal() const {
  if (target_.major != 9) return "the input's product beside it wants clusters and groups of warps";
  if (size_bytes(dtype_) != 2) return "the input's product beside it is of 16 bits";
  if (depth_ % 8 != 0 || columns_ % 8 != 0) {
    return "rows of the input or of its weights do not begin at multiples of 16 bytes";
  }
  if (gpu::needs_wide_index(row_tiles_ * kTileRows * columns_)) return "the input's product is too large";
  return "";
}

std::string InputProduct::drawback(double apart_step_us) const {
  const double products = static_cast<double>(rows_) * static_cast<double>(depth_) * static_cast<double>(columns_);
  const double apart = products / kLibraryPerUs + steps_ * apart_step_us, beside = us(first_tiles_);
  if (beside + kLeastGainUs <= apart) return "";
  return fmt::format("both would take {:.1f} us beside each other, {:.1f} one behind the other", beside, apart);
}

std::string InputProduct::text() const {
  return fmt::format("; the input's product beside it, {:.1f} us expected of both", us(first_tiles_));
}

std::int64_t InputProduct::words() const { return kCounters + stretches_ + kPlaces; }

std::string InputProduct::constants(std::int64_t words_at) const {
  return fmt::format("constexpr int kBesideAt = {}, kTileRows = {}, kTilesAcross = {}, kPlaces = {};\n", words_at,
                     kTileRows, tiles_across_, kPlaces);
}

void InputProduct::add_sizes(gpu::SizeFields* sizes) const {
  sizes->number("row_tiles", row_tiles_), sizes->number("stretches", stretches_);
  sizes->number("tiles_of_stretch", ceil_div(row_tiles_, stretches_)), sizes->number("product_ctas", ctas());
}

gpu::TextLaunch InputProduct::launch(const std::vector<std::string>& operands, std::int64_t words_at,
                                     bool is_reverse) const {
  const std::int64_t staying = std::max<std::int64_t>(target_.sm_count - recurrence_ctas_, 1);
  gpu::TextParts parts;
  parts.name = "recurrence_input";
  parts.threads = static_cast<int>(kConsumers + 32);
  parts.constants = fmt::format(
      "using Stored = {};\nconstexpr int kColumns = {}, kDepth = {}, kStages = {}, kConsumers = {}, kAllColumns = {}, "
      "kStaying = {};\n{}",
      gpu::stored_type(dtype_), kColumns, kDepth, kStages, kConsumers, columns_, staying, constants(words_at));
  parts.functions = std::string(k_exchange_cu) + k_tensor_cores_cu + k_box_stages_cu +
                    gpu::box_products(dtype_, kColumns, {false, true}) + k_recurrence_beside_cu +
                    k_recurrence_beside_product_cu;
  parts.operands = operands;
  parts.maps = {"x_map", "w_map"};
  parts.call = "multiply_input(x_map, w_map, (Stored*)room.workspace, room, size)";
  parts.ctas = ctas();
  add_sizes(&parts.sizes);
  parts.sizes.number("first_tiles", first_tiles_), parts.sizes.number("is_reverse", is_reverse ? 1 : 0);
  parts.sizes.number("rows", rows_), parts.sizes.number("depth", depth_);
  gpu::TextLaunch launch = gpu::make_text_kernel(parts);
  launch.shared_bytes = static_cast<unsigned>(kAlign + kStages * (kStageBytes + kMailboxBytes + 4));
  const auto map = [&](std::size_t operand, std::int64_t rows, std::int64_t columns, std::int64_t box_rows) {
    gpu::BoxMap made =
        gpu::BoxMap::matrix(static_cast<int>(operand), rows, columns, columns, static_cast<int>(box_rows));
    made.dtype = dtype_;
    return made;
  };
  launch.maps = {map(0, rows_, depth_, kTileRows), map(w_, depth_, columns_, kDepth)};
  launch.workspace_bytes = rows_ * columns_ * size_bytes(dtype_);
  launch.why = fmt::format("the input's product, beside the recurrence: tiles of {} by {}, {} of each CTA before it",
                           kTileRows, kColumns, first_tiles_);
  return launch;
}

}  // namespace paoding
