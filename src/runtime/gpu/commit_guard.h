// SPDX-License-Identifier: Apache-2.0
// Runs that fail on a GPU, where a launch cannot throw: a kernel's fault waits in its fault words, the guard in front
// of the run's writes (gpu/kernels/commit_guard.cu) closes, and the host finds that out when it waits.
#pragma once

#include <cstdint>
#include <exception>
#include <functional>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/loaded_kernel.h"
#include "runtime/executor.h"
#include "runtime/gpu/cancel.h"
#include "schedule/guards.h"

namespace paoding {

class CommitGuard;

/// The word of a store that says that a run has failed, and every program that polls it.
class GpuFailure : public SharedFailure {
 public:
  explicit GpuFailure(const gpu::GpuDevice& device);

  /// After one of the guards has closed: waits for all that was enqueued after it, which does nothing, notes for each
  /// program which of its runs that were, and opens the guards again.
  void recover();

 private:
  friend class CommitGuard;
  const gpu::GpuDevice& device_;
  std::mutex mutex_;  // who enqueues a run, and who recovers from a failure
  gpu::DeviceMemory word_;
  std::vector<CommitGuard*> guards_;
};

class CommitGuard {
 public:
  /// `kernels`: of each launch the kernel where it may fault. `on_close` is called when a run of this program has
  /// failed and everything has ended. `stream` and `cancel` must outlive it.
  CommitGuard(const gpu::GpuDevice& device, const gpu::Stream& stream, GpuCancel& cancel, GuardPlan plan,
              std::vector<const PreparedKernel*> kernels, std::shared_ptr<GpuFailure> failure,
              std::function<void()> on_close);
  ~CommitGuard();
  CommitGuard(const CommitGuard&) = delete;
  CommitGuard& operator=(const CommitGuard&) = delete;

  // ---- of launches, while they are started ----

  /// The values of KernelRun::fault and KernelRun::failed.
  void* fault_of(std::size_t launch) const;
  void* called_off(std::size_t launch) const;
  /// The fault words of launches in front of `end`, the last few thousand of them, and how many they are.
  std::pair<void*, std::int64_t> faults_before(std::size_t end) const;
  /// Whether one of them holds a fault, when the launches are done.
  bool has_fault_before(std::size_t end) const;
  /// The guard itself.
  void start(CUstream stream) const;
  /// Throws the launch's fault, when it is done: for runs step by step, which no guard stands in.
  void check_launch(std::size_t launch) const;

  // ---- of runs ----

  /// Held while a part of a run is enqueued, where a later one may have to do nothing.
  std::unique_lock<std::mutex> lock() const {
    return has_guard_ ? std::unique_lock(failure_->mutex_) : std::unique_lock<std::mutex>();
  }
  /// Called before a run is enqueued: it has the next number.
  void begin_run() { ++runs_; }
  /// Called after a run that was not enqueued to its end.
  void leave_run() const;
  std::uint64_t last_run() const { return runs_; }
  /// When that run is done: throws its error where it failed, or did nothing because one before it failed. With `again`
  /// false it throws only errors that have not been thrown yet.
  void check(std::uint64_t run, bool again = true);
  bool can_fail() const { return has_guard_; }

 private:
  friend class GpuFailure;
  bool is_closed() const;
  std::exception_ptr own_error() const;
  struct Told {
    std::exception_ptr error;
    bool is_told = false;
  };
  void reopen(const std::shared_ptr<Told>& error);
  void clear() const;

  std::uint64_t runs_ = 0;
  const bool has_guard_;
  const gpu::GpuDevice& device_;
  const gpu::Stream& stream_;
  GpuCancel& cancel_;
  const GuardPlan plan_;
  const std::vector<const PreparedKernel*> kernels_;
  const std::shared_ptr<GpuFailure> failure_;
  const std::function<void()> on_close_;
  std::vector<std::int64_t> first_;  // per launch, of its fault words
  std::int64_t fault_words_ = 0;
  gpu::DeviceMemory words_;  // see commit_guard.cu
  gpu::PinnedMemory report_;
  gpu::TextLaunch text_;
  std::unique_ptr<gpu::LoadedKernel> kernel_;
  struct Failed {
    std::uint64_t first, last;
    std::shared_ptr<Told> error;
  };
  std::vector<Failed> failed_;
};

}  // namespace paoding
