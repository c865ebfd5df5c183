// SPDX-License-Identifier: Apache-2.0
// Steps of a trace that marks none: a range of the user's, or of an optimizer, that comes again and again.
#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>

#include "findings/steps_builder.h"

namespace paoding::findings {

using namespace profile;

namespace {

constexpr std::size_t kLeastTurns = 5;

// The thread that is the cause of most work.
TrackId busiest_launcher(const Steps& steps) {
  const Trace& trace = steps.trace();
  std::vector<std::size_t> launched(trace.tracks().size());
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i) && trace.cause(i) != kNone) ++launched[trace.track_id(trace.cause(i))];
  }
  const auto most = std::ranges::max_element(launched);
  return most == launched.end() || *most == 0 ? kNone : static_cast<TrackId>(most - launched.begin());
}

// Work that the process launched until a moment.
class LaunchedUntil {
 public:
  LaunchedUntil(const Trace& trace, ProcessId process) {
    for (SpanId i = 0; i < trace.size(); ++i) {
      const SpanId cause = trace.on_gpu(i) ? trace.cause(i) : kNone;
      if (cause != kNone && trace.track(i).process == process) times_.push_back(trace.start(cause));
    }
    std::ranges::sort(times_);
  }
  double between(std::int64_t from, std::int64_t to) const { return count(to) - count(from); }
  double all() const { return static_cast<double>(times_.size()); }

 private:
  double count(std::int64_t ns) const {
    return static_cast<double>(std::ranges::lower_bound(times_, ns) - times_.begin());
  }
  std::vector<std::int64_t> times_;
};

// From each beginning to the next, where about as much is launched in most of them, and little outside.
bool is_a_loop(const std::vector<Interval>& turns, const LaunchedUntil& launched) {
  constexpr double kAlike = 0.05, kMost = 0.8;
  std::vector<double> counts;
  for (const Interval& turn : turns) counts.push_back(launched.between(turn.start, turn.end));
  std::vector<double> sorted = counts;
  std::ranges::sort(sorted);
  const double middle = sorted[sorted.size() / 2];
  if (middle < 1) return false;
  const auto alike = std::ranges::count_if(counts, [&](double n) { return std::abs(n - middle) <= kAlike * middle; });
  return static_cast<double>(alike) >= kMost * static_cast<double>(counts.size()) &&
         std::accumulate(counts.begin(), counts.end(), 0.0) >= kMost * launched.all();
}

}  // namespace

std::vector<Interval> repeated_ranges(const Steps& steps, TrackId* track, std::string* by) {
  const Trace& trace = steps.trace();
  const TrackId busiest = busiest_launcher(steps);
  if (busiest == kNone) return {};
  const ProcessId process = trace.tracks()[busiest].process;
  struct Turns {
    TrackId track;
    SiteId site;
    std::vector<std::int64_t> starts;
  };
  std::map<std::pair<TrackId, SiteId>, Turns> all;
  for (TrackId t = 0; t < trace.tracks().size(); ++t) {
    if (trace.tracks()[t].kind != TrackKind::thread || trace.tracks()[t].process != process) continue;
    for (SpanId i = steps.spans(t).begin; i < steps.spans(t).end; ++i) {
      if (trace.kind(i) != SpanKind::range && trace.kind(i) != SpanKind::feed) continue;
      bool is_outermost = true;
      for (SpanId p = trace.parent(i); p != kNone && is_outermost; p = trace.parent(p)) {
        is_outermost = trace.kind(p) != SpanKind::range && trace.kind(p) != SpanKind::feed;
      }
      if (!is_outermost) continue;
      Turns& turns = all.try_emplace({t, trace.site_id(i)}, Turns{t, trace.site_id(i), {}}).first->second;
      turns.starts.push_back(trace.start(i));
    }
  }
  const LaunchedUntil launched(trace, process);
  const Turns* best = nullptr;
  std::vector<Interval> best_turns;
  for (const auto& [key, turns] : all) {
    if (turns.starts.size() < kLeastTurns + 1) continue;
    if (best != nullptr && turns.starts.size() >= best->starts.size()) continue;
    std::vector<Interval> of;
    for (std::size_t i = 0; i + 1 < turns.starts.size(); ++i) of.push_back({turns.starts[i], turns.starts[i + 1]});
    if (!is_a_loop(of, launched)) continue;
    best = &turns, best_turns = std::move(of);
  }
  if (best == nullptr) return {};
  *track = best->track;
  const Site& site = trace.sites()[best->site];
  *by = trace.text(site.name != 0 ? site.name : site.op);
  return best_turns;
}

}  // namespace paoding::findings
