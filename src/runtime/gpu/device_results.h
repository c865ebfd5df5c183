// SPDX-License-Identifier: Apache-2.0
// Results that stay on the GPU: copied after the run that made them into memory of their own, which is used again.
#pragma once

#include <memory>
#include <mutex>
#include <vector>

#include "gpu/driver/driver.h"
#include "runtime/device_tensor.h"
#include "runtime/gpu/commit_guard.h"

namespace paoding {

class DeviceResults {
 public:
  DeviceResults(const gpu::GpuDevice& device, const gpu::Stream& stream, CommitGuard& guard)
      : device_(device), stream_(stream), guard_(guard), pool_(std::make_shared<Pool>()) {}
  /// Waits for results that are still on their way.
  ~DeviceResults();
  DeviceResults(const DeviceResults&) = delete;
  DeviceResults& operator=(const DeviceResults&) = delete;

  /// A copy of the last run's result, enqueued after the run.
  DeviceTensor start(CUdeviceptr at, const Type& type);

 private:
  class Value;
  struct Block {
    gpu::DeviceMemory memory;
    gpu::Event made;
    gpu::Event left;            // by its readers, where one event can say so
    bool was_read = false;      // in another stream than that which writes it
    bool is_left_last = false;  // where it cannot: after all that the device has been given
  };
  /// Outlives the program, as its results may.
  struct Pool {
    std::mutex mutex;  // of all that values and their owner share
    std::vector<Block> free;
    std::vector<Value*> under_way;
  };
  Block take(std::size_t bytes);

  const gpu::GpuDevice& device_;
  const gpu::Stream& stream_;
  CommitGuard& guard_;
  const std::shared_ptr<Pool> pool_;
};

}  // namespace paoding
