// SPDX-License-Identifier: Apache-2.0
// The launches of attention of short rows on Hopper, forward and for all gradients: a CTA has a head.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/tile_products.h"
#include "ops/attention/gpu/attention_shape.h"

namespace paoding::hopper {
namespace {

constexpr std::int64_t kMostShort = 128, kMostRegisters = 65536;

AttentionShape with_groups_for_all(AttentionShape shape) {
  shape.groups = ceil_div(std::max(shape.form.queries, shape.form.keys), kOfGroup);
  return shape;
}

// `operands` of `rows` rows each in shared memory, and so many bytes beside them.
gpu::TextLaunch plan_short(const AttentionShape& shape, gpu::TextParts parts, const std::string& text, int operands,
                           std::int64_t beside, std::vector<gpu::TensorMap> maps) {
  const std::int64_t rows = shape.groups * kOfGroup;
  parts.constants += fmt::format("constexpr int kScores = {};\n", rows / 2);
  parts.functions += gpu::sums_text(static_cast<int>(rows) / 2) +
                     (rows == shape.padded_width() ? "" : gpu::sums_text(static_cast<int>(shape.padded_width()) / 2)) +
                     text;
  shape.add_items(&parts, shape.form.heads, 1, 1, 1);
  parts.ctas = shape.all_heads();
  gpu::TextLaunch launch = gpu::make_text_kernel(parts);
  launch.shared_bytes =
      static_cast<unsigned>(kAlign + operands * rows * shape.padded_width() * 2 + beside + kBarrierBytes);
  launch.maps = std::move(maps);
  launch.why =
      fmt::format("{} heads of {} queries and {} keys, whole", shape.all_heads(), shape.form.queries, shape.form.keys);
  return launch;
}

// CTAs of an SM that leave a thread so many registers.
int ctas_of_sm(std::int64_t threads, std::int64_t registers) {
  return static_cast<int>(std::max<std::int64_t>(kMostRegisters / (threads * registers), 1));
}

}  // namespace

bool is_short(const AttentionShape& shape) {
  return std::max(shape.form.queries, shape.form.keys) <= kMostShort && (!shape.is_gradient || shape.form.group() == 1);
}

gpu::TextLaunch plan_short_attention(const AttentionShape& of) {
  const AttentionShape shape = with_groups_for_all(of);
  const AttentionForm& form = shape.form;
  const std::int64_t threads = shape.groups * 128;
  const auto rows = static_cast<int>(shape.groups * kOfGroup), width = static_cast<int>(shape.padded_width());
  gpu::TextParts parts = shape.parts("attention_short", threads, 1);
  parts.resident_ctas = ctas_of_sm(threads, rows + width <= 128 ? 120 : 200);
  shape.add_strides(&parts, shape.call->inputs.size(), "out");
  shape.add_forward_operands(&parts);
  return plan_short(shape, std::move(parts),
                    gpu::product_text({"add_scores", form.dtype, rows, rows, rows, false}) +
                        gpu::product_text({"add_values", form.dtype, width, 0, rows, true}) + k_attention_tiles_cu +
                        k_attention_dropout_cu + k_attention_softmax_cu + k_attention_short_cu,
                    3, 0, {shape.map(kQ, rows), shape.map(kK, rows), shape.map(kV, rows)});
}

gpu::TextLaunch plan_short_attention_grad(const AttentionShape& of) {
  const AttentionShape shape = with_groups_for_all(of);
  const AttentionForm& form = shape.form;
  const std::int64_t threads = shape.groups * 128;
  const auto rows = static_cast<int>(shape.groups * kOfGroup), width = static_cast<int>(shape.padded_width());
  gpu::TextParts parts = shape.parts("attention_short_grad", threads, 1);
  parts.resident_ctas = ctas_of_sm(threads, rows + width <= 128 ? 160 : 240);
  const std::size_t results = shape.call->inputs.size();
  shape.add_strides(&parts, results, "out"), shape.add_strides(&parts, results + 1, "keys");
  shape.add_strides(&parts, results + 2, "values");
  shape.add_gradient_operands(&parts);
  parts.call = fmt::format(
      "differentiate(queries, result_grads, keys, values, {}, {}, logs, {}, query_grad, key_grad, value_grad, size)",
      shape.lengths_argument(), shape.dropout_argument(), form.dlse >= 0 ? "log_grads" : "nullptr");
  return plan_short(shape, std::move(parts),
                    gpu::product_text({"add_scores", form.dtype, rows, rows, rows, false}) +
                        gpu::product_text({"add_grads", form.dtype, width, 0, rows, true}) + k_attention_tiles_cu +
                        k_attention_dropout_cu + k_attention_short_grad_cu,
                    4, 2 * rows * 4,
                    {shape.map(kQ, rows), shape.map(kDResult, rows), shape.map(kK, rows), shape.map(kV, rows)});
}

}  // namespace paoding::hopper
