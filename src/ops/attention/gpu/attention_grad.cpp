// SPDX-License-Identifier: Apache-2.0
// The launches of attention's gradient on Hopper. A CTA that owns keys would have to share its part of the gradient for
// queries with others, in an order of its own for the same bits in every run; here queries have a launch of their own
// that makes the scores again: seven products in place of five, and no exchange.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/tile_products.h"
#include "ops/attention/gpu/attention_shape.h"

namespace paoding::hopper {
namespace {

constexpr int kStep = 64;
constexpr std::int64_t kMostStages = 4;

// A CTA's shared memory: rows that it owns, in one place or in two, and stages of those that it goes over, each with so
// many bytes beside its TMA tiles.
struct SharedBytes {
  std::int64_t width, rows, beside, slots = 2, stages = 0;

  SharedBytes(const AttentionShape& shape, std::int64_t beside_tiles)
      : width(shape.padded_width()), rows(shape.groups * kOfGroup), beside(beside_tiles) {
    const std::int64_t most = shape.call->target->shared_bytes - kAlign - slots * (owned() + kBarrierBytes);
    stages = std::min(kMostStages, most / stage());
  }
  std::int64_t owned() const { return 2 * rows * width * 2; }
  std::int64_t stage() const { return 2 * kStep * width * 2 + beside + kBarrierBytes; }
  std::int64_t all() const { return kAlign + slots * (owned() + kBarrierBytes) + stages * stage(); }
};

gpu::TextParts parts_of(const AttentionShape& shape, const char* name, const SharedBytes& shared) {
  const AttentionForm& form = shape.form;
  gpu::TextParts parts = shape.parts(name, shape.threads(), shared.stages);
  const auto width = static_cast<int>(shared.width);
  parts.constants += fmt::format("constexpr int kOwnedSlots = {}, kRowFloats = {};\n", shared.slots, shared.beside / 4);
  parts.functions += gpu::product_text({"add_scores", form.dtype, kStep, static_cast<int>(shared.rows), kStep, false}) +
                     gpu::product_text({"add_grads", form.dtype, width, 0, kStep, true}) + gpu::sums_text(kStep / 2) +
                     (width == kStep ? "" : gpu::sums_text(width / 2)) + k_attention_tiles_cu + k_attention_grad_cu +
                     k_attention_dropout_cu;
  shape.add_gradient_operands(&parts);
  return parts;
}

gpu::TextLaunch launch_of(const AttentionShape& shape, const gpu::TextParts& parts, const SharedBytes& shared,
                          std::int64_t query_rows, std::int64_t key_rows) {
  gpu::TextLaunch launch = gpu::make_text_kernel(parts);
  launch.is_alone = true;
  launch.shared_bytes = static_cast<unsigned>(shared.all());
  launch.maps = {shape.map(kQ, query_rows), shape.map(kDResult, query_rows), shape.map(kK, key_rows),
                 shape.map(kV, key_rows)};
  return launch;
}

gpu::TextLaunch plan_queries(const AttentionShape& shape) {
  const AttentionForm& form = shape.form;
  const SharedBytes shared(shape, 0);
  gpu::TextParts parts = parts_of(shape, "attention_grad_queries", shared);
  parts.functions += k_attention_grad_queries_cu;
  shape.add_items(&parts, form.heads, form.queries, shared.rows, 2 * form.keys * shared.width * 2 / form.group(),
                  form.hides_later());
  shape.add_strides(&parts, kResult, "result");
  shape.add_strides(&parts, shape.call->inputs.size(), "out");
  parts.call = fmt::format(
      "differentiate(queries, result_grads, keys, values, {}, {}, result, logs, {}, "
      "(float*)scratch.workspace, "
      "query_grad, size)",
      shape.lengths_argument(), shape.dropout_argument(), form.dlse >= 0 ? "log_grads" : "nullptr");
  gpu::TextLaunch launch = launch_of(shape, parts, shared, shared.rows, kStep);
  launch.why = fmt::format("{} blocks of {} queries by tiles of {} keys",
                           shape.all_heads() * ceil_div(form.queries, shared.rows), shared.rows, kStep);
  return launch;
}

gpu::TextLaunch plan_keys(const AttentionShape& shape) {
  const AttentionForm& form = shape.form;
  const SharedBytes shared(shape, 2 * kStep * 4);
  gpu::TextParts parts = parts_of(shape, "attention_grad_keys", shared);
  parts.functions += k_attention_grad_keys_cu;
  shape.add_items(&parts, form.key_heads, form.keys, shared.rows, 2 * form.queries * form.group() * shared.width * 2);
  shape.add_strides(&parts, shape.call->inputs.size() + 1, "keys");
  shape.add_strides(&parts, shape.call->inputs.size() + 2, "values");
  parts.call = fmt::format(
      "differentiate(queries, result_grads, keys, values, {}, {}, logs, (const float*)scratch.workspace, key_grad, "
      "value_grad, size)",
      shape.lengths_argument(), shape.dropout_argument());
  gpu::TextLaunch launch = launch_of(shape, parts, shared, kStep, shared.rows);
  launch.why = fmt::format("{} blocks of {} keys by tiles of {} queries",
                           shape.all_key_heads() * ceil_div(form.keys, shared.rows), shared.rows, kStep);
  return launch;
}

}  // namespace

gpu::TextPlan plan_attention_grad(const AttentionShape& shape) {
  gpu::TextPlan made;
  made.workspace_bytes = shape.all_heads() * shape.form.queries * 4;
  made.launches.push_back(plan_queries(shape));
  if (shape.is_wanted(1) || shape.is_wanted(2)) made.launches.push_back(plan_keys(shape));
  return made;
}

}  // namespace paoding::hopper
