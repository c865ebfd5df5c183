// SPDX-License-Identifier: Apache-2.0
// The profiler as programs use it: start, run, stop, read the text. Nothing here prints.
#pragma once

#include <memory>
#include <string>
#include <string_view>

namespace paoding {

namespace profile {
class Trace;  // src/profile/trace.h
}

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

/// What the rows of a report are nested by.
enum class Nesting {
  op,     // by the op that ran an op or a copy
  scope,  // besides, ops by the scopes that they were built in (class Scope): "decoder" > "decoder/attention" > op
};

/// How a report is laid out.
struct ReportLayout {
  Nesting nesting = Nesting::op;
  int width = 0;              // event names are cut to this many characters; 0: never
  bool share_groups = false;  // time of a fused group goes to its ops by their bytes
};

/// Starts recording in every thread of the process.
/// Error (argument) when a recording is already under way: there is one at a time.
void start_profiler(State state = State::all, Detail detail = Detail::op);

/// Stops the recording and returns its report. A `path` ending in .json also gets the timeline (Chrome trace format).
/// Error (argument) when nothing is being recorded or the path has another ending (the recording then goes on),
/// (file) when the timeline cannot be written.
std::string stop_profiler(SortBy sort = SortBy::total, const std::string& path = "", const ReportLayout& layout = {});

/// The same as an object: records from construction to stop(), or to the end of its life (then without a report).
/// Errors as start_profiler and stop_profiler.
class Profiler {
 public:
  explicit Profiler(State state = State::all, Detail detail = Detail::op);
  ~Profiler();
  Profiler(const Profiler&) = delete;
  Profiler& operator=(const Profiler&) = delete;

  /// Ends the recording at the first call; a later call reports the same recording again, sorted and laid out as asked.
  std::string stop(SortBy sort = SortBy::total, const std::string& path = "", const ReportLayout& layout = {});

  /// What was recorded. Error (argument) before stop().
  const profile::Trace& trace() const;

 private:
  State state_;
  Detail detail_;
  std::unique_ptr<profile::Trace> trace_;  // null while recording
};

/// For command lines: "cpu", "gpu", "all", in any case. Error (argument) lists the choices.
State parse_state(std::string_view text);
/// "op", "phases", "instances" or "Default", "OpDetail", "AllOpDetail", in any case. Errors as parse_state.
Detail parse_detail(std::string_view text);
/// "none", "calls", "total", "max", "min", "average" or "ave", in any case. Error (argument) lists the choices.
SortBy parse_sort(std::string_view text);
/// "op" or "scope", in any case. Error (argument) lists the choices.
Nesting parse_nesting(std::string_view text);

/// "CPU", "GPU", "All".
std::string_view to_string(State state);
/// "op", "phases", "instances".
std::string_view to_string(Detail detail);
/// "none", "calls", "total", "max", "min", "average".
std::string_view to_string(SortBy sort);

}  // namespace paoding
