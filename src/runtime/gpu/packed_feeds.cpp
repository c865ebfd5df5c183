// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/packed_feeds.h"

#include <algorithm>
#include <cstring>

#include "base/slot_alignment.h"
#include "runtime/gpu/copy_span.h"

namespace paoding {

PackedFeeds::PackedFeeds(const gpu::GpuDevice& device, const Plan& plan) : device_(device) {
  for (const auto& [name, slot] : plan.inputs) {
    const std::int64_t bytes = plan.slots[static_cast<std::size_t>(slot)].bytes;
    if (bytes > 0 && bytes <= kMost) feeds_.push_back({slot, 0, bytes});
  }
  std::ranges::sort(feeds_, {}, &Feed::slot);
  std::int64_t end = 0;
  for (Feed& feed : feeds_) {
    feed.first = end, feed.end += end;
    end += slot_bytes(feed.end - feed.first);
  }
  image_.resize(static_cast<std::size_t>(end));
  if (end > 0) memory_ = gpu::DeviceMemory(device, image_.size(), profile::HeldFor::inputs);
}

std::size_t PackedFeeds::index_of(int slot) const {
  const auto found = std::ranges::lower_bound(feeds_, slot, {}, &Feed::slot);
  const bool is_there = found != feeds_.end() && found->slot == slot;
  return is_there ? static_cast<std::size_t>(found - feeds_.begin()) : feeds_.size();
}

CUdeviceptr PackedFeeds::address_of(int slot) const {
  const std::size_t i = index_of(slot);
  return i == feeds_.size() ? 0 : memory_.address() + static_cast<CUdeviceptr>(feeds_[i].first);
}

bool PackedFeeds::write(int slot, const Tensor& tensor) {
  const std::size_t i = index_of(slot);
  if (i == feeds_.size()) return false;
  std::memcpy(image_.data() + feeds_[i].first, tensor.bytes(), static_cast<std::size_t>(tensor.size_bytes()));
  feeds_[i].is_new = is_any_new_ = true;
  return true;
}

void PackedFeeds::forget(int slot) {
  if (const std::size_t i = index_of(slot); i < feeds_.size()) feeds_[i].is_new = false;
}

void PackedFeeds::send_new(CUstream stream) {
  for (std::size_t i = 0; i < feeds_.size();) {
    const std::int64_t first = feeds_[i].first;
    std::int64_t end = first;
    for (; i < feeds_.size() && feeds_[i].is_new && feeds_[i].end - first <= kMost; ++i) {
      end = feeds_[i].end;
      feeds_[i].is_new = false;
    }
    if (end == first) {
      ++i;
      continue;
    }
    const CopySpan seen(profile::Copy::host_to_device, device_, stream);
    PD_CUDA(gpu::required_driver().cuMemcpyHtoDAsync(memory_.address() + static_cast<CUdeviceptr>(first),
                                                     image_.data() + first, static_cast<std::size_t>(end - first),
                                                     stream));
  }
  is_any_new_ = false;
}

}  // namespace paoding
