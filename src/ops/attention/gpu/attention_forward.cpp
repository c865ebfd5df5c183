// SPDX-License-Identifier: Apache-2.0
// The launch of attention on Hopper: its TMA tiles, the data in shared memory, operands.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/tile_products.h"
#include "ops/attention/gpu/attention_shape.h"

namespace paoding::hopper {
namespace {

constexpr int kKeys = 128;
constexpr std::int64_t kMostTiles = 8;
constexpr std::int64_t kOneColumns = 64;  // of a TMA tile of ones, behind the first one of values

}  // namespace

gpu::TextLaunch plan_attention(const AttentionShape& shape) {
  const AttentionForm& form = shape.form;
  const Target& target = *shape.call->target;
  const auto queries = static_cast<int>(shape.groups * kOfGroup);
  const std::int64_t width = shape.padded_width(), tile_bytes = kKeys * width * 2;
  // With dropout the sums are not those of the weights that the product has.
  const bool has_ones = width == kOneColumns && !shape.has_dropout();
  const std::int64_t owned_bytes = 2 * queries * width * 2 + (has_ones ? kKeys * kOneColumns * 2 : 0);
  const std::int64_t stages = std::min(
      kMostTiles, (target.shared_bytes - kAlign - owned_bytes - 2 * kBarrierBytes) / (tile_bytes + kBarrierBytes));
  const auto columns = static_cast<int>(has_ones ? width + 8 : width);
  gpu::TextParts parts = shape.parts("attention", shape.threads(), stages);
  parts.constants += fmt::format("constexpr int kScores = {};\nconstexpr bool kHasOnes = {};\n", kKeys / 2, has_ones);
  parts.functions += gpu::product_text({"add_scores", form.dtype, kKeys, queries, kKeys, false}) +
                     gpu::product_text({"add_values", form.dtype, columns, 0, 0, true}) + gpu::sums_text(kKeys / 2) +
                     (columns == kKeys ? "" : gpu::sums_text(columns / 2)) + k_attention_tiles_cu +
                     k_attention_dropout_cu + k_attention_softmax_cu + k_attention_forward_cu;
  shape.add_items(&parts, form.heads, form.queries, queries, 2 * form.keys * width * 2 / form.group(),
                  form.hides_later());
  shape.add_strides(&parts, shape.call->inputs.size(), "out");
  shape.add_forward_operands(&parts);
  gpu::TextLaunch launch = gpu::make_text_kernel(parts);
  launch.is_alone = true;
  launch.shared_bytes =
      static_cast<unsigned>(kAlign + owned_bytes + 2 * kBarrierBytes + stages * (tile_bytes + kBarrierBytes));
  launch.maps = {shape.map(kQ, queries), shape.map(kK, kKeys), shape.map(kV, kKeys)};
  launch.why = fmt::format("{} blocks of {} queries by tiles of {} keys",
                           shape.all_heads() * ceil_div(form.queries, queries), queries, kKeys);
  return launch;
}

}  // namespace paoding::hopper
