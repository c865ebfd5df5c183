// SPDX-License-Identifier: Apache-2.0
// Rules read this view of a trace: its steps, and in them launches with their work, waits, idle time of GPUs and whom
// it is to blame on, copies that nothing hides, and the facts of kernels. Built once, read by several threads.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "findings/finding.h"
#include "profile/budget.h"
#include "profile/intervals.h"
#include "profile/trace.h"

namespace paoding::findings {

using profile::Interval;

/// Where in the user's program a span belongs; empty where the trace does not say.
struct Where {
  std::string op = {};        // the outermost op around it: "aten::linear", not the aten::addmm inside
  std::string scope = {};     // "encoder/layer1"
  std::string line = {};      // "model.py:12"
  std::string operands = {};  // of the innermost op that has any: "bf16[8192,4096] -> f32[8192,4096]"
};

/// Spans first to end - 1.
struct SpanRange {
  SpanId begin = 0, end = 0;
};

/// A GPU did nothing, inside of a step.
struct Idle {
  std::int64_t start = 0, end = 0;
  int device = 0;
  SpanId before = kNone, after = kNone;  // work of that GPU that ended last, that begins next
  SpanId launch = kNone;                 // of `after`
  std::int64_t launched = 0;  // when that began, but not outside of start .. end: until then the host is late
  std::int64_t ns() const { return end - start; }
  std::int64_t late_ns() const { return launched - start; }
};

/// The host waits for GPUs: a synchronisation, or a copy that blocks.
struct Wait {
  SpanId span = kNone;
  SpanId for_work = kNone;     // work that ended last before the wait did; kNone: not known
  std::int64_t waited_ns = 0;  // until that had ended
  std::int64_t idle_ns = 0;    // that GPUs then were idle for, until this thread's next launch or wait
  std::size_t step = 0;
};

/// How fast a GPU can be; 0 where it is not known.
struct DeviceLimit {
  double bytes_per_ns = 0;
  UnitRates flops_per_ns = {};
  int multiprocessors = 0;
  std::string name = {};
};

struct KernelFacts {
  std::string_view shapes = {}, types = {};           // of the op's inputs, as the file has them
  std::array<std::int64_t, 3> grid = {}, block = {};  // 0: not known
  std::int64_t registers = 0, shared_bytes = 0;
  double occupancy = 0;    // percent
  std::int64_t bytes = 0;  // of the span, or its op's
  double flops = 0;
  Unit unit = Unit::none;
  std::string_view memory = {}, collective = {};
  std::int64_t ctas() const { return grid[0] * grid[1] * grid[2]; }
};

/// How long each of some steps takes: until the start of the next, or from one end of its work of GPUs to the other
/// where these are further apart, since the host is ahead. `work_ends`: of each the end of its work; 0: it has none.
std::vector<std::int64_t> lengths_of(const std::vector<Interval>& steps, const std::vector<std::int64_t>& work_ends);
/// How long all of them take together: each until its work of GPUs has ended, but not beyond the start of the next.
std::int64_t all_steps_ns(const std::vector<Interval>& steps, const std::vector<std::int64_t>& work_ends);

class Steps {
 public:
  /// `times`: profile::thread_times() of the trace, where they are known already.
  explicit Steps(const profile::Trace& trace, profile::SharedThreadTimes times = {});

  const profile::Trace& trace() const { return trace_; }
  /// Who recorded the process that steps.
  profile::Source source() const { return source_; }
  profile::ProcessId process() const { return process_; }
  /// The thread that steps; kNone where nothing does.
  TrackId track() const { return track_; }

