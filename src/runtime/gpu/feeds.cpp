// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/feeds.h"

#include <cstring>

#include "runtime/gpu/copy_span.h"

namespace paoding {

std::int64_t GpuFeeds::more_bytes(std::int64_t bytes) {
  return run_switches().double_buffered_feeds.value_or(bytes > kMostInline) ? bytes : 0;
}

void GpuFeeds::add(int slot, CUdeviceptr at, std::int64_t bytes) {
  Feed& feed = feeds_[slot];
  feed.at = at;
  if (more_bytes(bytes) == 0) return;
  if (aside_.get() == nullptr) aside_ = gpu::Stream(device_);
  feed.beside = gpu::DeviceMemory(device_, static_cast<std::size_t>(more_bytes(bytes)), profile::HeldFor::inputs);
  feed.arrived = gpu::Event(device_);
  feed.taken = gpu::Event(device_);
}

// The tensor in pinned memory, once the copies from there before have ended.
const void* GpuFeeds::staged(Staging& staging, const Tensor& tensor) {
  const auto bytes = static_cast<std::size_t>(tensor.size_bytes());
  if (staging.memory.size_bytes() == 0) {
    staging = {gpu::PinnedMemory(device_, bytes), gpu::Event(device_)};
  } else {
    staging.copied.wait_done();
  }
  std::memcpy(staging.memory.bytes(), tensor.bytes(), bytes);
  return staging.memory.bytes();
}

void GpuFeeds::write(int slot, const Tensor& tensor) {
  const auto bytes = static_cast<std::size_t>(tensor.size_bytes());
  if (bytes == 0 || packed_.write(slot, tensor)) return;
  Feed& feed = feeds_.at(slot);
  const bool is_aside = feed.beside.size_bytes() != 0, is_pinned = this->is_pinned(tensor.size_bytes());
  const gpu::Stream& stream = is_aside ? aside_ : stream_;
  Staging& staging = feed.staging[feed.next];
  feed.next ^= 1;
  const void* source = is_pinned ? staged(staging, tensor) : tensor.bytes();
  if (is_aside) aside_.wait_for(feed.taken);
  {
    std::optional<CopySpan> seen;
    is_pinned ? seen.emplace(profile::Copy::host_to_device, device_, stream.get())
              : seen.emplace(profile::Copy::host_to_device, device_);
    PD_CUDA(gpu::required_driver().cuMemcpyHtoDAsync(is_aside ? feed.beside.address() : feed.at, source, bytes,
                                                     stream.get()));
    if (!is_pinned) stream.wait_idle();  // the caller's memory may be pinned, and is read only until here
  }
  if (is_pinned) staging.copied.record(stream.get());
  if (is_aside) {
    feed.arrived.record(aside_.get());
    feed.is_new = has_new_ = true;
  }
}

void GpuFeeds::write(int slot, const DeviceTensor& tensor, CUstream stream) {
  let_go();
  Feed& feed = feeds_.at(slot);
  const auto bytes = static_cast<std::size_t>(tensor.size_bytes());
  if (bytes == 0) return;
  tensor.state().order_before(stream_.get());  // and is held until it was read
  {
    const CopySpan seen(profile::Copy::same_device, device_, stream_.get());
    PD_CUDA(gpu::required_driver().cuMemcpyDtoDAsync(feed.at, reinterpret_cast<CUdeviceptr>(tensor.address()), bytes,
                                                     stream_.get()));
  }
  feed.is_new = false;  // the value in `beside` is older
  packed_.forget(slot);
  gpu::Event read;
  if (spare_.empty()) {
    read = gpu::Event(device_);
  } else {
    read = std::move(spare_.back());
    spare_.pop_back();
  }
  read.record(stream_.get());
  if (stream != stream_.get()) PD_CUDA(gpu::required_driver().cuStreamWaitEvent(stream, read.get(), 0));
  held_.push_back({std::move(read), tensor.shared_state()});
}

void GpuFeeds::let_go() {
  while (!held_.empty() && held_.front().read.is_done()) {
    spare_.push_back(std::move(held_.front().read));
    held_.pop_front();
  }
}

void GpuFeeds::move_new() {
  has_new_ = false;
  for (auto& [slot, feed] : feeds_) {
    if (!feed.is_new) continue;
    feed.is_new = false;
    stream_.wait_for(feed.arrived);
    const CopySpan seen(profile::Copy::same_device, device_, stream_.get());
    PD_CUDA(gpu::required_driver().cuMemcpyDtoDAsync(feed.at, feed.beside.address(), feed.beside.size_bytes(),
                                                     stream_.get()));
    feed.taken.record(stream_.get());
  }
}

}  // namespace paoding
