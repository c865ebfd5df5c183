// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/results.h"

#include <algorithm>

#include "gpu/kernels/to_host_text.h"

namespace paoding {
namespace {

constexpr std::int64_t kMostBytes = 4096;  // more than that a copy brings faster
constexpr std::size_t kMostResults = 32;   // of which the launch has arguments

}  // namespace

GpuResults::GpuResults(const gpu::GpuDevice& device, const Plan& plan, const std::vector<CUdeviceptr>& bases) {
  const auto is_variant = [](const Plan::Fetch& fetch) { return !fetch.alternatives.empty(); };
  if (std::ranges::none_of(plan.fetches, is_variant)) return;
  std::vector<std::int64_t> sizes;
  std::int64_t used = 0;
  addresses_.push_back(nullptr);
  // All of a fetch or nothing.
  const auto add = [&](const Plan::Fetch& fetch) {
    std::vector<const Operand*> all{&fetch.operand};
    for (const Operand& alternative : fetch.alternatives) all.push_back(&alternative);
    std::int64_t bytes = 0;
    for (const Operand* each : all) bytes += (size_bytes(each->layout.type) + 15) / 16 * 16;
    if (used + bytes > kMostBytes || sizes.size() + all.size() > kMostResults) return;
    for (const Operand* each : all) {
      const std::int64_t size = size_bytes(each->layout.type);
      places_.emplace(std::pair(each->slot, each->offset), used);
      sizes.push_back(size);
      addresses_.push_back(reinterpret_cast<void*>(bases[static_cast<std::size_t>(each->slot)] +
                                                   static_cast<CUdeviceptr>(each->offset)));
      used += (size + 15) / 16 * 16;
    }
  };
  for (const Plan::Fetch& fetch : plan.fetches) {
    if (is_variant(fetch)) add(fetch);
  }
  if (sizes.empty()) return;
  for (const Plan::Fetch& fetch : plan.fetches) {
    if (!is_variant(fetch)) add(fetch);
  }
  memory_ = gpu::PinnedMemory(device, static_cast<std::size_t>(used));
  addresses_[0] = memory_.bytes();
  text_ = std::make_unique<gpu::TextLaunch>(gpu::plan_pack(sizes, *plan.target));
}

std::vector<std::string> GpuResults::sources() const {
  return has_any() ? std::vector<std::string>{text_->source} : std::vector<std::string>{};
}

void GpuResults::load(const gpu::GpuDevice& device) {
  if (has_any()) kernel_ = std::make_unique<gpu::LoadedKernel>(device, *text_, addresses_.size());
}

void GpuResults::start(CUstream stream) const { kernel_->start(stream, addresses_.data(), {}); }

const std::byte* GpuResults::find(const Operand& result) const {
  const auto found = places_.find({result.slot, result.offset});
  return found == places_.end() ? nullptr : memory_.bytes() + found->second;
}

}  // namespace paoding
