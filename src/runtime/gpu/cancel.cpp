// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/cancel.h"

#include <atomic>
#include <chrono>
#include <thread>

#include "base/cancel_poll.h"
#include "gpu/driver/write_memory.h"
#include "gpu/kernels/commit_guard.h"
#include "paoding/interlude.h"

namespace paoding {

void GpuCancel::prepare() {
  if (word_.size_bytes() != 0) return;
  word_ = gpu::DeviceMemory(device_, sizeof(unsigned));
  const unsigned none = 0;
  gpu::write_memory(word_.address(), &none, sizeof(none));
}

void GpuCancel::prepare_polls() {
  if (poll_ != nullptr) return;
  prepare();
  flag_ = gpu::PinnedMemory(device_, sizeof(unsigned));
  set(0);
  idle_ = gpu::Event(device_);
  text_ = gpu::plan_cancellation_poll();
  poll_ = std::make_unique<gpu::LoadedKernel>(device_, text_, 2);
}

void GpuCancel::set(unsigned value) const {
  std::atomic_ref(*reinterpret_cast<unsigned*>(flag_.bytes())).store(value, std::memory_order_release);
}

void GpuCancel::start_poll(CUstream stream) const {
  void* operands[] = {flag_.bytes(), word_.pointer()};
  poll_->start(stream, operands, {});
}

void GpuCancel::wait_idle() {
  if (poll_ == nullptr) return stream_.wait_idle();
  idle_.record(stream_.get());
  wait_done(idle_);
}

void GpuCancel::wait_done(const gpu::Event& event) {
  const CancelPoll poll;
  if (poll_ == nullptr || !poll.is_watching()) return event.wait_done();
  while (!event.is_done()) {
    Interlude::poll();
    if (poll.is_cancelled()) return call_off();
    std::this_thread::sleep_for(std::chrono::microseconds(100));
  }
}

// A run that has come by its guard goes on to its end.
void GpuCancel::call_off() {
  set(1);
  stream_.wait_idle();
  set(0);
  const unsigned none = 0;
  gpu::write_memory(word_.address(), &none, sizeof(none));
}

// Waits for the segment before the last one, so that the device always has one to go on with.
void GpuCancel::wait_for_segment(double run_us) {
  ahead_us_ = run_us;
  const CancelPoll poll;
  if (!poll.is_watching()) return;
  if (paced_[0].get() == nullptr) {
    for (gpu::Event& event : paced_) event = gpu::Event(device_);
  }
  wait_done(paced_[0]);
  poll();
  std::swap(paced_[0], paced_[1]);
  paced_[1].record(stream_.get());
}

}  // namespace paoding
