// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/device_results.h"

#include <algorithm>
#include <chrono>
#include <exception>
#include <thread>

#include "base/cancel_poll.h"
#include "paoding/interlude.h"
#include "runtime/gpu/copy_span.h"

namespace paoding {
namespace {

constexpr std::size_t kMostFree = 64;  // blocks

}  // namespace

class DeviceResults::Value : public DeviceTensor::State {
 public:
  Value(DeviceResults& owner, Block block, const Type& its_type)
      : State(its_type, Device::cuda(owner.device_.index())),
        owner_(&owner),
        pool_(owner.pool_),
        device_(owner.device_),
        stream_(owner.stream_.get()),
        run_(owner.guard_.last_run()),
        can_fail_(owner.guard_.can_fail()),
        block_(std::move(block)) {
    address = block_.memory.pointer();
  }

  // The memory goes into the pool, where its next use comes after its readers.
  ~Value() override {
    try {
      leave();
    } catch (...) {  // the device is gone, and the memory with it
    }
  }

  void order_before(void* stream) override {
    if (can_fail_) wait();
    if (stream == stream_) return;
    device_.make_current();
    PD_CUDA(gpu::required_driver().cuStreamWaitEvent(static_cast<CUstream>(stream), block_.made.get(), 0));
  }

  void note_reader(void* stream) override {
    if (stream == stream_) return;
    const std::lock_guard lock(pool_->mutex);
    const bool is_legacy = stream == nullptr || stream == CU_STREAM_LEGACY;
    block_.was_read |= is_legacy;
    block_.is_left_last |= !is_legacy;  // the handle may be of a stream that is gone by then
  }

  void wait() override {
    device_.make_current();
    const CancelPoll poll;
    for (int polls = 0; poll.is_watching() && !block_.made.is_done(); ++polls) {
      Interlude::poll();
      poll();
      if (polls > 100) std::this_thread::sleep_for(std::chrono::microseconds(50));
    }
    const std::lock_guard lock(pool_->mutex);
    finish();
    if (error_) std::rethrow_exception(error_);
  }

  // After it neither the run nor the program is needed. Under the pool's mutex.
  void finish() {
    if (owner_ == nullptr) return;
    try {
      device_.make_current();
      block_.made.wait_done();
      owner_->guard_.check(run_);
    } catch (...) {
      error_ = std::current_exception();
    }
    std::erase(pool_->under_way, this);
    owner_ = nullptr;
  }

 private:
  void leave() {
    const std::lock_guard lock(pool_->mutex);
    if (owner_ != nullptr) std::erase(pool_->under_way, this);
    if (pool_->free.size() >= kMostFree) pool_->free.erase(pool_->free.begin());
    if (block_.was_read && !block_.is_left_last) {
      device_.make_current();
      if (block_.left.get() == nullptr) block_.left = gpu::Event(device_);
      block_.left.record(CU_STREAM_LEGACY);
    }
    pool_->free.push_back(std::move(block_));
  }

  DeviceResults* owner_;  // nullptr once it is finished
  const std::shared_ptr<Pool> pool_;
  const gpu::GpuDevice& device_;
  const CUstream stream_;  // the owner's
  const std::uint64_t run_;
  const bool can_fail_;
  Block block_;
  std::exception_ptr error_;
};

DeviceResults::~DeviceResults() {
  const std::lock_guard lock(pool_->mutex);
  while (!pool_->under_way.empty()) pool_->under_way.back()->finish();
}

// The smallest that is large enough and not much larger.
DeviceResults::Block DeviceResults::take(std::size_t bytes) {
  constexpr std::size_t kSmall = 64 << 10;
  Block block;
  {
    const std::lock_guard lock(pool_->mutex);
    auto best = pool_->free.end();
    for (auto it = pool_->free.begin(); it != pool_->free.end(); ++it) {
      const std::size_t size = it->memory.size_bytes();
      if (size < bytes || size > 2 * bytes + kSmall) continue;
      if (best == pool_->free.end() || size < best->memory.size_bytes()) best = it;
    }
    if (best != pool_->free.end()) {
      block = std::move(*best);
      pool_->free.erase(best);
    }
  }
  if (block.made.get() == nullptr) {
    block.memory = gpu::DeviceMemory(device_, bytes, profile::HeldFor::other);
    block.made = gpu::Event(device_);
  } else if (block.is_left_last) {
    PD_CUDA(gpu::required_driver().cuCtxSynchronize());
  } else if (block.was_read) {
    stream_.wait_for(block.left);
  }
  block.was_read = block.is_left_last = false;
  return block;
}

DeviceTensor DeviceResults::start(CUdeviceptr at, const Type& type) {
  const auto bytes = static_cast<std::size_t>(size_bytes(type));
  Block block = take(std::max<std::size_t>(bytes, 1));
  if (bytes != 0) {
    const CopySpan seen(profile::Copy::same_device, device_, stream_.get());
    PD_CUDA(gpu::required_driver().cuMemcpyDtoDAsync(block.memory.address(), at, bytes, stream_.get()));
  }
  block.made.record(stream_.get());
  const auto value = std::make_shared<Value>(*this, std::move(block), type);
  const std::lock_guard lock(pool_->mutex);
  pool_->under_way.push_back(value.get());
  return DeviceTensor(value);
}

}  // namespace paoding
