// SPDX-License-Identifier: Apache-2.0
// Kernels that take in what stands in front of them: a group whose one result nobody else reads is computed from what
// the kernel reads in its place, and neither launched nor written. The planner asks (plan/ends.h).
#pragma once

#include "ops/kernel_end.h"

namespace paoding {

/// A group that makes input 0 of a kernel op of one input, as a KernelEnd whose result is an image that lies as that
/// input does. Operands of the step: the group's loads, the call's outputs.
struct StartedKernel {
  std::string name;  // of the implementation in the op's table
  /// Why it cannot take the group in, or had better not.
  std::function<std::string(const KernelCall&, const KernelEnd&)> refusal;
  std::function<std::shared_ptr<const gpu::TextPlan>(const KernelCall&, const KernelEnd&)> plan_text;
};

/// At most one per op.
void register_started_kernel(const std::string& op, StartedKernel kernel);
/// nullptr where no kernel of the op takes groups in.
const StartedKernel* started_kernel(const std::string& op);

}  // namespace paoding
