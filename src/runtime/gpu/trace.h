// SPDX-License-Identifier: Apache-2.0
// Spans of a program's steps on the GPU: by stamps of their own (gpu/stamps.h), or by CUPTI (cupti_records.h), for as
// long as a CuptiWindow is open, or for a whole recording (PAODING_CUPTI). A run stays one graph launch.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <optional>
#include <vector>

#include "plan/plan.h"
#include "profile/recorder.h"
#include "runtime/gpu/captured_graph.h"
#include "runtime/gpu/cupti_records.h"
#include "runtime/gpu/fused_kernels.h"
#include "runtime/gpu/stamps.h"
#include "runtime/sites.h"
#include "schedule/schedule.h"

namespace paoding {

class GpuTrace {
 public:
  /// The site of each entry of a schedule.
  using Sites = std::vector<profile::SiteId>;
  static Sites sites_of(const LaunchSites& sites, const Schedule& schedule, FusedKernels& fused);

  /// `nodes`: of the graph that is launched, each made for an entry of the schedule.
  GpuTrace(int device, std::shared_ptr<const Sites> sites, const std::vector<CapturedGraph::Node>& nodes);

  static bool is_wanted() { return profile::Recorder::gpu_active(); }
  /// Whether a recording that is under way goes by CUPTI.
  static bool uses_cupti();

  /// Launches the graph so that it is seen: its twin where the recording goes by CUPTI, else one with stamps.
  void launch(std::uint32_t run, CapturedGraph& graph, GpuStamps& stamps, CUstream stream);
  /// The same for a run that is launched entry by entry, which CUPTI does not tell: by stamps.
  static void launch(std::uint32_t run, const std::function<void(CUstream)>& plain, GpuStamps& stamps, CUstream stream);
  /// Notes the time of a launch that nobody records, to compare others with.
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

 private:
  void launch_twin(std::uint32_t run, CapturedGraph& graph, GpuStamps& stamps, CUstream stream);

  std::shared_ptr<const GraphShape> shape_;
  profile::SiteId launch_site_ = 0;
  profile::Ticks alone_ = 0;  // the time of a launch that nobody records; 0 is not known
};

}  // namespace paoding
