// SPDX-License-Identifier: Apache-2.0
// Start times of the kernels of a captured run, by time stamps that the kernels store themselves. CUPTI is not used,
// because it slows every launch of a graph while it is loaded. During a recording a segment of a run is launched as one
// of two other graphs. Some replays have the stamps of all kernels; the others have those of their begin and end, and
// reports divide their time in the proportions of the former. Where even that would cost a short run too much, some
// replays have no stamps and are taken to be as long as the others. A plan on a caller's memory is launched entry by
// entry in the caller's stream, and follows the same rule.
#pragma once

#include <cstdint>
#include <functional>
#include <memory>
#include <mutex>
#include <set>
#include <vector>

#include "profile/recorder.h"
#include "runtime/gpu/captured_graph.h"
#include "schedule/schedule.h"

namespace paoding {

/// The device's limits, which reports set rates against.
profile::Limit limit_of(const gpu::GpuDevice& device);

class GpuStamps {
 public:
  /// The stamp that says when an entry of the schedule began.
  enum class By : std::uint8_t {
    nothing,  // it launches nothing
    itself,
    kernel,  // in front of it: a library's, a fill, the executor's own
    list,    // the same in a loop without a length, for every turn
  };
  /// Per entry of the schedule.
  static std::vector<By> by(const Schedule& schedule);
  struct Segment {
    std::size_t first = 0, end = 0;  // of the entries
    std::vector<By> by;              // per entry of the schedule
    std::shared_ptr<const std::vector<profile::SiteId>> sites;
    /// Like CapturedGraph::Start, with the word for a kernel that leaves its stamp by itself, else nullptr.
    std::function<void(std::size_t, CUstream, CUgraphConditionalHandle node, void* stamp)> start;
  };

  /// Captures nothing before it is launched. `budget` and `schedule` must outlive it. Without a budget nothing is
  /// captured: entries are launched one by one, in streams that may be gone when they have ended.
  GpuStamps(const gpu::GpuDevice& device, GraphBudget* budget, const Schedule& schedule, Segment segment);
  /// Its launches have to be done.
  ~GpuStamps();
  GpuStamps(const GpuStamps&) = delete;
  GpuStamps& operator=(const GpuStamps&) = delete;

  /// In place of `plain`, which launches the segment without stamps, or that. False where there is no room for stamps,
  /// which the recording notes.
  bool launch(std::uint32_t run, const std::function<void(CUstream)>& plain, CUstream stream);
  /// For a comparison of stamps with CUPTI's records of the same replay: the graph with all stamps, as if it were
  /// launched now, or `plain` where there is no room for stamps.
  CapturedGraph& next_in_full(std::uint32_t run, CapturedGraph& plain, CUstream stream);
  /// Drops its executable graphs, as nothing is being recorded.
  void rest();

  /// Those that programs are on, whose runs are captured.
  static std::set<const gpu::GpuDevice*> devices();
  /// `budget`: the share of a program's time that stamps may cost.
  static void start_recording(double budget);
  /// Waits for all launches, and hands their times to the recorder.
  static void stop_recording();

 private:
  struct Replays;

  void begin_recording();
  std::unique_ptr<Replays> make(bool is_timed);
  void launch(const Replays& replays, CUstream stream) const;
  void start(const Replays& replays, std::size_t k, CUstream stream, CUgraphConditionalHandle node,
             bool* has_begun) const;
  void start_end(const Replays& replays, CUstream stream) const;
  void drain();
  void drain(Replays& replays, std::int64_t* least_ns);
  void finish();

  const gpu::GpuDevice& device_;
  GraphBudget* const budget_;
  const Schedule& schedule_;
  const Segment segment_;
  const bool has_list_;
  const profile::SiteId replay_site_;
  std::mutex mutex_;
  std::unique_ptr<Replays> timed_, whole_;
  CUstream stream_ = nullptr;    // of the last launch
  std::uint64_t recording_ = 0;  // that the members below belong to
  std::uint64_t launches_ = 0, every_ = 0, ends_every_ = 1;
  std::int64_t least_timed_ns_ = 0, least_whole_ns_ = 0;  // of replays; 0 before the first
  std::int64_t stamp_ns_ = 0;                             // the time of a stamp's kernel
  bool has_failed_ = false, is_awake_ = false;
};

}  // namespace paoding
