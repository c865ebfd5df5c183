// SPDX-License-Identifier: Apache-2.0
// A run whose segments are CUDA graphs, captured once when its program is made: a run is one graph launch. One that
// prints and writes is two: between them the host hands over the printed values.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <string>
#include <vector>

#include "runtime/gpu/completion_flag.h"
#include "runtime/gpu/entries.h"
#include "runtime/gpu/host.h"
#include "runtime/gpu/profiled_graph.h"

namespace paoding {

class CapturedRun {
 public:
  /// `flag`: whose sources `entries` has compiled. `wait` waits for all that was enqueued and throws the error of the
  /// last run. `name`: the program's. The rest must outlive it.
  CapturedRun(const Schedule& schedule, PlanMemory& memory, GpuEntries& entries, GpuHost& host, CompletionFlag flag,
              const std::string& name, std::function<void()> wait);
  CapturedRun(const CapturedRun&) = delete;
  CapturedRun& operator=(const CapturedRun&) = delete;

  /// Enqueues a run.
  [[gnu::hot]] void run(std::uint32_t run);
  /// Waits for all that was enqueued.
  void wait_idle();
  /// The value as the last run left it in the host's memory; nullptr where it did not.
  const std::byte* find(const Operand& result);

 private:
  struct CapturedSegment {
    Segment segment;
    std::unique_ptr<ProfiledGraph> graph = {};
  };
  void capture_segment(const Segment& segment, const std::vector<GpuStamps::By>& by,
                       const std::shared_ptr<const GpuTrace::Sites>& sites);
  void capture_with_flag(const Segment& segment);
  void capture(std::size_t k, CUstream stream, CUgraphConditionalHandle node, void* stamp) const;
  std::size_t run_segment(CapturedSegment& captured, std::uint32_t run, bool is_first, CompletionFlag::Signals signals);
  std::size_t target_of(const LaunchEntry& choice) const;
  void hand_over() const;

  // The members that run() reads are together: after a long run caches are cold.
  const Schedule& schedule_;
  PlanMemory& memory_;
  GpuEntries& entries_;
  GpuHost& host_;
  const std::string& name_;
  const std::function<void()> wait_;
  std::vector<CapturedSegment> segments_;
  CompletionFlag flag_;
  std::unique_ptr<CapturedGraph> signalled_[CompletionFlag::kKinds];  // launched in runs that signal something
};

}  // namespace paoding
