// SPDX-License-Identifier: Apache-2.0
// Small results that the last kernel of a run leaves in the host's memory. Which alternative of a Variant was taken
// only the run knows, and to copy the number first and then the value would be to wait twice.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/loaded_kernel.h"
#include "plan/plan.h"
#include "schedule/completion.h"

namespace paoding {

class GpuResults {
 public:
  GpuResults() = default;
  /// `bases`: the address of every slot.
  GpuResults(const gpu::GpuDevice& device, const PackedResults& packed, const Target& target,
             const std::vector<CUdeviceptr>& bases);

  bool has_any() const { return text_ != nullptr; }
  std::vector<gpu::KernelSource> sources() const;
  void load(const gpu::GpuDevice& device);
  void start(CUstream stream) const;
  /// The value as the last run that is done left it; nullptr where it is not among them.
  const std::byte* find(const Operand& result) const;

 private:
  std::map<std::pair<int, std::int64_t>, std::int64_t> places_;  // by slot and offset
  std::vector<void*> addresses_;                                 // where they are packed to, then each
  gpu::PinnedMemory memory_;
  std::unique_ptr<gpu::TextLaunch> text_;
  std::unique_ptr<gpu::LoadedKernel> kernel_;
};

}  // namespace paoding
