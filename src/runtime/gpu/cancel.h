// SPDX-License-Identifier: Apache-2.0
// Calling off work that is enqueued in a stream of a GPU. The host sets a flag in its own memory, which the device
// sees; a poll (gpu/kernels/cancellation_poll.cu), now and then in a long run, brings it to a word of the device, and
// every kernel that polls that word and finds it set returns at once. Short runs have no polls: they end by themselves.
// Loops without a length poll the flag themselves, every few turns.
#pragma once

#include <memory>

#include "gpu/driver/driver.h"
#include "gpu/driver/loaded_kernel.h"
#include "plan/step_work.h"

namespace paoding {

/// The cancellation state of the programs that share a stream.
class GpuCancel {
 public:
  GpuCancel(const gpu::GpuDevice& device, const gpu::Stream& stream) : device_(device), stream_(stream) {}
  GpuCancel(const GpuCancel&) = delete;
  GpuCancel& operator=(const GpuCancel&) = delete;

  /// Called before the first program that has a guard.
  void prepare();
  /// Called before the first program with polls: from here on a waiting thread can call work off.
  void prepare_polls();
  /// The device's word, not zero once everything is called off.
  void* word() const { return word_.pointer(); }
  void start_poll(CUstream stream) const;
  /// The host's flag, set to call off: for the kernels of loops without a length, which poll by themselves.
  void* flag() const { return flag_.bytes(); }

  /// Waits for all that was enqueued, or until `event` is done. Where the thread's CancelScope is cancelled meanwhile,
  /// the enqueued work is called off first; its guards know how far it got.
  void wait_idle();
  void wait_done(const gpu::Event& event);
  /// Called before a run is enqueued that is expected to take so long: in a CancelScope it waits until no more than a
  /// second or so is under way. Error (cancelled).
  void pace(double run_us) {
    if ((ahead_us_ += run_us) >= kLongRunUs) wait_for_segment(run_us);
  }

 private:
  void wait_for_segment(double run_us);
  void call_off();
  void set(unsigned value) const;

  double ahead_us_ = 0;  // enqueued since a segment began
  const gpu::GpuDevice& device_;
  const gpu::Stream& stream_;
  gpu::DeviceMemory word_;
  gpu::PinnedMemory flag_;
  gpu::TextLaunch text_;
  std::unique_ptr<gpu::LoadedKernel> poll_;
  gpu::Event idle_;
  gpu::Event paced_[2];  // one after the other
};

}  // namespace paoding
