// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/fused_kernels.h"

#include <set>
#include <utility>

#include "runtime/sites.h"
#include "schedule/gpu/fused_launches.h"

namespace paoding {

std::vector<gpu::KernelSource> FusedKernels::sources() const {
  if (schedule_ == nullptr || schedule_->kernels == nullptr) return {};
  std::set<gpu::KernelSource> texts;
  for (const FusedLaunches::Kernel& kernel : schedule_->kernels->kernels) {
    for (const auto& launch : kernel.launches) texts.insert(launch->launch().source);
  }
  return {texts.begin(), texts.end()};
}

void FusedKernels::load(const gpu::GpuDevice& device) {
  if (schedule_ == nullptr || schedule_->kernels == nullptr) return;
  for (const FusedLaunches::Kernel& kernel : schedule_->kernels->kernels) {
    std::vector<gpu::LoadedKernel>& loaded = loaded_.emplace_back();
    for (const auto& launch : kernel.launches) loaded.emplace_back(device, launch->launch(), 0);
  }
}

void FusedKernels::start(const LaunchEntry& entry, CUstream stream,
                         const std::function<KernelRun(std::size_t)>& run_of) const {
  const FusedLaunch& fused = this->fused(entry);
  const FusedLaunches::Kernel& kernel = schedule_->kernels->kernels[fused.kernel];
  const KernelRun first = run_of(entry.launch);
  for (std::size_t m = 0; m < fused.launches.size(); ++m) {
    const KernelRun run = run_of(fused.launches[m]);
    for (const auto& launch : kernel.launches) launch->place(m, run.operands, run.scratch, run.tickets);
  }
  void* stamp = first.stamp;
  for (const gpu::LoadedKernel& loaded : loaded_[fused.kernel]) {
    loaded.start(stream, nullptr, {nullptr, nullptr, first.fault, first.failed, std::exchange(stamp, nullptr)});
  }
}

profile::SiteId FusedKernels::site_of(const LaunchEntry& entry) {
  const std::size_t number = fused(entry).kernel;
  const auto [site, is_new] = sites_.try_emplace(number, 0);
  if (is_new) {
    const FusedLaunches::Kernel& kernel = schedule_->kernels->kernels[number];
    const bool is_loaded = number < loaded_.size() && !loaded_[number].empty();
    const LaunchShape shape = is_loaded ? loaded_[number].front().shape() : LaunchShape{};
    site->second = sites_of_batch(kernel.steps, {kernel.launches[0]->launch().entry, shape}).kernel;
  }
  return site->second;
}

}  // namespace paoding
