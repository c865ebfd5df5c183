// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/completion_flag.h"

#include <algorithm>
#include <atomic>
#include <bit>
#include <cstring>
#include <mutex>
#include <set>

#include "base/pause.h"
#include "gpu/kernels/to_host_text.h"

namespace paoding {
namespace {

constexpr std::size_t kMostEndLaunches = 64;        // of a run that is short enough to gain by it
constexpr std::int64_t kMostPacked = 64 << 10;      // bytes of all results
constexpr std::int64_t kMostMovedBytes = 16 << 10;  // of a copy at the end
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

// One launch, in which nothing is chosen, and after which the host has nothing to do.
bool is_one_graph(const std::vector<Launch>& launches, const std::vector<LaunchEntry>& order) {
  const auto is_plain = [](const LaunchEntry& entry) {
    return entry.kind == LaunchEntry::Kind::launch || entry.kind == LaunchEntry::Kind::guard ||
           entry.kind == LaunchEntry::Kind::results;
  };
  const std::vector<Segment> segments = segments_of(launches, order);
  return segments.size() == 1 && !segments[0].prints && std::ranges::all_of(order, is_plain);
}

// The bytes that a step copies as they are from one place to another; 0 where it does anything else.
std::int64_t plainly_copied(const Step& step) {
  if (step.kind != Step::Kind::group || step.operands.size() != 2 || step.group.operands() != 2) return 0;
  const Group group = canonical(step.group);
  const GroupLoad& load = group.loads[0];
  const GroupOutput& output = group.outputs[0];
  const bool is_whole = group.rank() == 1 && load.strides[0] == 1 && output.strides[0] == 1;
  const ExprNode& value = group.expr.nodes()[static_cast<std::size_t>(output.value)];
  const bool is_same = load.dtype == output.dtype && output.reduce_mask == 0 && value.prim == Prim::input;
  return is_whole && is_same ? group.extents[0] * size_bytes(load.dtype) : 0;
}

}  // namespace

CompletionFlag::CompletionFlag(const gpu::GpuDevice& device, const Plan& plan, const std::vector<Launch>& launches,
                               const std::vector<LaunchEntry>& order, const GuardPlan& guards,
                               const LaunchFusion& fusion, const std::vector<CUdeviceptr>& bases, bool packs)
    : device_(&device), moved_from_(order.size()) {
  if (launches.size() > kMostEndLaunches || !is_one_graph(launches, order)) return;
  std::vector<std::int64_t> sizes;
  addresses_ = {nullptr, nullptr};
  const auto at = [&](int slot, std::int64_t offset) {
    return reinterpret_cast<void*>(bases[static_cast<std::size_t>(slot)] + static_cast<CUdeviceptr>(offset));
  };
  std::set<int> made, read;  // slots, by copies that are moved
  while (moved_from_ > 0 && !guards.has_guard() && sizes.size() < gpu::kMostMoved / 2) {
    const LaunchEntry& entry = order[moved_from_ - 1];
    if (entry.kind != LaunchEntry::Kind::launch) break;
    const Launch& launch = launches[entry.launch];
    const std::int64_t bytes = plainly_copied(*launch.step);
    if (bytes == 0 || bytes > kMostMovedBytes) break;
    const auto& [from, from_offset] = launch.addresses[0];
    const auto& [to, to_offset] = launch.addresses[1];
    if (from == to || made.contains(from) || made.contains(to) || read.contains(to)) break;
    made.insert(to), read.insert(from);
    addresses_.insert(addresses_.end(), {at(to, to_offset), at(from, from_offset)});
    sizes.push_back(bytes);
    --moved_from_;
  }
  const auto is_behind_another = [&](std::size_t launch) { return fusion.has(launch) && !fusion.is_first(launch); };
  for (; !sizes.empty() && is_behind_another(order[moved_from_].launch); ++moved_from_) {
    sizes.pop_back();
    addresses_.resize(addresses_.size() - 2);
  }
  texts_[kind(Signals::completion)] = std::make_unique<gpu::TextLaunch>(gpu::plan_completion_flag(sizes, *plan.target));
  packed_bytes_ = kCounters;
  for (const Plan::Fetch& fetch : plan.fetches) {
    const Operand& operand = fetch.operand;
    const std::int64_t bytes = size_bytes(operand.layout.type);
    const bool fits = packed_bytes_ + bytes <= kCounters + kMostPacked && sizes.size() < gpu::kMostMoved;
    if (!packs || !fits || bytes == 0 || made.contains(operand.slot)) continue;
    if (!places_.emplace(std::pair(operand.slot, operand.offset), packed_bytes_).second) continue;  // fetched twice
    packed_.emplace_back(addresses_.size(), packed_bytes_);
    addresses_.insert(addresses_.end(), {nullptr, at(operand.slot, operand.offset)});
    sizes.push_back(bytes);
    packed_bytes_ += (bytes + 15) / 16 * 16;
  }
  addresses_.resize(2 + 2 * gpu::kMostMoved, nullptr);
  if (packed_.empty()) return;
  texts_[kind(Signals::results)] = std::make_unique<gpu::TextLaunch>(gpu::plan_completion_flag(sizes, *plan.target));
}

CompletionFlag::~CompletionFlag() {
  if (memory_.bytes() != nullptr) shelf().give(device_->index(), std::move(memory_));
}

std::vector<std::string> CompletionFlag::sources() const {
  return texts_[0] == nullptr ? std::vector<std::string>{} : std::vector<std::string>{texts_[0]->source};
}

void CompletionFlag::prepare() {
  for (std::size_t k = 0; k < kKinds; ++k) {
    if (texts_[k] == nullptr) continue;
    kernels_[k] = std::make_unique<gpu::LoadedKernel>(*device_, *texts_[k], addresses_.size());
  }
  memory_ = shelf().take(*device_, static_cast<std::size_t>(packed_bytes_));
  std::memset(memory_.bytes(), 0, kCounters);
  ended_ = gpu::DeviceMemory(*device_, sizeof(count_));
  PD_CUDA(gpu::required_driver().cuMemcpyHtoD(ended_.address(), &count_, sizeof(count_)));
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
