// SPDX-License-Identifier: Apache-2.0
// Stamps of a GPU as spans of a recording: the chip's clock is read beside the host's at the beginning, every second
// and at the end, and stamps in between are told to the recorder once they lie between two readings.
#pragma once

#include <cuda.h>

#include <atomic>
#include <cstdint>
#include <map>
#include <memory>
#include <mutex>
#include <vector>

#include "gpu/profile/stamps.h"
#include "profile/recorder.h"

namespace paoding {

/// A replay, as the host launched it.
struct ReplayLaunch {
  std::uint32_t run = 0;
  std::uint64_t number = 0;  // of all replays
  std::int64_t at_ns = 0;    // of steady_ns()
};

/// A graph's replay, in the chip's time.
struct StampedReplay {
  struct Mark {
    std::int64_t at_ns;
    profile::SiteId site;
    bool is_kernels;  // the stamp of a kernel in front of the entry
  };
  ReplayLaunch launch;
  int device = 0;
  CUstream stream = nullptr;
  profile::SiteId site = 0;
  std::int64_t begin_ns = 0, end_ns = 0;
  std::int64_t seen_ns = 0;      // when it was known to have ended, of steady_ns()
  std::int64_t stamp_ns = 0;     // the time of a stamp's kernel
  std::vector<Mark> marks = {};  // in order; none where only the ends were stamped
  std::uint64_t lost = 0;        // stamps of loops that had no room
  bool is_plain = false;         // it has no stamps at all
  bool is_copy = false;          // no replay: `launch` has the number of its span on the host
};

class StampTimes {
 public:
  static StampTimes& get();

  void start(double budget);
  void stop();
  /// Counts recordings.
  std::uint64_t recording() const { return recording_.load(std::memory_order_relaxed); }
  double budget() const { return budget_; }

  /// Reads it where it is time to, and tells some stamps of the past: a thread that launches is kept for no long time.
  void look_at_clock(const gpu::GpuDevice& device);
  /// Right before it.
  ReplayLaunch next_launch(std::uint32_t run);
  void add(StampedReplay replay);

 private:
  struct Clock {
    std::unique_ptr<gpu::ClockReader> reader;
    gpu::ClockLine line;
    std::int64_t next_ns = 0;                             // when it is time
    std::multimap<std::uint64_t, StampedReplay> waiting;  // to be told, by the number of the launch
    std::uint64_t told_to = 0;                            // those before lie between two readings
    std::vector<StampedReplay> copies;                    // to be told, in any order
  };
  // Times of a graph's replays, and of a stream, so far.
  struct Known {
    std::uint64_t count = 0;
    double ns = 0;                      // of those of which only the ends were stamped
    std::int64_t longest_ns = 0;        // of one that was stamped in full
    std::int64_t delay_ns = INT64_MAX;  // from its launch to its begin, at the least
  };
  struct Part {
    std::uint64_t calls = 0;
    std::int64_t ns = 0;
  };

  void read(const gpu::GpuDevice& device, Clock* clock, std::int64_t patience_ns);
  void place(Clock* clock, bool is_over);
  void tell(Clock* clock, std::size_t most);
  void tell(const Clock& clock, const StampedReplay& replay);
  void tell_plain(const Clock& clock, const StampedReplay& replay, const StampedReplay* next);
  static std::int64_t host_ns(const Clock& clock, const StampedReplay& replay, std::int64_t gpu_ns);
  profile::TrackId track_of(const StampedReplay& replay);

  std::mutex mutex_;
  std::atomic<std::uint64_t> recording_{0};
  bool is_on_ = false;
  double budget_ = 0;
  std::map<int, Clock> clocks_;  // of devices
  std::map<std::pair<int, CUstream>, profile::TrackId> tracks_;
  std::map<profile::SiteId, Known> known_;                            // of replays
  std::map<std::pair<int, CUstream>, std::int64_t> ends_;             // host time of the last one told
  std::map<profile::SiteId, std::map<profile::SiteId, Part>> parts_;  // of replays; kNone: of them whole
  std::uint64_t lost_ = 0, unplaced_ = 0, plain_ = 0;
  std::atomic<std::uint64_t> launches_{0};
};

}  // namespace paoding
