// SPDX-License-Identifier: Apache-2.0
// CUPTI's records of runs, as spans of their steps: kernels of graphs by their nodes, never by their order; those of
// steps that were launched one by one by their times.
#pragma once

#include <memory>
#include <vector>

#include "gpu/profile/cupti_collector.h"
#include "profile/recorder.h"
#include "runtime/gpu/captured_graph.h"

namespace paoding {

/// The entries that a graph launch of one program consists of.
struct GraphShape {
  int device = 0;
  std::shared_ptr<const std::vector<profile::SiteId>> sites;  // per entry of the order; of all graphs of a run
  bool has_nodes = false;                                     // that run in every launch
};

/// The launches while CUPTI looked, in order.
struct CuptiLaunches {
  struct Graph {
    std::shared_ptr<const GraphShape> shape;
    std::shared_ptr<const CapturedGraph::Numbers> numbers;
    std::uint32_t run;
  };
  // A step that was launched by itself and waited for.
  struct Step {
    int device;
    profile::SiteId site;
    std::uint32_t run;
    std::int64_t start_ns, end_ns;
  };
  std::vector<Graph> graphs;
  std::vector<Step> steps;
};

/// Tells the recorder the spans, and which records are missing.
void tell_cupti(CuptiLaunches launches, const std::vector<gpu::GpuActivity>& activities,
                const gpu::CuptiCollector::Lost& lost);

}  // namespace paoding
