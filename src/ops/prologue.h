// SPDX-License-Identifier: Apache-2.0
// Kernels with a prologue: a group whose one result nobody else reads is computed from its operands, which the kernel
// reads in its place, and neither launched nor written. The planner asks (plan/epilogues.h).
#pragma once

#include "ops/epilogue.h"

namespace paoding {

/// A group that makes input 0 of a kernel op of one input, as an Epilogue whose result is an image that lies as that
/// input does. Operands of the step: the group's loads, the call's outputs.
struct PrologueKernel {
  std::string name;  // of the implementation in the op's table
  /// Why it cannot take the group in, or had better not.
  std::function<std::string(const KernelCall&, const Epilogue&)> refusal;
  std::function<std::shared_ptr<const gpu::TextPlan>(const KernelCall&, const Epilogue&)> plan_text;
};

/// At most one per op.
void register_prologue_kernel(const std::string& op, PrologueKernel kernel);
/// nullptr where no kernel of the op takes a prologue.
const PrologueKernel* prologue_kernel(const std::string& op);

}  // namespace paoding
