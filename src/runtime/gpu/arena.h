// SPDX-License-Identifier: Apache-2.0
// The state that programs for a GPU share when they share memory.
#pragma once

#include "gpu/driver/driver.h"
#include "runtime/executor.h"
#include "runtime/gpu/cancel.h"
#include "runtime/graph_budget.h"

namespace paoding {

// Programs that share it run in one stream, one after the other.
class GpuArena : public Arena {
 public:
  GpuArena(const gpu::GpuDevice& device, std::int64_t bytes, const ExecutorOptions& options)
      : memory(device, static_cast<std::size_t>(bytes)),
        stream(options.stream == nullptr ? gpu::Stream(device) : gpu::Stream(static_cast<CUstream>(options.stream))),
        cancel(device, stream),
        graphs(options.graph_bytes, device.index()) {}
  gpu::GrowingDeviceMemory memory;
  gpu::Stream stream;
  GpuCancel cancel;
  GraphBudget graphs;
};

}  // namespace paoding
