// SPDX-License-Identifier: Apache-2.0
// The launch of attention on Hopper: its TMA tiles, the data in shared memory, operands.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/tile_products.h"
#include "ops/attention/gpu/attention_shape.h"

namespace paoding::hopper {
namespace {

constexpr std::int64_t kQueries = 128, kKeys = 128, kMostTiles = 8;

}  // namespace

gpu::TextPlan plan_attention(const KernelCall& call) {
  const AttentionShape shape(call, false);
  const AttentionForm& form = shape.form;
  const std::int64_t width = shape.padded_width(), tile_bytes = kKeys * width * 2;
  const std::int64_t owned_bytes = 2 * kQueries * width * 2;
  const std::int64_t stages = std::min(
      kMostTiles, (call.target->shared_bytes - kAlign - owned_bytes - 2 * kBarrierBytes) / (tile_bytes + kBarrierBytes));
  gpu::TextParts parts = shape.parts("attention", kThreads, stages);
  parts.constants += fmt::format("constexpr bool kHasLogs = {};\n", shape.is_wanted(1));
  parts.functions += gpu::product_text({"add_scores", form.dtype, kKeys, kQueries, kKeys, false}) +
                     gpu::product_text({"add_values", form.dtype, static_cast<int>(width), 0, kKeys, true}) +
                     gpu::sums_text(kKeys / 2) +
                     (width == kKeys ? "" : gpu::sums_text(static_cast<int>(width) / 2)) + k_attention_tiles_cu +
                     k_attention_forward_cu;
  shape.add_items(&parts, form.heads, form.queries, kQueries, 2 * form.keys * width * 2 / form.group());
  shape.add_strides(&parts, call.inputs.size(), "out");
  shape.add_lengths(&parts);
  for (const char* name : {"q", "k", "v"}) parts.operands.push_back(gpu::input_parameter(form.dtype, name));
  if (shape.has_lengths()) {
    parts.operands.push_back(
        gpu::input_parameter(shape.layout(static_cast<std::size_t>(form.lengths)).type.dtype, "lengths"));
  }
  parts.operands.push_back(gpu::output_parameter(form.dtype, "out"));
  parts.operands.push_back(gpu::output_parameter(DType::f32, "logs"));
  parts.maps = {"queries", "keys", "values"};
  parts.call = fmt::format("attend(queries, keys, values, {}, out, logs, size)",
                           shape.has_lengths() ? "lengths" : "(const int*)nullptr");
  gpu::TextLaunch launch = gpu::make_text_kernel(parts);
  launch.is_alone = true;
  launch.shared_bytes =
      static_cast<unsigned>(kAlign + owned_bytes + 2 * kBarrierBytes + stages * (tile_bytes + kBarrierBytes));
  launch.maps = {shape.map(kQ, kQueries), shape.map(kK, kKeys), shape.map(kV, kKeys)};
  launch.why = fmt::format("{} blocks of {} queries by tiles of {} keys", shape.all_heads() * ceil_div(form.queries, kQueries),
                           kQueries, kKeys);
  gpu::TextPlan made;
  made.launches.push_back(std::move(launch));
  return made;
}

}  // namespace paoding::hopper
