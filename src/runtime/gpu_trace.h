// SPDX-License-Identifier: Apache-2.0
// Spans of a program's steps on the GPU. With CUPTI a run stays one graph launch, and the kernels that CUPTI reports
// for it are matched with the steps by their order, which a linear graph keeps. Without CUPTI the steps are launched
// one by one between events, and the report says so.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "profile/recorder.h"

namespace paoding {

class GpuTrace {
 public:
  /// `nodes`: how many graph nodes each launch became; empty when the program is not captured.
  GpuTrace(int device, const std::vector<Launch>& launches, std::vector<int> nodes);

  static bool is_wanted() { return profile::Recorder::gpu_active(); }
  /// Whether a recording that is under way sees the kernels inside graph launches.
  static bool sees_graphs();

  void before_graph(std::uint32_t run);
  void after_graph(std::uint32_t run);
  void time_steps(std::uint32_t run, CUstream stream, const std::function<void(std::size_t)>& start);

  /// What a graph launch of one program consists of.
  struct Shape {
    int device = 0;
    std::vector<profile::SiteId> sites;  // per launch
    std::vector<int> nodes;              // per launch
    std::size_t node_count = 0;
  };

 private:
  std::shared_ptr<const Shape> shape_;
  profile::SiteId launch_site_ = 0;
  profile::Ticks launch_start_ = 0;
};

}  // namespace paoding
