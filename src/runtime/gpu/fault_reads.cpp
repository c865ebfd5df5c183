// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/fault_reads.h"

namespace paoding {

FaultReads::FaultReads(const gpu::GpuDevice& device, std::int64_t bytes)
    : bytes_(bytes), words_(device, static_cast<std::size_t>(bytes) * kMost) {
  ended_.reserve(kMost);
  for (std::size_t i = 0; i < kMost; ++i) ended_.emplace_back(device);
}

void FaultReads::follow(const void* words, CUstream stream, const Check& check) {
  const std::lock_guard lock(mutex_);
  if (next_ - first_ == kMost) {
    ended_[first_ % kMost].wait_done();
    take_oldest(check);
  }
  const std::size_t place = next_ % kMost;
  PD_CUDA(gpu::required_driver().cuMemcpyDtoHAsync(words_.bytes() + static_cast<std::int64_t>(place) * bytes_,
                                                   reinterpret_cast<CUdeviceptr>(words),
                                                   static_cast<std::size_t>(bytes_), stream));
  ended_[place].record(stream);
  ++next_;
}

void FaultReads::each_ended(bool waits, const Check& check) {
  const std::lock_guard lock(mutex_);
  while (!is_empty()) {
    const gpu::Event& oldest = ended_[first_ % kMost];
    if (waits) oldest.wait_done();
    if (!waits && !oldest.is_done()) return;
    take_oldest(check);
  }
}

void FaultReads::take_oldest(const Check& check) {
  const std::size_t place = first_++ % kMost;
  check(reinterpret_cast<const std::uint64_t*>(words_.bytes() + static_cast<std::int64_t>(place) * bytes_));
}

}  // namespace paoding
