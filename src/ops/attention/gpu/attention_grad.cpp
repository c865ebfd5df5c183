// SPDX-License-Identifier: Apache-2.0
// The launches of attention's gradient on Hopper, and the kernels' entries in the tables of both ops. A CTA that owns
// keys would have to share its part of the gradient for queries with others, in an order of its own for the same bits in
// every run; here queries have a launch of their own that makes the scores again: seven products in place of five, and
// no exchange.
#include <algorithm>

#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/tile_products.h"
#include "ops/all_kernels.h"
#include "ops/attention/gpu/attention_shape.h"

namespace paoding::hopper {
namespace {

constexpr std::int64_t kOwned = 128, kStep = 64, kMostStages = 4;

// A CTA's shared memory: rows that it owns, in one place or in two, and stages of those that it goes over, each with so
// many bytes beside its TMA tiles.
struct SharedBytes {
  std::int64_t width, beside, slots = 2, stages = 0;

  SharedBytes(const AttentionShape& shape, std::int64_t beside_tiles)
      : width(shape.padded_width()), beside(beside_tiles) {
    const std::int64_t most = shape.call->target->shared_bytes - kAlign - slots * (owned() + kBarrierBytes);
    stages = std::min(kMostStages, most / stage());
  }
  std::int64_t owned() const { return 2 * kOwned * width * 2; }
  std::int64_t stage() const { return 2 * kStep * width * 2 + beside + kBarrierBytes; }
  std::int64_t all() const { return kAlign + slots * (owned() + kBarrierBytes) + stages * stage(); }
};

gpu::TextParts parts_of(const AttentionShape& shape, const char* name, const SharedBytes& shared, bool is_ahead) {
  const AttentionForm& form = shape.form;
  gpu::TextParts parts = shape.parts(name, kThreads, shared.stages);
  const auto width = static_cast<int>(shared.width);
  parts.constants += fmt::format(
      "constexpr int kOwnedSlots = {}, kRowFloats = {};\nconstexpr bool kIsAhead = {}, kHasLogGrads = {};\n"
      "constexpr bool kHasQueryGrad = {}, kHasKeyGrad = {}, kHasValueGrad = {};\n",
      shared.slots, shared.beside / 4, is_ahead, form.dlse >= 0, shape.is_wanted(0), shape.is_wanted(1),
      shape.is_wanted(2));
  parts.functions += gpu::product_text({"add_scores", form.dtype, kStep, kOwned, kStep, false}) +
                     gpu::product_text({"add_grads", form.dtype, width, 0, kStep, true}) + gpu::sums_text(kStep / 2) +
                     (width == kStep ? "" : gpu::sums_text(width / 2)) + k_attention_tiles_cu + k_attention_grad_cu;
  for (const char* operand : {"q", "k", "v", "result", "result_grad"}) {
    parts.operands.push_back(gpu::input_parameter(form.dtype, operand));
  }
  parts.operands.push_back(gpu::input_parameter(DType::f32, "logs"));
  if (form.dlse >= 0) parts.operands.push_back(gpu::input_parameter(DType::f32, "log_grads"));
  if (shape.has_lengths()) {
    parts.operands.push_back(
        gpu::input_parameter(shape.layout(static_cast<std::size_t>(form.lengths)).type.dtype, "lengths"));
  }
  for (const char* operand : {"query_grad", "key_grad", "value_grad"}) {
    parts.operands.push_back(gpu::output_parameter(form.dtype, operand));
  }
  shape.add_lengths(&parts);
  parts.maps = {"queries", "result_grads", "keys", "values"};
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

const char* lengths_of(const AttentionShape& shape) { return shape.has_lengths() ? "lengths" : "(const int*)nullptr"; }

gpu::TextLaunch plan_queries(const AttentionShape& shape) {
  const AttentionForm& form = shape.form;
  const SharedBytes shared(shape, 0);
  gpu::TextParts parts = parts_of(shape, "attention_grad_queries", shared, true);
  parts.functions += k_attention_grad_queries_cu;
  shape.add_items(&parts, form.heads, form.queries, kOwned, 2 * form.keys * shared.width * 2 / form.group());
  shape.add_strides(&parts, kResult, "result"), shape.add_strides(&parts, kDResult, "grad");
  shape.add_strides(&parts, shape.call->inputs.size(), "out");
  parts.call = fmt::format(
      "differentiate(queries, result_grads, keys, values, {}, result, result_grad, logs, {}, (float*)scratch.workspace, "
      "query_grad, size)",
      lengths_of(shape), form.dlse >= 0 ? "log_grads" : "nullptr");
  gpu::TextLaunch launch = launch_of(shape, parts, shared, kOwned, kStep);
  launch.why = fmt::format("{} blocks of {} queries by tiles of {} keys",
                           shape.all_heads() * ceil_div(form.queries, kOwned), kOwned, kStep);
  return launch;
}

gpu::TextLaunch plan_keys(const AttentionShape& shape) {
  const AttentionForm& form = shape.form;
  const SharedBytes shared(shape, 2 * kStep * 4);
  // Sums of 128 columns for keys and values leave no registers for the scores of the next TMA tile.
  const bool is_ahead = shared.width == 64;
  gpu::TextParts parts = parts_of(shape, "attention_grad_keys", shared, is_ahead);
  parts.functions += k_attention_grad_keys_cu;
  shape.add_items(&parts, form.key_heads, form.keys, kOwned, 2 * form.queries * form.group() * shared.width * 2);
  shape.add_strides(&parts, shape.call->inputs.size() + 1, "keys");
  shape.add_strides(&parts, shape.call->inputs.size() + 2, "values");
  parts.call = fmt::format(
      "differentiate(queries, result_grads, keys, values, {}, logs, (const float*)scratch.workspace, key_grad, "
      "value_grad, size)",
      lengths_of(shape));
  gpu::TextLaunch launch = launch_of(shape, parts, shared, kStep, kOwned);
  launch.why = fmt::format("{} blocks of {} keys by tiles of {} queries",
                           shape.all_key_heads() * ceil_div(form.keys, kOwned), kOwned, kStep);
  return launch;
}

}  // namespace

gpu::TextPlan plan_attention_grad(const KernelCall& call) {
  const AttentionShape shape(call, true);
  gpu::TextPlan made;
  made.workspace_bytes = shape.all_heads() * shape.form.queries * 4;
  made.launches.push_back(plan_queries(shape));
  if (shape.is_wanted(1) || shape.is_wanted(2)) made.launches.push_back(plan_keys(shape));
  return made;
}

}  // namespace paoding::hopper

namespace paoding {

void register_attention_gpu() {
  gpu::register_text_kernel(
      "attention", "wgmma", [](const KernelCall& call) { return hopper::refusal({call, false}); },
      hopper::plan_attention);
  gpu::register_text_kernel(
      "attention_grad", "wgmma", [](const KernelCall& call) { return hopper::refusal({call, true}); },
      hopper::plan_attention_grad);
}

}  // namespace paoding