  // ---- steps ----
  /// In order, without overlaps, behind those of warming up.
  const std::vector<Interval>& of() const { return steps_; }
  std::size_t count() const { return steps_.size(); }
  std::size_t warm_up() const { return warm_up_; }
  /// The number of the first, counted from 1 with those that are left out; and how many there are with those.
  std::size_t first_number() const { return first_number_; }
  std::size_t recorded() const { return recorded_; }
  /// The median on the host alone, and the average.
  std::int64_t host_median_ns() const;
  std::int64_t host_average_ns() const;
  /// lengths_of() these.
  const std::vector<std::int64_t>& lengths() const { return lengths_; }
  std::int64_t median_ns() const { return median_ns_; }
  /// all_steps_ns() over their number: the step that gains are of.
  std::int64_t average_ns() const { return average_ns_; }
  /// "steps as they are marked", "runs", "from one Optimizer.step to the next".
  const std::string& stepped_by() const { return stepped_by_; }
  static constexpr std::size_t kOutside = ~std::size_t{0};
  /// The step that holds the moment; kOutside.
  std::size_t at(std::int64_t ns) const;
  /// The step that a span belongs to: of work of a GPU where it was launched, if that is known.
  std::size_t step_of(SpanId i) const;

  // ---- spans ----
  SpanRange spans(TrackId track) const { return tracks_[track]; }
  /// Those that begin in a step.
  SpanRange spans(TrackId track, std::size_t step) const;
  /// Work of this process's GPUs (kernels, replays, copies, fills) that begins in steps, in order of start.
  const std::vector<SpanId>& device_spans() const { return device_spans_; }
  /// Work that a host span launched, in order.
  std::span<const SpanId> launched_by(SpanId host) const;
  /// Threads of this process that launch in the steps, the stepping one first.
  const std::vector<TrackId>& launchers() const { return launchers_; }
  const std::vector<Wait>& waits() const { return waits_; }
  /// Every idle stretch of this process's GPUs, in order of start.
  const std::vector<Idle>& idle() const { return idle_; }
  /// How long of a stretch all GPUs of this process were idle.
  std::int64_t idle_in(std::int64_t start, std::int64_t end) const;
  /// How long a copy or fill was under way without a kernel on its GPU; 0 for other work.
  std::int64_t exposed_ns(SpanId copy) const;
  /// Per track, how its thread spent its time (profile/budget.h).
  const std::vector<profile::ThreadTime>& thread_times() const { return *thread_times_; }

  // ---- names and facts ----
  /// The innermost op that a span is, lies in or was launched by; kNone.
  SpanId op_of(SpanId i) const;
  SpanId outermost_op_of(SpanId i) const;
  Where where(SpanId i) const;
  std::string operands_of(SpanId i) const;
  DeviceLimit limit(int device) const;

 private:
  friend class StepsBuilder;
  const profile::Trace& trace_;
  profile::Source source_ = profile::Source::paoding;
  profile::ProcessId process_ = 0;
  TrackId track_ = kNone;
  std::vector<Interval> steps_;
  std::size_t warm_up_ = 0, first_number_ = 1, recorded_ = 0;
  std::vector<std::int64_t> lengths_;
  std::int64_t median_ns_ = 0, average_ns_ = 0;
  std::string stepped_by_;
  std::vector<SpanRange> tracks_;
  std::vector<SpanId> device_spans_;
  std::vector<SpanId> launched_;              // by launch
  std::vector<std::uint32_t> launched_from_;  // of each host span into that; the next is the end
  std::vector<TrackId> launchers_;
  std::vector<Wait> waits_;
  std::vector<Idle> idle_;
  std::vector<std::vector<Interval>> busy_kernels_;  // by device; kernels alone
  std::vector<int> devices_;
  std::vector<Interval> all_idle_;
  profile::SharedThreadTimes thread_times_;
};

/// Reads facts of spans, fastest in the order of their numbers. One thread uses it at a time.
class FactReader {
 public:
  explicit FactReader(const Steps& steps);
  KernelFacts of(SpanId i);

 private:
  struct Column {
    const profile::ArgumentColumn* column = nullptr;
    std::size_t at = 0;
    /// The place of the span in the column; false where it has none.
    bool find(SpanId i, std::size_t* place);
  };
  std::string_view text(Column& column, SpanId i);
  std::int64_t integer(Column& column, SpanId i);

  const Steps& steps_;
  void read_launch(SpanId i, KernelFacts* facts);

  Column grid_, block_, registers_, shared_, occupancy_, memory_, shapes_, types_, collective_;
  Column ctas_, threads_, shared_bytes_;  // as our recordings have them of CUPTI
};

}  // namespace paoding::findings
