// SPDX-License-Identifier: Apache-2.0
// The segments of a program for a GPU that run on the CPU, with the copies around them.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/driver/driver.h"
#include "plan/host_steps.h"
#include "runtime/executor.h"
#include "runtime/gpu/feeds.h"
#include "runtime/gpu/order.h"

namespace paoding {

class GpuHost {
 public:
  /// `plan` must outlive it. Results of segments reach the device through `feeds`. Error (unsupported) where values of
  /// one turn of a loop overlap in memory and move differently.
  GpuHost(const Plan& plan, const std::vector<Launch>& launches, const ExecutorOptions& options,
          const std::vector<CUdeviceptr>& bases, GpuFeeds* feeds);

  const HostLaunches& launches() const { return launches_; }
  /// The launch after the segment that begins with this launch; the launch itself where none does.
  std::size_t behind(std::size_t launch) const;
  /// A value that is fed: true where nobody but segments reads it, so that it need not be on the device.
  bool write(int slot, const Tensor& tensor);
  /// Whether a segment reads the fed value.
  bool reads(int slot) const;
  /// The segment that begins with this launch. `wait` is called before values of the device are read.
  void run(std::size_t first_launch, std::uint32_t run, const std::function<void()>& wait);

 private:
  // A value that is copied: its window, and as much memory.
  struct Copied {
    std::size_t window;
    Tensor tensor;
  };
  struct Segment {
    std::unique_ptr<HostSegment> planned;
    std::unique_ptr<Executor> executor;
    std::vector<Copied> inputs, outputs;
    int first_feed = 0;  // of its outputs: the number of the first in `feeds`, the next by one less
  };
  // Once that a segment comes: which, and where its windows are on the device.
  struct Turn {
    Segment* segment;
    std::vector<CUdeviceptr> at;
  };
  void plan_segment(const Plan& plan, const ExecutorOptions& options, std::unique_ptr<HostSegment> planned);
  Turn turn_of(Segment* segment, const std::vector<Launch>& own, const std::vector<Launch>& launches,
               std::size_t first) const;

  const gpu::GpuDevice& device_;
  const std::vector<CUdeviceptr>& bases_;
  GpuFeeds& feeds_;
  std::vector<std::unique_ptr<Segment>> segments_;
  HostLaunches launches_;
  std::vector<Turn> turns_;              // per element of launches_
  std::vector<char> is_read_on_device_;  // per slot
  int next_feed_ = -1;
};

}  // namespace paoding
