// SPDX-License-Identifier: Apache-2.0
// The entries of a schedule on a GPU: their kernels, compiled and loaded, with their operands' addresses, and the guard
// in front of a run's writes. Starting one enqueues it, in a run or while a graph is captured.
#pragma once

#include <cstddef>
#include <memory>
#include <optional>
#include <string>
#include <vector>

#include "gpu/codegen/kernel_source.h"
#include "runtime/gpu/choices.h"
#include "runtime/gpu/commit_guard.h"
#include "runtime/gpu/fused_kernels.h"
#include "runtime/gpu/kernels.h"
#include "runtime/gpu/phases.h"
#include "runtime/gpu/plan_memory.h"
#include "runtime/gpu/readback.h"
#include "runtime/gpu/results.h"
#include "runtime/gpu/trace.h"
#include "schedule/schedule.h"

namespace paoding {

class GpuEntries {
 public:
  /// Compiles in the same go `more` sources. `plan`, `schedule` and `memory` must outlive it.
  GpuEntries(const Plan& plan, const Schedule& schedule, const PlanMemory& memory, std::vector<gpu::KernelSource> more,
             const ExecutorOptions& options);

  /// Enqueues entry `k`. `node`: the conditional node that a choice is for, else 0. `stamp`: a word for a kernel that
  /// leaves its time stamp by itself, or nullptr.
  void start(std::size_t k, CUstream stream, CUgraphConditionalHandle node, void* stamp) const;
  /// Enqueues a launch of the plan by itself.
  void start_launch(std::size_t launch, CUstream stream, void* stamp = nullptr) const;
  /// The branch that a select chooses, once its index is there; nothing where it is not to choose.
  std::optional<std::size_t> taken_by(std::size_t select) const;

  CommitGuard& guard() const { return *guard_; }
  const GpuPrints& prints() const { return prints_; }
  /// Results that the run leaves in the host's memory.
  const GpuResults& results() const { return results_; }
  const KernelCost& cost() const { return kernels_.cost(); }
  /// How launches, and entries, appear in recordings.
  LaunchSites launch_sites() const { return {launches_, kernels_.names()}; }
  GpuTrace::Sites entry_sites() { return GpuTrace::sites_of(launch_sites(), schedule_, fused_); }
  /// Which launch, in errors.
  std::string who(std::size_t launch) const;

 private:
  void resolve_addresses();
  void place_guard(const ExecutorOptions& options);
  void add_phases();
  KernelRun run_of(std::size_t launch, CUstream stream, void* stamp) const;
  GpuChoices::Asked asked(std::size_t select, CUgraphConditionalHandle node) const;
  void* asked_by(std::size_t launch) const;

  const Schedule& schedule_;
  const std::vector<Launch>& launches_ = schedule_.launches;
  const PlanMemory& memory_;
  GpuKernels kernels_;
  FusedKernels fused_;
  GpuChoices choices_;
  GpuResults results_;
  GpuPrints prints_;
  GpuPhases phases_;
  std::vector<void*> pointers_;             // of all launches' operands
  std::vector<std::size_t> first_pointer_;  // per launch
  std::unique_ptr<CommitGuard> guard_;
};

}  // namespace paoding
