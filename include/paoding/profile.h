// SPDX-License-Identifier: Apache-2.0
// The profiler as programs use it: start, run, stop, read the text. Nothing here prints.
#pragma once

#include <concepts>
#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>

namespace paoding {

namespace profile {
class Recorded;  // src/profile/recorder.h
class Trace;     // src/profile/trace.h
}  // namespace profile

/// Which side is recorded and reported.
enum class State { cpu, gpu, all };

/// How far an op is taken apart. The names in brackets are understood by parse_detail too.
enum class Detail {
  op,         // an op's whole time, its copies nested under it (Default)
  phases,     // also op/infer_shape, op/prepare_data, op/compute (OpDetail)
  instances,  // also every instance of an op apart: slice0, slice1 ... (AllOpDetail)
};

/// The column that the rows of a report are sorted by, largest first; `none` keeps the order of first appearance.
enum class SortBy { none, calls, total, max, min, average };

/// The nesting of a report's rows.
enum class Nesting {
  op,     // by the op that ran an op or a copy
  scope,  // besides, ops by the scopes that they were built in (class Scope): "decoder" > "decoder/attention" > op
};

/// The format of a report. All say the same to the nanosecond.
enum class ReportFormat { text, json, csv };

/// How a report is laid out.
struct ReportLayout {
  Nesting nesting = Nesting::op;
  int width = 0;              // event names are cut to this many characters; 0: never
  bool share_groups = false;  // time of a fused group goes to its ops by their bytes
  bool rates = false;         // columns for bytes and operations a second, as far as they are known
  bool self = false;          // a column for the part of a row's time that is in none of the rows below it
  bool kernels = false;       // rows under every op for the kernels that it ran as, where those are known
  int line_width = 0;         // of a terminal, into which all lines fit from 80 on; 0: lines may be of any length
  bool findings = true;       // where steps lose time, how much a change would save, and the change to make
  ReportFormat format = ReportFormat::text;
  std::string page =
      {};  // a file (.html) that also gets the report and the timeline as a page for a browser; empty: none
};

/// Starts recording in every thread of the process.
/// Error (argument) when a recording is already under way: there is one at a time.
void start_profiler(State state = State::all, Detail detail = Detail::op);

/// Stops the recording and returns its report. A `path` also gets the timeline, as Chrome's trace format (.json,
/// .json.gz) or Perfetto's (.pftrace), the recording itself (.paoding), which `paoding report` reads, or the report and
/// the timeline as a page for a browser (.html). Where the path cannot be written to, the file goes to the folder of
/// temporary ones ($TMPDIR, else /tmp), and the report says so below "Not seen". Error (argument) when nothing is being
/// recorded or the path has another ending (the recording then goes on), (file) when the file can be written there
/// neither.
std::string stop_profiler(SortBy sort = SortBy::total, const std::string& path = "", const ReportLayout& layout = {});

/// The same as an object: records from construction to stop(), or to the end of its life (then without a report).
/// Errors as start_profiler and stop_profiler. Sees every thread; one thread uses it at a time.
class Profiler {
 public:
  explicit Profiler(State state = State::all, Detail detail = Detail::op);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends the recording at the first call; a later call reports the same recording again, sorted and laid out as asked.
  std::string stop(SortBy sort = SortBy::total, const std::string& path = "", const ReportLayout& layout = {});

  /// Ends the recording at the first call as stop(), and returns the page that stop() writes to a path in .html.
  std::string html(SortBy sort = SortBy::total, const ReportLayout& layout = {});

  /// Ends the recording without making a report of it, which takes no longer for a long one.
  void end();
  /// The recording. Error (argument) before stop() or end(). The first call after end() takes some 50 ns a span.
  const profile::Trace& trace() const;

 private:
  State state_;
  Detail detail_;
  bool is_recording_ = true;
  std::unique_ptr<profile::Recorded> recorded_;    // null while recording
  mutable std::unique_ptr<profile::Trace> trace_;  // once somebody wants it

  friend class ProfiledSteps;
  struct Beside;
  std::unique_ptr<Beside> beside_;  // times of steps that were recorded, and of those around them
};

/// Steps of a loop: first, first + 1, .. end - 1, counted from 0.
struct StepWindow {
  std::int64_t first = 0, end = 0;
};

/// A part of a recording in which NVIDIA's CUPTI records the kernels of GPUs, with the names of a library's; outside of
/// it kernels store time stamps themselves. It begins and ends between two runs, waits for
/// the GPUs at both ends, and lets go of CUPTI at the end. No other thread uses a GPU at its ends, and graphs of others
/// that are launched meanwhile cannot be launched again. Where CUPTI cannot be used the report says why. One at a time.
class CuptiWindow {
 public:
  /// Error (argument) when nothing is being recorded, or another is open.
  CuptiWindow();
  /// Ends it, if the recording has not ended before.
  ~CuptiWindow();
  CuptiWindow(const CuptiWindow&) = delete;
  CuptiWindow& operator=(const CuptiWindow&) = delete;

