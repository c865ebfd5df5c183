// SPDX-License-Identifier: Apache-2.0
// A Group ready to launch on one GPU.
#pragma once

#include <memory>
#include <vector>

#include "gpu/driver.h"
#include "gpu/group_text.h"
#include "plan/plan.h"

namespace paoding::gpu {

/// What the rules of group_schedule.h need to know of this GPU.
ChipFacts chip_facts(const GpuInfo& info);

/// The kernel of a planned group step.
GroupKernelPlan plan_group_step(const Step& step, const ChipFacts& chip);

/// Loaded kernels by their text, one set per GPU, for all programs of the process.
CUfunction load_kernel(const GpuDevice& device, const std::string& source, const std::string& entry);

class GroupKernel {
 public:
  GroupKernel(const GpuDevice& device, GroupKernelPlan plan, std::size_t operands);

  const GroupKernelPlan& plan() const { return plan_; }
  /// Starts the group: a pointer per operand; `workspace` and `tickets` as the plan asks.
  void launch(CUstream stream, void* const* operands, void* workspace, void* tickets) const;

 private:
  GroupKernelPlan plan_;
  CUfunction function_ = nullptr;
  std::size_t operands_ = 0;
};

}  // namespace paoding::gpu
