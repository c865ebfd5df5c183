// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/results.h"

#include "gpu/kernels/to_host_text.h"

namespace paoding {

GpuResults::GpuResults(const gpu::GpuDevice& device, const PackedResults& packed, const Target& target,
                       const std::vector<CUdeviceptr>& bases) {
  if (packed.results.empty()) return;
  memory_ = gpu::PinnedMemory(device, static_cast<std::size_t>(packed.bytes));
  addresses_.push_back(memory_.bytes());
  std::vector<std::int64_t> sizes;
  for (const PackedResult& result : packed.results) {
    places_.emplace(std::pair(result.slot, result.offset), result.at);
    sizes.push_back(result.bytes);
    addresses_.push_back(reinterpret_cast<void*>(bases[static_cast<std::size_t>(result.slot)] +
                                                 static_cast<CUdeviceptr>(result.offset)));
  }
  text_ = std::make_unique<gpu::TextLaunch>(gpu::plan_pack(sizes, target));
}

std::vector<gpu::KernelSource> GpuResults::sources() const {
  return has_any() ? std::vector<gpu::KernelSource>{text_->source} : std::vector<gpu::KernelSource>{};
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
