// SPDX-License-Identifier: Apache-2.0
// A segment of a run as a graph that is launched plainly, or, while somebody records, so that its kernels are seen.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <utility>

#include "runtime/gpu/captured_graph.h"
#include "runtime/gpu/stamps.h"
#include "runtime/gpu/trace.h"

namespace paoding {

class ProfiledGraph {
 public:
  /// Captures it; with stamps later, when it is first recorded. `budget` and `schedule` must outlive it.
  ProfiledGraph(const gpu::GpuDevice& device, GraphBudget& budget, const Schedule& schedule,
                const GpuStamps::Segment& segment)
      : graph_(device, budget, schedule, segment.first, segment.end,
               [&segment](std::size_t k, CUstream stream, CUgraphConditionalHandle node) {
                 segment.start(k, stream, node, nullptr);
               }),
        seen_(device.index(), segment.sites, graph_.nodes()),
        stamps_(device, &budget, schedule, segment) {}

  /// `instead`: launched in its place where nobody records; whether it was.
  [[gnu::hot]] bool launch(std::uint32_t run, CUstream stream, CapturedGraph* instead = nullptr) {
    if (GpuTrace::is_wanted()) [[unlikely]] {
      is_seen_ = true;
      seen_.launch(run, graph_, stamps_, stream);
      return false;
    }
    CapturedGraph& graph = instead == nullptr ? graph_ : *instead;
    constexpr int kTimed = 16;
    if (alone_ == kTimed) [[likely]] {
      graph.launch(stream);
    } else {
      ++alone_;
      const profile::Ticks start = profile::Recorder::now();
      graph.launch(stream);
      seen_.note_alone(start);
    }
    if (std::exchange(is_seen_, false)) stamps_.rest();
    return instead != nullptr;
  }

 private:
  CapturedGraph graph_;
  bool is_seen_ = false;  // the last launch was recorded
  int alone_ = 0;         // launches that were timed while nobody recorded
  GpuTrace seen_;
  GpuStamps stamps_;
};

}  // namespace paoding
