// SPDX-License-Identifier: Apache-2.0
// The nodes of the graph, in the order of their times.
#include <algorithm>

#include "findings/replay_builder.h"
#include "profile/step_times.h"

namespace paoding::findings {

using namespace profile;

namespace {

bool is_gpu_work(const Trace& trace, SpanId i) {
  const SpanKind kind = trace.kind(i);
  return trace.on_gpu(i) &&
         (kind == SpanKind::kernel || kind == SpanKind::replay || kind == SpanKind::memcpy || kind == SpanKind::memset);
}

// Spans in which a thread is busy; the others only group them.
bool is_busy_kind(SpanKind kind) {
  return kind != SpanKind::range && kind != SpanKind::step && kind != SpanKind::frame && kind != SpanKind::run &&
         kind != SpanKind::instant && kind != SpanKind::recording;
}

std::int64_t sum_of(const std::vector<Interval>& united) {
  std::int64_t sum = 0;
  for (const Interval& i : united) sum += i.end - i.start;
  return sum;
}

constexpr std::size_t kEnough = 8;  // samples for a median

}  // namespace

Replay::Replay(const Steps& steps) : steps_(steps) {
  if (steps.count() > 0) ReplayBuilder(steps, this).build();
}

void ReplayBuilder::build() {
  find_window();
  made_.origin_ = from_;
  made_.host_of_.assign(trace_.tracks().size(), kNone);
  made_.node_of_.assign(trace_.size(), kNone);
  made_.begin_of_.assign(steps_.count(), kNone), made_.end_of_.assign(steps_.count(), kNone);
  find_hosts();
  add_streams();
  find_usual();
  merge_entries();
  number_nodes();
  link_collectives();
  measure();
}

void ReplayBuilder::find_window() {
  from_ = steps_.of().front().start, to_ = until_ = steps_.of().back().end;
  processes_.assign(std::max<std::size_t>(trace_.processes().size(), 1), false);
  for (ProcessId p = 0; p < trace_.processes().size(); ++p) processes_[p] = trace_.processes()[p].rank >= 0;
  processes_[steps_.process()] = true;
  for (const SpanId i : steps_.device_spans()) {
    if (trace_.cause(i) == kNone) continue;
    if (is_in_window(trace_.cause(i))) until_ = std::max(until_, trace_.end(i));
    launch_times_.push_back(trace_.start(trace_.cause(i)));
    work_ends_.push_back(trace_.end(i));
  }
  std::ranges::sort(launch_times_), std::ranges::sort(work_ends_);
}

// Threads that are never busy at once take turns, as PyTorch's and its autograd engine's: they are one host.
void ReplayBuilder::find_hosts() {
  constexpr double kMostOverlap = 0.02;
  std::vector<bool> launches(trace_.tracks().size());
  for (SpanId i = 0; i < trace_.size(); ++i) {
    if (is_gpu_work(trace_, i) && trace_.cause(i) != kNone && is_in_window(trace_.cause(i)))
      launches[trace_.track_id(trace_.cause(i))] = true;
  }
  launches[steps_.track()] = true;
  struct Group {
    ProcessId process;
    std::vector<TrackId> tracks;
    std::vector<Interval> busy;
  };
  std::vector<Group> groups;
  for (TrackId track = 0; track < launches.size(); ++track) {
    if (!launches[track] || !has_process(track)) continue;
    std::vector<Interval> busy;
    for (SpanId i = steps_.spans(track).begin; i < steps_.spans(track).end; ++i) {
      if (is_busy_kind(trace_.kind(i)) && is_in_window(i)) append(busy, {trace_.start(i), trace_.end(i)});
    }
    unite(busy);
    const ProcessId process = trace_.tracks()[track].process;
    const auto takes_turns = [&](const Group& group) {
      if (group.process != process) return false;
      std::vector<Interval> both = group.busy;
      both.insert(both.end(), busy.begin(), busy.end());
      unite(both);
      const std::int64_t overlap = sum_of(group.busy) + sum_of(busy) - sum_of(both);
      const std::int64_t less = std::min(sum_of(group.busy), sum_of(busy));
      return static_cast<double>(overlap) <= kMostOverlap * static_cast<double>(less);
    };
    const auto found = std::ranges::find_if(groups, takes_turns);
    if (found == groups.end()) {
      groups.push_back({process, {track}, std::move(busy)});
    } else {
      found->tracks.push_back(track);
      found->busy.insert(found->busy.end(), busy.begin(), busy.end());
      unite(found->busy);
    }
  }
  made_.hosts_.resize(groups.size());
  for (std::uint32_t host = 0; host < groups.size(); ++host) {
    for (const TrackId track : groups[host].tracks) made_.host_of_[track] = host;
  }
  stepping_host_ = made_.host_of_[steps_.track()];
  for (std::uint32_t host = 0; host < groups.size(); ++host) {
    if (host != stepping_host_ && groups[host].process == steps_.process()) find_bursts(host, groups[host].tracks);
  }
  std::ranges::stable_sort(bursts_, {}, &Burst::start);
  add_host(stepping_host_, groups[stepping_host_].tracks);  // first, so that at equal times it is in front
  for (std::uint32_t host = 0; host < groups.size(); ++host) {
    if (host != stepping_host_) add_host(host, groups[host].tracks);
  }
}

// Stretches without a pause in which a thread is at something that the thread that steps handed to it.
void ReplayBuilder::find_bursts(std::uint32_t host, const std::vector<TrackId>& tracks) {
  constexpr std::int64_t kPause = 20'000;
  std::vector<Interval> busy;
  for (const TrackId track : tracks) {
    for (SpanId i = steps_.spans(track).begin; i < steps_.spans(track).end; ++i) {
      const bool is_busy = is_busy_kind(trace_.kind(i)) && trace_.kind(i) != SpanKind::wait;
      if (is_busy && is_in_window(i)) busy.push_back({trace_.start(i), trace_.end(i)});
    }
  }
  unite(busy);
  for (const Interval& one : busy) {
    if (!bursts_.empty() && bursts_.back().host == host && one.start < bursts_.back().end + kPause) {
      bursts_.back().end = std::max(bursts_.back().end, one.end);
    } else {
      bursts_.push_back({.start = one.start, .end = one.end, .host = host});
    }
  }
}

void ReplayBuilder::add_host(std::uint32_t host, const std::vector<TrackId>& tracks) {
  const auto begin = static_cast<std::ptrdiff_t>(entries_.size());
  for (const TrackId track : tracks) {
    find_events(track);
    for (SpanId i = steps_.spans(track).begin; i < steps_.spans(track).end; ++i) {
      if (!is_in_window(i)) continue;
      const bool launches = !steps_.launched_by(i).empty();
      const bool waits = waits_.may_wait(i) || fills_queue(i);
      if (launches || waits) entries_.push_back({.key = trace_.start(i), .span = i, .host = host, .type = Type::host});
      if (waits) entries_.push_back({.key = trace_.end(i), .span = i, .host = host, .type = Type::resume});
    }
  }
  if (stepping_host_ == host) {
    for (std::uint32_t b = 0; b < bursts_.size(); ++b) {
      entries_.push_back({.key = bursts_[b].start, .host = host, .burst = b, .type = Type::host});
    }
    for (std::uint32_t k = 0; k < steps_.count(); ++k) {
      entries_.push_back({.key = steps_.of()[k].start, .host = host, .marks = 2 * k, .type = Type::host});
      entries_.push_back({.key = steps_.of()[k].end, .host = host, .marks = 2 * k + 1, .type = Type::host});
    }
  }
  std::stable_sort(entries_.begin() + begin, entries_.end(),
                   [](const Entry& a, const Entry& b) { return a.key < b.key; });
  runs_.push_back(static_cast<std::size_t>(begin));
}

// A launch that has to wait until there is room for it: a queue holds about a thousand.
bool ReplayBuilder::fills_queue(SpanId launch) const {
  constexpr std::int64_t kLong = 100'000;
  constexpr std::ptrdiff_t kMany = 500;
  if (trace_.kind(launch) != SpanKind::launch || trace_.duration(launch) < kLong) return false;
  const std::int64_t now = trace_.start(launch);
  const auto launched = std::ranges::upper_bound(launch_times_, now) - launch_times_.begin();
  const auto ended = std::ranges::upper_bound(work_ends_, now) - work_ends_.begin();
  return launched - ended >= kMany;
}

void ReplayBuilder::add_streams() {
  for (TrackId track = 0; track < trace_.tracks().size(); ++track) {
    if (trace_.tracks()[track].kind == TrackKind::thread || !has_process(track)) continue;
    const auto begin = static_cast<std::ptrdiff_t>(entries_.size());
    for (SpanId i = steps_.spans(track).begin; i < steps_.spans(track).end; ++i) {
      if (!is_gpu_work(trace_, i)) continue;
      const SpanId cause = trace_.cause(i);
      const bool is_launched = cause != kNone && is_in_window(cause);
      const bool is_beside =
          cause == kNone || trace_.start(cause) < from_;  // runs in the window, launched who knows where
      if (!is_launched && !(is_beside && trace_.end(i) > from_ && trace_.start(i) < until_)) continue;
      const std::int64_t launched = is_launched ? trace_.start(cause) : trace_.start(i);
      entries_.push_back({.key = std::max(trace_.start(i), launched), .span = i, .type = Type::work});
    }
    const auto by_key = [](const Entry& a, const Entry& b) { return a.key < b.key; };
    if (!std::is_sorted(entries_.begin() + begin, entries_.end(), by_key)) {
      std::stable_sort(entries_.begin() + begin, entries_.end(), by_key);
    }
    runs_.push_back(static_cast<std::size_t>(begin));
  }
}

// How long after a launch an idle GPU begins, and how far works of a busy stream are apart, at the median.
void ReplayBuilder::find_usual() {
  std::vector<std::int64_t> latencies, gaps, wakes;
  for (const bool are_gaps : {false, true}) {
    SpanId before = kNone;
    for (const Entry& entry : entries_) {
      if (entry.type != Type::work) continue;
      const SpanId i = entry.span, cause = trace_.cause(i);
      const bool follows = before != kNone && trace_.track_id(before) == trace_.track_id(i);
      const std::int64_t free_at = follows ? trace_.end(before) : from_;
      const bool is_same = follows && cause != kNone && trace_.cause(before) == cause;
      if (!are_gaps && cause != kNone && !is_same && free_at <= trace_.start(cause)) {
        const std::int64_t latency = trace_.start(i) - trace_.start(cause);
        if (latency >= 0 && latency < 200'000) latencies.push_back(latency);
      }
      if (are_gaps && follows && (is_same || cause == kNone || trace_.start(cause) + made_.latency_ <= free_at)) {
        const std::int64_t gap = trace_.start(i) - free_at;
        if (std::abs(gap) < 20'000) gaps.push_back(gap);
      }
      before = i;
    }
    constexpr std::int64_t kLatency = 5'000, kGap = 1'000;
    if (!are_gaps) made_.latency_ = latencies.size() < kEnough ? kLatency : median(std::move(latencies));
    if (are_gaps) made_.gap_ = gaps.size() < kEnough ? kGap : std::max<std::int64_t>(0, median(std::move(gaps)));
  }
  for (const Wait& wait : steps_.waits()) {
    if (wait.for_work == kNone || trace_.end(wait.for_work) <= trace_.start(wait.span)) continue;
    wakes.push_back(trace_.end(wait.span) - trace_.end(wait.for_work));
  }
  constexpr std::int64_t kWake = 10'000;
  made_.wake_ = wakes.size() < kEnough ? kWake : std::max<std::int64_t>(0, median(std::move(wakes)));
}

// Hosts and streams are in order each; at equal times the host comes first, which launches.
void ReplayBuilder::merge_entries() {
  const auto is_before = [](const Entry& a, const Entry& b) {
    return a.key != b.key ? a.key < b.key : (a.type != Type::work && b.type == Type::work);
  };
  runs_.push_back(entries_.size());
  std::vector<std::size_t> bounds = runs_;
  while (bounds.size() > 2) {
    std::vector<std::size_t> merged{bounds.front()};
    for (std::size_t i = 2; i < bounds.size(); i += 2) {
      const auto at = [&](std::size_t b) { return entries_.begin() + static_cast<std::ptrdiff_t>(bounds[b]); };
      std::inplace_merge(at(i - 2), at(i - 1), at(i), is_before);
      merged.push_back(bounds[i]);
    }
    if (merged.back() != bounds.back()) merged.push_back(bounds.back());
    bounds = std::move(merged);
  }
}

void ReplayBuilder::number_nodes() {
  const std::size_t count = entries_.size();
  made_.nodes_.resize(count), made_.durations_.assign(count, 0), made_.fixed_.assign(count, 0);
  launch_node_.assign(trace_.size(), kNone);
  next_burst_.assign(made_.hosts_.size(), 0);
  streams_.resize(trace_.tracks().size());
  for (NodeId n = 0; n < count; ++n) {
    const Entry& entry = entries_[n];
    Node& node = made_.nodes_[n];
    node.type = entry.type;
    made_.fixed_[n] = entry.key - from_;
    if (entry.type == Type::work) {
      made_.node_of_[entry.span] = n;
      made_.durations_[n] = trace_.duration(entry.span);
      link_work(n, entry.span);
      continue;
    }
    Replay::Host& host = made_.hosts_[entry.host];
    if (!host.nodes.empty()) {
      node.first = host.nodes.back();
      node.first_ns = entry.key - host.times.back();
    }
    if (entry.burst != kNone) bursts_[entry.burst].node = n;
    if (entry.host != stepping_host_) follow_burst(entry, &node);
    host.nodes.push_back(n), host.times.push_back(entry.key);
    if (entry.marks != kNone) {
      (entry.marks % 2 == 0 ? made_.begin_of_ : made_.end_of_)[entry.marks / 2] = n;
    } else if (entry.type == Type::host && entry.span != kNone) {
      launch_node_[entry.span] = n;
    } else if (entry.type == Type::resume) {
      link_wait(n, entry.span);
    }
  }
}

void ReplayBuilder::follow_burst(const Entry& entry, Node* node) {
  std::size_t& at = next_burst_[entry.host];
  const auto is_over = [&](const Burst& burst) { return burst.host != entry.host || burst.end < entry.key; };
  while (at < bursts_.size() && is_over(bursts_[at])) ++at;
  if (at >= bursts_.size() || bursts_[at].start > entry.key || bursts_[at].is_begun || bursts_[at].node == kNone)
    return;
  bursts_[at].is_begun = true;
  node->first = bursts_[at].node;
  node->first_ns = entry.key - bursts_[at].start;
}

void ReplayBuilder::measure() {
  std::vector<Interval> steps;
  std::vector<std::int64_t> work_ends(steps_.count(), 0);
  for (const Interval& step : steps_.of()) steps.push_back({step.start - from_, step.end - from_});
  for (NodeId n = 0; n < made_.nodes_.size(); ++n) {
    const Node& node = made_.nodes_[n];
    if (node.type != Type::work || node.step == kNone) continue;
    work_ends[node.step] = std::max(work_ends[node.step], trace_.end(entries_[n].span) - from_);
  }
  made_.measured_ns_ = all_steps_ns(steps, work_ends);
  const std::int64_t replayed = made_.step_ns() * static_cast<std::int64_t>(steps_.count());
  if (made_.measured_ns_ > 0) {
    made_.error_ =
        static_cast<double>(std::abs(replayed - made_.measured_ns_)) / static_cast<double>(made_.measured_ns_);
  }
}

}  // namespace paoding::findings