 private:
  std::uint64_t recording_;
};

/// Records some of a loop's steps, which it is told of, and has CUPTI see some of those. The report compares them with
/// the unrecorded steps around them, where there are five of either, and so gives the cost of the recording. Errors as
/// Profiler. The loop's thread uses it.
class ProfiledSteps {
 public:
  explicit ProfiledSteps(StepWindow window, State state = State::all, Detail detail = Detail::op,
                         StepWindow by_cupti = {});
  ~ProfiledSteps();
  /// Called in front of every step with its number, and after the last with the number of the next.
  void before(std::int64_t step);
  /// Null until the first of the steps.
  Profiler* profiler() { return profiler_ ? &*profiler_ : nullptr; }

 private:
  StepWindow window_, by_cupti_;
  State state_;
  Detail detail_;
  std::optional<Profiler> profiler_;
  std::optional<CuptiWindow> cupti_;
  std::unique_ptr<Profiler::Beside> beside_;  // until there is a profiler
  std::int64_t began_ns_ = 0;                 // of the step that goes on; 0 before the first
  bool is_recorded_ = false;                  // that step
};

/// A stretch of a program with a name of its own in reports and timelines: reading a file, a phase of training. Costs
/// one load while nothing is recorded. Of the thread that makes it, which ends it.
class ProfileRange {
 public:
  explicit ProfileRange(std::string_view name);
  ~ProfileRange();
  ProfileRange(const ProfileRange&) = delete;
  ProfileRange& operator=(const ProfileRange&) = delete;

  /// Whether anybody wants arguments: worth asking before computing expensive ones.
  bool is_recorded() const { return on_; }
  /// Describes the range: set("rows", 32), set("file", path). Timelines show the value with the range, reports sum it
  /// up; a later value of the same name replaces an earlier one. Nothing is done while nothing is recorded. A range
  /// that is still under way when the recording ends has no arguments.
  ProfileRange& set(std::string_view name, std::integral auto value) {
    if (on_) [[unlikely]]
      keep(name, static_cast<std::int64_t>(value));
    return *this;
  }
  ProfileRange& set(std::string_view name, std::floating_point auto value) {
    if (on_) [[unlikely]]
      keep(name, static_cast<double>(value));
    return *this;
  }
  ProfileRange& set(std::string_view name, std::string_view value) {
    if (on_) [[unlikely]]
      keep(name, value);
    return *this;
  }

 private:
  struct Arguments;
  void keep(std::string_view name, std::int64_t value);
  void keep(std::string_view name, double value);
  void keep(std::string_view name, std::string_view value);

  bool on_;
  std::unique_ptr<Arguments> arguments_;  // null until there is one
  std::uint32_t site_ = 0, around_ = 0;
  std::uint64_t start_ = 0;
};

/// A moment of the calling thread's with a name of its own in reports and timelines: an epoch begins, a checkpoint is
/// written. Costs one load while nothing is recorded.
void profile_instant(std::string_view name);

/// For command lines: "cpu", "gpu", "all", in any case. Error (argument) lists the choices.
State parse_state(std::string_view text);
/// "op", "phases", "instances" or "Default", "OpDetail", "AllOpDetail", in any case. Errors as parse_state.
Detail parse_detail(std::string_view text);
/// "none", "calls", "total", "max", "min", "average" or "ave", in any case. Error (argument) lists the choices.
SortBy parse_sort(std::string_view text);
/// "op" or "scope", in any case. Error (argument) lists the choices.
Nesting parse_nesting(std::string_view text);

/// "text", "json", "csv", in any case. Error (argument) lists the choices.
ReportFormat parse_format(std::string_view text);
/// "2:8" is steps 2 to 7, "5" is step 5 alone. Error (argument) when it is neither, or no step is in it.
StepWindow parse_steps(std::string_view text);

/// "CPU", "GPU", "All".
std::string_view to_string(State state);
/// "op", "phases", "instances".
std::string_view to_string(Detail detail);
/// "none", "calls", "total", "max", "min", "average".
std::string_view to_string(SortBy sort);

}  // namespace paoding
