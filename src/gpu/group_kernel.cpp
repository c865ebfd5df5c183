// SPDX-License-Identifier: Apache-2.0
#include "gpu/group_kernel.h"

#include <map>
#include <mutex>

#include "base/check.h"
#include "gpu/kernel_cache.h"
#include "gpu/nvrtc.h"

namespace paoding::gpu {

ChipFacts chip_facts(const GpuInfo& info) {
  ChipFacts chip;
  chip.sm_count = info.sm_count;
  return chip;
}

GroupKernelPlan plan_group_step(const Step& step, const ChipFacts& chip) {
  std::vector<int> alignment;
  for (const Operand& operand : step.operands) alignment.push_back(static_cast<int>(alignment_of(operand)));
  return plan_group(canonical(step.group), alignment, chip);
}

CUfunction load_kernel(const GpuDevice& device, const std::string& source, const std::string& entry) {
  static std::mutex mutex;
  static std::map<std::pair<int, std::string>, Module> modules;
  const std::string arch = arch_name(device.info().major, device.info().minor);
  const auto cubin = KernelCache::shared().cubin(source, arch, entry + ".cu");
  const std::lock_guard lock(mutex);
  const auto key = std::pair(device.index(), source);
  auto it = modules.find(key);
  if (it == modules.end()) it = modules.emplace(key, Module(device, *cubin, entry)).first;
  return it->second.function(entry);
}

GroupKernel::GroupKernel(const GpuDevice& device, GroupKernelPlan plan, std::size_t operands)
    : plan_(std::move(plan)), operands_(operands) {
  if (plan_.grid[0] != 0) function_ = load_kernel(device, plan_.source, plan_.entry);
}

void GroupKernel::launch(CUstream stream, void* const* operands, void* workspace, void* tickets) const {
  if (plan_.grid[0] == 0) return;
  std::vector<void*> arguments;  // made when a run is captured, not when it is launched
  arguments.reserve(operands_ + 3);
  for (std::size_t i = 0; i < operands_; ++i) arguments.push_back(const_cast<void**>(&operands[i]));
  arguments.push_back(&workspace);
  arguments.push_back(&tickets);
  arguments.push_back(const_cast<std::uint64_t*>(plan_.sizes.data()));
  PD_CUDA(required_driver().cuLaunchKernel(function_, plan_.grid[0], plan_.grid[1], plan_.grid[2], plan_.block, 1, 1,
                                           plan_.shared_bytes, stream, arguments.data(), nullptr));
}

}  // namespace paoding::gpu
