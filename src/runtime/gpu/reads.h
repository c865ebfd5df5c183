// SPDX-License-Identifier: Apache-2.0
// Results on their way to the host: copied after the run that made them, into pinned memory that is used again.
#pragma once

#include <exception>
#include <memory>
#include <vector>

#include "gpu/driver/driver.h"
#include "runtime/executor.h"
#include "runtime/gpu/commit_guard.h"

namespace paoding {

class GpuReads {
 public:
  GpuReads(const gpu::GpuDevice& device, const gpu::Stream& stream, GpuCancel& cancel, CommitGuard& guard)
      : device_(device), stream_(stream), cancel_(cancel), guard_(guard) {}
  /// Waits for reads that are still on their way.
  ~GpuReads();
  GpuReads(const GpuReads&) = delete;
  GpuReads& operator=(const GpuReads&) = delete;

  struct Source {
    CUdeviceptr at;
    Type type;
  };
  /// Reads results of the last run, after it.
  std::unique_ptr<LaterRead> start(const std::vector<Source>& sources);

 private:
  class Read;
  struct Block {
    gpu::PinnedMemory memory;
    gpu::Event copied;
  };
  Block take(std::size_t bytes);

  const gpu::GpuDevice& device_;
  const gpu::Stream& stream_;
  GpuCancel& cancel_;
  CommitGuard& guard_;
  std::vector<Block> free_;
  std::vector<Read*> under_way_;
};

}  // namespace paoding
