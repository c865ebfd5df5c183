// SPDX-License-Identifier: Apache-2.0
// Spans of a program's steps on the GPU: by stamps of their own (gpu_stamps.h), or by CUPTI where it is asked for
// (PAODING_CUPTI). A run stays one graph launch, and the kernels that CUPTI reports for it are found by the nodes that
// they were, never by their order.
#pragma once

#include <cuda.h>

#include <memory>
#include <optional>
#include <vector>

#include "plan/plan.h"
#include "profile/recorder.h"
#include "runtime/captured_graph.h"
#include "runtime/gpu_order.h"
#include "runtime/sites.h"

namespace paoding {

class GpuTrace {
 public:
  /// What each entry of a run's order appears as.
  using Sites = std::vector<profile::SiteId>;
  static Sites sites_of(const LaunchSites& sites, const std::vector<Launch>& launches,
                        const std::vector<Started>& order);

  /// `nodes`: of the graph that is launched, each made for an entry of the order.
  GpuTrace(int device, std::shared_ptr<const Sites> sites, const std::vector<CapturedGraph::Node>& nodes);

  static bool is_wanted() { return profile::Recorder::gpu_active(); }
  /// Whether a recording that is under way goes by CUPTI.
  static bool uses_cupti();

  /// Launches the graph's twin. False, and nothing is launched, where no recording goes by CUPTI (any more).
  bool launch(std::uint32_t run, CapturedGraph& graph, CUstream stream);
  /// Of a launch that nobody records: how long it takes when nobody does.
  void note_alone(profile::Ticks start);
  /// Has kernels recorded from here on, at the latest of the program that asks.
  static void add_source();

  /// A step that is launched by itself and waited for: kernels that run meanwhile are its.
  class Step {
   public:
    Step(const gpu::GpuDevice& device, CUstream stream);
    void launched();
    void ended(profile::SiteId kernel, std::uint32_t run);

   private:
    const gpu::GpuDevice& device_;
    CUstream stream_;
    std::int64_t start_ns_ = 0;
    std::optional<gpu::Event> begin_, end_;  // without CUPTI
  };

  /// What a graph launch of one program consists of.
  struct Shape {
    int device = 0;
    std::shared_ptr<const Sites> sites;  // per entry of the order; of all graphs of a run
    bool has_nodes = false;              // that run in every launch
  };

 private:
  std::shared_ptr<const Shape> shape_;
  profile::SiteId launch_site_ = 0;
  profile::Ticks alone_ = 0;  // what a launch takes that nobody records; 0 is not known
};

}  // namespace paoding
