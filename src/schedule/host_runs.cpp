// SPDX-License-Identifier: Apache-2.0
#include "schedule/host_runs.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/one_line.h"

namespace paoding {
namespace {

template <class Visit>
void for_each_step(const Step& step, const Visit& visit) {
  visit(&step);
  for (const auto* body : step.bodies()) {
    for (const Step& inner : *body) for_each_step(inner, visit);
  }
}

// The segment's own launches have each operand where the program's have it, beside the begin of its window.
HostRun run_of(const HostSegment& segment, std::size_t number, const std::vector<Launch>& own,
               const std::vector<Launch>& launches, std::size_t first) {
  const std::vector<HostWindow>& windows = segment.windows;
  std::vector<std::int64_t> begins(windows.size(), 0);
  for (std::size_t j = 0; j < own.size(); ++j) {
    PD_ASSERT(first + j < launches.size() && launches[first + j].kind == own[j].kind, "a segment comes as a whole");
    for (std::size_t i = 0; i < own[j].addresses.size(); ++i) {
      const auto& [window, offset] = own[j].addresses[i];
      begins[static_cast<std::size_t>(window)] = launches[first + j].addresses[i].second - offset;
    }
  }
  HostRun run{first, first + own.size(), number, {}};
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const std::int64_t begin = begins[k] + windows[k].lead, end = begin + windows[k].bytes;
    for (std::size_t other = 0; other < k; ++other) {
      const bool is_written = windows[k].is_output || windows[other].is_output;
      const std::int64_t from = begins[other] + windows[other].lead, to = from + windows[other].bytes;
      if (windows[other].slot != windows[k].slot || !is_written || end <= from || to <= begin) continue;
      const StepLabel& label = launches[first].step->label;
      fail(ErrorKind::unsupported,
           "{}: is to run on the CPU{}, in a loop that runs on the GPU, and what it writes lies in what it reads"
           "\nhint: the whole loop can be OnCpu",
           one_line(label.op), in_scope(label.scope));
    }
    run.at.push_back(begin);
  }
  return run;
}

}  // namespace

const HostRun* HostRuns::find(std::size_t launch) const {
  const auto found = std::ranges::lower_bound(runs, launch, {}, &HostRun::first);
  return found == runs.end() || found->first != launch ? nullptr : &*found;
}

bool HostRuns::begins_in(std::size_t begin, std::size_t end) const {
  const auto found = std::ranges::lower_bound(runs, begin, {}, &HostRun::first);
  return found != runs.end() && found->first < end;
}

HostRuns host_runs_of(const Plan& plan, const std::vector<Launch>& launches) {
  HostRuns made;
  made.segments = host_segments(plan);
  if (made.segments.empty()) return made;
  std::unordered_map<const Step*, std::size_t> segment_of;
  std::vector<std::vector<Launch>> own;  // per segment
  for (const auto& segment : made.segments) {
    for (std::size_t i = segment->first; i < segment->end; ++i) {
      for_each_step((*segment->list)[i], [&](const Step* step) { segment_of.emplace(step, own.size()); });
    }
    own.push_back(unroll(segment->plan));
  }
  for (std::size_t i = 0; i < launches.size();) {
    const auto found = segment_of.find(launches[i].step);
    if (found == segment_of.end()) {
      ++i;
      continue;
    }
    const std::size_t number = found->second;
    made.runs.push_back(run_of(*made.segments[number], number, own[number], launches, i));
    i = made.runs.back().end;
  }
  return made;
}

}  // namespace paoding
