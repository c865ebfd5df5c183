// SPDX-License-Identifier: Apache-2.0
// Kernels of our own, loaded and ready to start on one GPU.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "gpu/codegen/text_launch.h"
#include "gpu/driver/driver.h"
#include "ops/kernel.h"

namespace paoding::gpu {

/// Loaded kernels by their source, one set per GPU, for all programs of the process.
CUfunction load_kernel(const GpuDevice& device, const KernelSource& source, const std::string& entry);

class LoadedKernel {
 public:
  /// `launch` must outlive it. Error (device) when the GPU cannot run it so: too much shared memory, too large a
  /// cluster.
  LoadedKernel(const GpuDevice& device, const TextLaunch& launch, std::size_t operands);

  void start(CUstream stream, void* const* operands, const LaunchScratch& scratch) const;
  LaunchShape shape() const;

 private:
  const TextLaunch* launch_;
  CUfunction function_ = nullptr;
  std::size_t operands_ = 0;
};

/// A step that is source of our own.
std::unique_ptr<PreparedKernel> load_text(const GpuDevice& device, std::shared_ptr<const TextPlan> text,
                                          std::size_t operands);

}  // namespace paoding::gpu
