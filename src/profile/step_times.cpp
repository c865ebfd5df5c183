// SPDX-License-Identifier: Apache-2.0
#include "profile/step_times.h"

#include <algorithm>
#include <array>
#include <map>

namespace paoding::profile {

namespace {

struct TimedStep {
  std::int64_t start, end;
  std::array<std::int64_t, kHostUses> uses{};
};

// As they were marked, of the thread with the most.
std::vector<TimedStep> marked_steps(const Trace& trace, TrackId* track) {
  std::map<TrackId, std::vector<TimedStep>> marked;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i) || trace.kind(i) != SpanKind::step) continue;
    const SpanId p = trace.parent(i);
    if (p == kNone || trace.kind(p) != SpanKind::step)
      marked[trace.track_id(i)].push_back({trace.start(i), trace.end(i)});
  }
  const auto most = std::ranges::max_element(marked, {}, [](const auto& one) { return one.second.size(); });
  if (most == marked.end()) return {};
  *track = most->first;
  return most->second;
}

// The steps of the thread with the most runs, where none are marked. A run that is cut is no step. The last step ends
// where all that its run started has ended.
std::vector<TimedStep> steps_of(const Trace& trace, TrackId* track, bool* are_marked) {
  std::vector<TimedStep> marked = marked_steps(trace, track);
  *are_marked = !marked.empty();
  if (*are_marked) return marked;
  std::map<TrackId, std::vector<SpanId>> runs;
  for (const SpanId run : trace.runs()) {
    const bool is_inside = trace.parent(run) != kNone && trace.run(trace.parent(run)) != 0;
    if (!is_inside && !trace.on_gpu(run) && !trace.cut(run).at_start) runs[trace.track_id(run)].push_back(run);
  }
  const auto most = std::max_element(runs.begin(), runs.end(),
                                     [](const auto& a, const auto& b) { return a.second.size() < b.second.size(); });
  if (most == runs.end()) return {};
  *track = most->first;
  std::vector<TimedStep> steps;
  for (const SpanId run : most->second) {
    if (!steps.empty()) steps.back().end = trace.start(run);
    steps.push_back({trace.start(run), trace.end(run)});
  }
  const std::uint32_t last = trace.run(most->second.back());
  for (SpanId i = 0; i < trace.size() && last != 0; ++i) {
    if (trace.on_gpu(i) && trace.run(i) == last) steps.back().end = std::max(steps.back().end, trace.end(i));
  }
  return steps;
}

// The op that took longest in the step beyond its share of all steps.
std::string slowest_op(const Trace& trace, const std::vector<UseSegment>& segments, const std::vector<TimedStep>& steps,
                       const TimedStep& worst) {
  std::map<std::string_view, double> excess;
  const auto count = static_cast<double>(steps.size());
  for (const UseSegment& s : segments) {
    if (s.use != HostUse::ops || s.span == kNone) continue;
    const std::int64_t inside = std::min(s.end, worst.end) - std::max(s.start, worst.start);
    const std::string_view op = trace.text(trace.site(s.span).op);
    excess[op] += static_cast<double>(std::max<std::int64_t>(inside, 0)) - static_cast<double>(s.end - s.start) / count;
  }
  const auto most =
      std::max_element(excess.begin(), excess.end(), [](const auto& a, const auto& b) { return a.second < b.second; });
  return most == excess.end() || most->first.empty() ? "ops" : "ops: " + std::string(most->first);
}

}  // namespace

std::int64_t median(std::vector<std::int64_t> all) {
  const auto middle = all.begin() + static_cast<std::ptrdiff_t>(all.size() / 2);
  std::nth_element(all.begin(), middle, all.end());
  return *middle;
}

Steps find_steps(const Trace& trace) {
  Steps steps;
  for (const TimedStep& step : steps_of(trace, &steps.track, &steps.are_marked))
    steps.of.push_back({step.start, step.end});
  return steps;
}

StepTimes step_times(const Trace& trace, const std::vector<ThreadTime>& threads) {
  StepTimes times;
  TrackId track = kNone;
  std::vector<TimedStep> steps = steps_of(trace, &track, &times.are_marked);
  if (steps.empty()) return times;
  times.thread = trace.track_name(track);
  const std::vector<UseSegment>& segments = threads[track].segments;
  std::vector<std::int64_t> lengths;
  std::size_t at = 0;
  for (TimedStep& step : steps) {
    lengths.push_back(step.end - step.start);
    times.of.push_back({step.start - trace.window_start(), step.end - trace.window_start()});
    while (at < segments.size() && segments[at].end <= step.start) ++at;
    for (std::size_t s = at; s < segments.size() && segments[s].start < step.end; ++s) {
      step.uses[static_cast<std::size_t>(segments[s].use)] +=
          std::min(segments[s].end, step.end) - std::max(segments[s].start, step.start);
    }
  }
  const auto worst = std::max_element(lengths.begin(), lengths.end()) - lengths.begin();
  const TimedStep& slow = steps[static_cast<std::size_t>(worst)];
  times.count = steps.size();
  times.p50 = median(lengths);
  times.worst = lengths[static_cast<std::size_t>(worst)];
  times.worst_step = static_cast<std::uint64_t>(worst) + 1;
  times.more_ns = times.worst - times.p50;
  std::sort(lengths.begin(), lengths.end());
  times.p99 = lengths[(lengths.size() * 99 + 99) / 100 - 1];
  for (std::size_t use = 0; use < kHostUses; ++use) {
    std::vector<std::int64_t> all;
    for (const TimedStep& step : steps) all.push_back(step.uses[use]);
    const std::int64_t more = slow.uses[use] - median(std::move(all));
    if (more <= times.why_ns) continue;
    times.why_ns = more;
    times.why = use == static_cast<std::size_t>(HostUse::ops) ? slowest_op(trace, segments, steps, slow)
                                                              : std::string(to_string(static_cast<HostUse>(use)));
  }
  return times;
}

}  // namespace paoding::profile
