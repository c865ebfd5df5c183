// SPDX-License-Identifier: Apache-2.0
// Spans of a program's steps on the GPU. With CUPTI a run stays one graph launch, and the kernels that CUPTI reports
// for it are found by the nodes that they were; where it does not tell nodes apart, by their order, which a linear
// graph keeps. Without CUPTI the steps are launched one by one between events. The report says what it went by.
#pragma once

#include <cuda.h>

#include <functional>
#include <memory>
#include <vector>

#include "plan/plan.h"
#include "profile/recorder.h"
#include "runtime/captured_graph.h"
#include "runtime/gpu_order.h"

namespace paoding {

class GpuTrace {
 public:
  /// What each entry of a run's order appears as.
  using Sites = std::vector<profile::SiteId>;
  static Sites sites_of(const std::vector<Launch>& launches, const std::vector<Started>& order);

  /// `nodes`: of the graph that is launched, each made for an entry of the order.
  GpuTrace(int device, std::shared_ptr<const Sites> sites, const std::vector<CapturedGraph::Node>& nodes);

  static bool is_wanted() { return profile::Recorder::gpu_active(); }
  /// Whether a recording that is under way sees the kernels inside graph launches.
  static bool sees_graphs();

  /// Before the graph is launched, in a stream.
  void before_graph(std::uint32_t run, CapturedGraph& graph, CUstream stream);
  void after_graph(std::uint32_t run);
  /// Of a launch that nobody records: how long it takes when nobody does.
  void note_alone(profile::Ticks start);
  /// Has kernels recorded from here on, at the latest of the program that asks.
  static void add_source();
  /// A step that was launched by itself and waited for, in ns of steady_clock: kernels that ran meanwhile are its.
  static void add_step(int device, profile::SiteId kernel, std::uint32_t run, std::int64_t start_ns,
                       std::int64_t end_ns);
  /// `start_all` starts about `count` entries one by one, and calls what it is given behind each.
  using Behind = std::function<void(std::size_t entry)>;
  void time_steps(std::uint32_t run, std::size_t count, CUstream stream,
                  const std::function<void(const Behind&)>& start_all);

  /// What a graph launch of one program consists of.
  struct Shape {
    int device = 0;
    std::shared_ptr<const Sites> sites;  // per entry of the order; of all graphs of a run
    Sites nodes;                         // per node
    std::size_t always = 0;              // how many of them run in every launch
  };

 private:
  std::shared_ptr<const Shape> shape_;
  profile::SiteId launch_site_ = 0;
  profile::Ticks launch_start_ = 0, alone_ = 0;  // alone_: 0 is not known
};

}  // namespace paoding
