// SPDX-License-Identifier: Apache-2.0
// The kernels of a schedule's fused launches, loaded.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <vector>

#include "gpu/driver/loaded_kernel.h"
#include "ops/kernel.h"
#include "profile/recorder.h"
#include "schedule/schedule.h"

namespace paoding {

class FusedKernels {
 public:
  FusedKernels() = default;
  /// `schedule` must outlive it. Its kernels' sizes are filled in at every start: one start at a time.
  explicit FusedKernels(const Schedule& schedule) : schedule_(&schedule) {}

  /// The sources, once each.
  std::vector<gpu::KernelSource> sources() const;
  void load(const gpu::GpuDevice& device);

  /// Starts an entry of Kind::fused. `run_of` gives the run that a launch alone would get.
  void start(const LaunchEntry& entry, CUstream stream, const std::function<KernelRun(std::size_t)>& run_of) const;
  /// The site of an entry's kernel, for recordings.
  profile::SiteId site_of(const LaunchEntry& entry);

 private:
  const FusedLaunch& fused(const LaunchEntry& entry) const {
    return schedule_->fused[static_cast<std::size_t>(entry.fused)];
  }

  const Schedule* schedule_ = nullptr;
  std::vector<std::vector<gpu::LoadedKernel>> loaded_;  // per kernel of the schedule
  std::map<std::size_t, profile::SiteId> sites_;        // of those that were asked for
};

}  // namespace paoding
