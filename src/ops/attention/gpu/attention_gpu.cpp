// SPDX-License-Identifier: Apache-2.0
// The kernels of attention and its gradient in the tables of the ops for GPUs.
#include "ops/all_kernels.h"
#include "ops/attention/gpu/attention_shape.h"

namespace paoding {
namespace hopper {
namespace {

gpu::TextPlan plan_forward(const KernelCall& call) {
  const AttentionShape shape(call, false);
  gpu::TextPlan made;
  made.launches.push_back(is_short(shape) ? plan_short_attention(shape) : plan_attention(shape));
  return made;
}

gpu::TextPlan plan_backward(const KernelCall& call) {
  const AttentionShape shape(call, true);
  if (!is_short(shape)) return plan_attention_grad(shape);
  gpu::TextPlan made;
  made.launches.push_back(plan_short_attention_grad(shape));
  return made;
}

}  // namespace
}  // namespace hopper

void register_attention_gpu() {
  gpu::register_text_kernel(
      "attention", "wgmma",
      [](const KernelCall& call) {
        return hopper::refusal({call, false});
      },
      hopper::plan_forward);
  gpu::register_text_kernel(
      "attention_grad", "wgmma",
      [](const KernelCall& call) {
        return hopper::refusal({call, true});
      },
      hopper::plan_backward);
}

}  // namespace paoding
