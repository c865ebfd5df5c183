// SPDX-License-Identifier: Apache-2.0
// Kernels with an epilogue: a group that goes over the kernel's result as it lies (a bias, a residual, an activation, a
// mask, sums per channel) is computed from the kernel's registers or shared memory, and neither launched nor given the
// result through memory. The planner asks (plan/epilogues.h).
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "ops/kernel.h"

namespace paoding {

struct Group;

/// A group after a kernel op of one result. Operands of the step: the call's inputs, the group's loads but for the
/// first, the result where it is kept, the group's outputs.
struct Epilogue {
  const Group& group;                    // load 0 is the kernel's result
  bool is_kept = false;                  // others read the result too, so it is written as well
  std::vector<std::int64_t> alignments;  // of the group's loads but for the first, and of its outputs
};

struct EpilogueKernel {
  std::string name;  // of the implementation in the op's table
  /// Why it cannot take the epilogue, or had better not: `before` runs the call otherwise.
  std::function<std::string(const KernelCall&, const Epilogue&, const KernelImplementation& before)> refusal;
  std::function<std::shared_ptr<const gpu::TextPlan>(const KernelCall&, const Epilogue&)> plan_text;
  /// The kernel's result is made of much less: each group that takes it in makes it anew, and it is never kept.
  bool is_rematerialized = false;
};

/// At most one per op.
void register_epilogue_kernel(const std::string& op, EpilogueKernel kernel);
/// nullptr where no kernel of the op takes an epilogue.
const EpilogueKernel* epilogue_kernel(const std::string& op);

}  // namespace paoding
