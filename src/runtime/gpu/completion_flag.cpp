// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/completion_flag.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>

#include "base/pause.h"
#include "gpu/driver/write_memory.h"
#include "gpu/kernels/to_host_text.h"

namespace paoding {
namespace {

constexpr int kLooks = 40'000;  // about a millisecond: who asks the driver then is signalled 2 us later

// The driver takes more than a millisecond to lock pages, of which a program whose end is signalled needs a few: those
// of programs that are no more are taken again.
class Shelf {
 public:
  gpu::PinnedMemory take(const gpu::GpuDevice& device, std::size_t bytes) {
    const std::size_t rounded = std::bit_ceil(std::max<std::size_t>(bytes, 4096));
    const std::lock_guard lock(mutex_);
    std::vector<gpu::PinnedMemory>& same = free_[{device.index(), rounded}];
    if (same.empty()) return {device, rounded};
    gpu::PinnedMemory taken = std::move(same.back());
    same.pop_back();
    return taken;
  }
  // Takes memory that nobody writes any more.
  void give(int device, gpu::PinnedMemory memory) {
    const std::lock_guard lock(mutex_);
    std::vector<gpu::PinnedMemory>& same = free_[{device, memory.size_bytes()}];
    if (same.size() < kMostOfASize) same.push_back(std::move(memory));
  }

 private:
  static constexpr std::size_t kMostOfASize = 8;
  std::mutex mutex_;
  std::map<std::pair<int, std::size_t>, std::vector<gpu::PinnedMemory>> free_;
};
Shelf& shelf() {
  static Shelf* all = new Shelf;  // never destroyed: see driver_for_release()
  return *all;
}

}  // namespace

CompletionFlag::CompletionFlag(const gpu::GpuDevice& device, const Completion& planned, const Target& target,
                               const std::vector<CUdeviceptr>& bases)
    : device_(&device), packed_bytes_(planned.packed_bytes), moved_from_(planned.moved_from) {
  if (!planned.can_signal) return;
  std::vector<std::int64_t> sizes;
  addresses_ = {nullptr, nullptr};
  const auto at = [&](int slot, std::int64_t offset) {
    return reinterpret_cast<void*>(bases[static_cast<std::size_t>(slot)] + static_cast<CUdeviceptr>(offset));
  };
  for (const Completion::Moved& moved : planned.moved) {
    addresses_.insert(addresses_.end(), {at(moved.to.slot, moved.to.offset), at(moved.from.slot, moved.from.offset)});
    sizes.push_back(moved.bytes);
  }
  texts_[kind(Signals::completion)] = std::make_unique<gpu::TextLaunch>(gpu::plan_completion_flag(sizes, target));
  for (const PackedResult& result : planned.packed) {
    places_.emplace(std::pair(result.slot, result.offset), result.at);
    packed_.emplace_back(addresses_.size(), result.at);
    addresses_.insert(addresses_.end(), {nullptr, at(result.slot, result.offset)});
    sizes.push_back(result.bytes);
  }
  addresses_.resize(2 + 2 * gpu::kMostMoved, nullptr);
  if (packed_.empty()) return;
  texts_[kind(Signals::results)] = std::make_unique<gpu::TextLaunch>(gpu::plan_completion_flag(sizes, target));
}

CompletionFlag::~CompletionFlag() {
  if (memory_.bytes() != nullptr) shelf().give(device_->index(), std::move(memory_));
}

std::vector<gpu::KernelSource> CompletionFlag::sources() const {
  return texts_[0] == nullptr ? std::vector<gpu::KernelSource>{} : std::vector<gpu::KernelSource>{texts_[0]->source};
}

void CompletionFlag::prepare() {
  for (std::size_t k = 0; k < kKinds; ++k) {
    if (texts_[k] == nullptr) continue;
    kernels_[k] = std::make_unique<gpu::LoadedKernel>(*device_, *texts_[k], addresses_.size());
  }
  memory_ = shelf().take(*device_, static_cast<std::size_t>(packed_bytes_));
  std::memset(memory_.bytes(), 0, Completion::kCounters);
  ended_ = gpu::DeviceMemory(*device_, sizeof(count_));
  gpu::write_memory(ended_.address(), &count_, sizeof(count_));
  addresses_[0] = ended_.pointer(), addresses_[1] = memory_.bytes();
  for (const auto& [address, place] : packed_) addresses_[address] = memory_.bytes() + place;
}

void CompletionFlag::start(Signals signals, CUstream stream) const {
  kernels_[kind(signals)]->start(stream, addresses_.data(), {});
}

bool CompletionFlag::has_come() const {
  if (signalled_ == Signals::nothing) return false;
  const std::atomic_ref<unsigned> signalled(*reinterpret_cast<unsigned*>(memory_.bytes()));
  for (int polls = 0; polls < kLooks; ++polls) {
    if (signalled.load(std::memory_order_acquire) == count_) return true;
    pause_thread();
  }
  return false;
}

const std::byte* CompletionFlag::find(const Operand& result) {
  is_read_ = true;
  if (signalled_ != Signals::results) return nullptr;
  const auto found = places_.find({result.slot, result.offset});
  return found == places_.end() ? nullptr : memory_.bytes() + found->second;
}

}  // namespace paoding
