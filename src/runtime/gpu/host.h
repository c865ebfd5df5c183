// SPDX-License-Identifier: Apache-2.0
// The segments of a program for a GPU that run on the CPU, with the copies around them.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/driver/driver.h"
#include "runtime/executor.h"
#include "runtime/gpu/feeds.h"
#include "schedule/host_runs.h"

namespace paoding {

class GpuHost {
 public:
  /// `plan` and `runs` must outlive it. Results of segments reach the device through `feeds`.
  GpuHost(const Plan& plan, const HostRuns& runs, const ExecutorOptions& options, const std::vector<CUdeviceptr>& bases,
          GpuFeeds* feeds);

  /// A value that is fed: true where nobody but segments reads it, so that it need not be on the device.
  bool write(int slot, const Tensor& tensor);
  /// Whether a segment reads the fed value.
  bool reads(int slot) const;
  /// `wait` is called before values of the device are read.
  void run(const HostRun& turn, std::uint32_t run, const std::function<void()>& wait);

 private:
  // A value that is copied: its window, and as much memory.
  struct Copied {
    std::size_t window;
    Tensor tensor;
  };
  struct Segment {
    const HostSegment* planned = nullptr;
    std::unique_ptr<Executor> executor;
    std::vector<Copied> inputs, outputs;
    int first_feed = 0;  // of its outputs: the number of the first in `feeds`, the next by one less
  };
  void prepare_segment(const Plan& plan, const ExecutorOptions& options, const HostSegment& planned);

  const gpu::GpuDevice& device_;
  const std::vector<CUdeviceptr>& bases_;
  GpuFeeds& feeds_;
  std::vector<Segment> segments_;        // as HostRuns::segments
  std::vector<char> is_read_on_device_;  // per slot
  int next_feed_ = -1;
};

}  // namespace paoding
