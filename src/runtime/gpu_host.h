// SPDX-License-Identifier: Apache-2.0
// The stretches of a program for a GPU that run on the CPU, with the copies around them.
#pragma once

#include <functional>
#include <memory>
#include <utility>
#include <vector>

#include "gpu/driver.h"
#include "plan/host_steps.h"
#include "runtime/executor.h"
#include "runtime/gpu_feeds.h"
#include "runtime/gpu_order.h"

namespace paoding {

class GpuHost {
 public:
  /// `plan` must outlive it. What stretches leave reaches the device through `feeds`.
  GpuHost(const Plan& plan, const std::vector<Launch>& launches, const ExecutorOptions& options,
          const std::vector<CUdeviceptr>& bases, GpuFeeds* feeds);

  const HostLaunches& launches() const { return launches_; }
  /// What is behind the stretch that begins with this launch; the launch itself where none does.
  std::size_t behind(std::size_t launch) const;
  /// A value that is fed: true where nobody but stretches reads it, so that it need not be on the device.
  bool write(int slot, const Tensor& tensor);
  /// The stretch that begins with this launch. `wait` is called before values of the device are read.
  void run(std::size_t first_launch, std::uint32_t run, const std::function<void()>& wait);

 private:
  struct Stretch {
    std::unique_ptr<HostStretch> planned;
    std::unique_ptr<Executor> executor;
    std::vector<std::pair<int, Tensor>> inputs, outputs;  // by slot; inputs that are not fed
  };
  const std::vector<CUdeviceptr>& bases_;
  GpuFeeds& feeds_;
  std::vector<Stretch> stretches_;
  HostLaunches launches_;
  std::vector<char> is_fed_, is_read_on_device_;  // per slot
};

}  // namespace paoding
