// SPDX-License-Identifier: Apache-2.0
// A run launch by launch, each waited for: for those who look at it from inside.
#pragma once

#include <cstdint>
#include <functional>
#include <string>

#include "runtime/gpu/entries.h"
#include "runtime/gpu/host.h"

namespace paoding {

class StepwiseRun {
 public:
  /// `name`: the program's. All but `options` must outlive it.
  StepwiseRun(const Schedule& schedule, const PlanMemory& memory, const GpuEntries& entries, GpuHost& host,
              const std::string& name, const ExecutorOptions& options);
  StepwiseRun(const StepwiseRun&) = delete;
  StepwiseRun& operator=(const StepwiseRun&) = delete;

  /// Runs to the end. An error in the commit, where only somebody who looks on may throw, leaves parameters unchanged.
  void run(std::uint32_t run);

 private:
  void run_step(std::size_t launch, std::uint32_t run);
  void start_seen(std::size_t launch, std::uint32_t run) const;
  void show(const Launch& launch) const;

  const Schedule& schedule_;
  const std::vector<Launch>& launches_ = schedule_.launches;
  const PlanMemory& memory_;
  const GpuEntries& entries_;
  GpuHost& host_;
  const std::string& name_;
  const std::function<void(const StepSeen&)> on_step_;
  LaunchWatcher* const watcher_;
  const LaunchSites sites_;
};

}  // namespace paoding
