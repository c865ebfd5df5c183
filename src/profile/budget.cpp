// SPDX-License-Identifier: Apache-2.0
// One sweep over each track. At every moment the innermost span decides the use of a thread's time, and the idle time
// of a GPU gets the use of the thread that launches next.
#include "profile/budget.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <map>

#include "profile/intervals.h"
#include "profile/thread_roles.h"

namespace paoding::profile {

std::string_view to_string(HostUse use) {
  switch (use) {
    case HostUse::ops: return "ops";
    case HostUse::run: return "run, between ops";
    case HostUse::launch: return "launch";
    case HostUse::wait: return "wait";
    case HostUse::feed: return "feed";
    case HostUse::fetch: return "fetch";
    case HostUse::copy: return "copy";
    case HostUse::compile: return "compile";
    case HostUse::recording: return "recording";
    case HostUse::unseen: return "not seen";
    case HostUse::blocked: return "blocked";
    case HostUse::idle: return "idle or not recorded";
    case HostUse::yours: return "your code";
  }
  return "?";
}

std::string_view to_string(GpuUse use) {
  switch (use) {
    case GpuUse::kernels: return "kernels";
    case GpuUse::copies: return "exposed copies";
    case GpuUse::fills: return "exposed fills";
    case GpuUse::inside_graph: return "idle: inside a launch";
    case GpuUse::queued: return "idle: between kernels";
    case GpuUse::launch: return "idle: launch";
    case GpuUse::feed: return "idle: feed";
    case GpuUse::fetch: return "idle: fetch";
    case GpuUse::sync: return "idle: sync";
    case GpuUse::compile: return "idle: compile";
    case GpuUse::recording: return "idle: recording";
    case GpuUse::blocked: return "idle: blocked";
    case GpuUse::yours: return "idle: your code";
    case GpuUse::unseen: return "idle: not seen";
  }
  return "?";
}

namespace {

// The use by the span alone; spans around it may change it.
HostUse use_of(const Trace& trace, SpanId i) {
  switch (trace.kind(i)) {
    case SpanKind::run: return trace.cut(i).at_start ? HostUse::unseen : HostUse::run;
    case SpanKind::compile: return HostUse::compile;
    case SpanKind::feed: return HostUse::feed;
    case SpanKind::fetch: return HostUse::fetch;
    case SpanKind::launch: return HostUse::launch;
    case SpanKind::wait: return HostUse::wait;
    case SpanKind::memcpy:
    case SpanKind::memset: return HostUse::copy;
    case SpanKind::recording: return HostUse::recording;
    case SpanKind::range:
    case SpanKind::step:
    case SpanKind::frame:
    case SpanKind::host: return HostUse::yours;
    default: return HostUse::ops;
  }
}

HostUse use_inside(HostUse around, HostUse own) {
  if (around == HostUse::compile) return HostUse::compile;
  if (own == HostUse::copy && around != HostUse::yours && around != HostUse::run) return around;
  if (own == HostUse::yours && around != HostUse::yours) return around;  // host work of paoding's own
  return own;
}

class ThreadSweep {
 public:
  // For so many spans. `outside`: the use of time without a span, while the process was recorded.
  ThreadSweep(const Trace& trace, Window recorded, std::size_t spans, HostUse outside)
      : trace_(trace), recorded_(recorded), outside_(outside), at_(trace.window_start()) {
    made_.reserve(spans + spans / 2);
  }

  void open(SpanId i) {
    advance(trace_.start(i));
    const HostUse around = open_.empty() ? outside_ : open_.back().use;
    open_.push_back({trace_.end(i), use_inside(around, use_of(trace_, i)), i});
  }
  std::vector<UseSegment> finish() {
    advance(trace_.window_end());
    return std::move(made_);
  }

 private:
  struct Open {
    std::int64_t end;
    HostUse use;
    SpanId span;
  };

  void advance(std::int64_t until) {
    for (;;) {
      while (!open_.empty() && open_.back().end <= at_) open_.pop_back();
      if (at_ >= until) return;
      const Open now = open_.empty() ? outside(until) : open_.back();
      const std::int64_t end = std::min(now.end, until);
      made_.push_back({at_, end, now.use, now.span});
      at_ = end;
    }
  }

  Open outside(std::int64_t until) const {
    if (at_ < recorded_.start) return {std::min(until, recorded_.start), HostUse::unseen, kNone};
    if (at_ < recorded_.end) return {std::min(until, recorded_.end), outside_, kNone};
    return {until, HostUse::unseen, kNone};
  }

  const Trace& trace_;
  const Window recorded_;
  const HostUse outside_;
  std::int64_t at_;
  std::vector<Open> open_;
  std::vector<UseSegment> made_;
};

template <class Use, std::size_t N>
std::vector<BudgetPart> parts_of(const std::array<std::int64_t, N>& ns) {
  std::vector<BudgetPart> parts;
  for (std::size_t i = 0; i < N; ++i) {
    if (ns[i] > 0) parts.push_back({to_string(static_cast<Use>(i)), ns[i]});
  }
  return parts;
}

GpuUse idle_while(HostUse use) {
  switch (use) {
    case HostUse::wait: return GpuUse::sync;
    case HostUse::feed: return GpuUse::feed;
    case HostUse::fetch: return GpuUse::fetch;
    case HostUse::compile: return GpuUse::compile;
    case HostUse::recording: return GpuUse::recording;
    case HostUse::idle:
    case HostUse::unseen: return GpuUse::unseen;
    case HostUse::blocked: return GpuUse::blocked;
    case HostUse::yours: return GpuUse::yours;
    case HostUse::ops:
    case HostUse::run:
    case HostUse::launch:
    case HostUse::copy: return GpuUse::launch;
  }
  return GpuUse::unseen;
}

bool is_kernel(SpanKind kind) { return kind != SpanKind::memcpy && kind != SpanKind::memset; }

class GpuSweep {
 public:
  GpuSweep(const Trace& trace, ProcessId process, const std::vector<ThreadTime>& threads)
      : trace_(trace), process_(process), threads_(threads) {
    for (TrackId track = 0; track < threads.size(); ++track) {
      if (trace.tracks()[track].process != process || threads[track].segments.empty()) continue;
      if (threads[track].role == ThreadTime::Role::loop) loop_ = track;
      if (threads[track].role == ThreadTime::Role::engine) engines_.push_back(track);
      if (first_ == kNone) first_ = track;
    }
  }

  // `spans`: those of one device, in order of start.
  std::vector<BudgetPart> sweep(const std::vector<SpanId>& spans) {
    std::vector<Interval> busy;
    std::int64_t before_all = 0;
    const auto add = [&](GpuUse use, auto&& is_one) {
      for (const SpanId i : spans) {
        if (is_one(trace_.kind(i))) append(busy, {trace_.start(i), trace_.end(i)});
      }
      unite(busy);
      ns_[at(use)] = total(busy) - before_all;
      before_all = total(busy);
    };
    add(GpuUse::kernels, is_kernel);
    add(GpuUse::copies, [](SpanKind kind) { return kind == SpanKind::memcpy; });
    add(GpuUse::fills, [](SpanKind kind) { return kind == SpanKind::memset; });
    const std::vector<Interval> idle = gaps({{trace_.window_start(), trace_.window_end()}}, busy);
    std::size_t next = 0;  // the first span that starts behind the gap
    SpanId before = kNone;
    for (const Interval& gap : idle) {
      for (; next < spans.size() && trace_.start(spans[next]) < gap.end; ++next) {
        if (before == kNone || trace_.end(spans[next]) >= trace_.end(before)) before = spans[next];
      }
      add_gap(gap, before, next < spans.size() ? spans[next] : kNone);
    }
    return parts_of<GpuUse>(ns_);
  }

 private:
  static std::size_t at(GpuUse use) { return static_cast<std::size_t>(use); }
  static std::int64_t total(const std::vector<Interval>& united) {
    std::int64_t sum = 0;
    for (const Interval& i : united) sum += i.end - i.start;
    return sum;
  }

  void add_gap(Interval gap, SpanId before, SpanId after) {
    const SpanId cause = after == kNone ? kNone : trace_.cause(after);
    if (cause != kNone) {
      if (before != kNone && trace_.cause(before) == cause) {
        ns_[at(GpuUse::inside_graph)] += gap.end - gap.start;
        return;
      }
      launcher_ = trace_.track_id(cause);
      if (before != kNone && trace_.end(cause) <= gap.start) {  // the host was ahead
        ns_[at(GpuUse::queued)] += gap.end - gap.start;
        return;
      }
      const std::int64_t launched = std::clamp(trace_.start(cause), gap.start, gap.end);
      ns_[at(GpuUse::launch)] += gap.end - launched;
      gap.end = launched;
    }
    // The thread that launched last tells, or else the one that has the loop, or the first of the process.
    add_idle(gap, launcher_ != kNone ? launcher_ : loop_ != kNone ? loop_ : first_);
  }

  void add(GpuUse use, Interval of) { ns_[at(use)] += of.end - of.start; }

  // Calls `take` with every part of an interval that is one segment of a thread, and `rest` with the others.
  template <class Take, class Rest>
  void for_each_segment(Interval of, TrackId track, Take&& take, Rest&& rest) const {
    const std::vector<UseSegment>& host = threads_[track].segments;
    auto segment = std::upper_bound(host.begin(), host.end(), of.start,
                                    [](std::int64_t ns, const UseSegment& s) { return ns < s.end; });
    for (; segment != host.end() && segment->start < of.end; ++segment) {
      const Interval part{std::max(segment->start, of.start), std::min(segment->end, of.end)};
      if (part.start > of.start) rest(Interval{of.start, part.start});
      take(segment->use, part);
      of.start = part.end;
    }
    if (of.start < of.end) rest(of);
  }

  // The thread's use tells why the GPU is idle. One that is idle waits for the loop; the loop's is blocked while an
  // engine works.
  void add_idle(Interval gap, TrackId track) {
    if (track == kNone) return add(GpuUse::unseen, gap);
    for_each_segment(
        gap, track,
        [&](HostUse use, Interval part) {
          if (use == HostUse::idle && loop_ != kNone && track != loop_) {
            add_idle(part, loop_);
          } else if (use == HostUse::blocked && track == loop_) {
            add_blocked(part, 0);
          } else {
            add(idle_while(use), part);
          }
        },
        [&](Interval part) { add(GpuUse::unseen, part); });
  }
  void add_blocked(Interval gap, std::size_t engine) {
    if (engine == engines_.size()) return add(GpuUse::blocked, gap);
    const auto look_further = [&](Interval part) { add_blocked(part, engine + 1); };
    for_each_segment(
        gap, engines_[engine],
        [&](HostUse use, Interval part) { is_busy(use) ? add(idle_while(use), part) : look_further(part); },
        look_further);
  }

  const Trace& trace_;
  const ProcessId process_;
  const std::vector<ThreadTime>& threads_;
  TrackId launcher_ = kNone, loop_ = kNone, first_ = kNone;
  std::vector<TrackId> engines_;
  std::array<std::int64_t, kGpuUses> ns_{};
};

// A thread that does nothing but its part of parallel regions waits for the next in between.
bool is_worker(const Trace& trace, SpanId begin, SpanId end) {
  bool works = false;
  for (SpanId i = begin; i < end; ++i) {
    if (trace.kind(i) == SpanKind::instant || use_of(trace, i) == HostUse::unseen) continue;
    if (trace.kind(i) != SpanKind::work && trace.kind(i) != SpanKind::recording) return false;
    works = works || trace.kind(i) == SpanKind::work;
  }
  return works;
}

bool track_is_overhead(const Trace& trace, TrackId track) {
  return trace.text(trace.tracks()[track].name) == kOverheadTrack;
}

}  // namespace

std::vector<ThreadTime> thread_times(const Trace& trace) {
  std::vector<ThreadTime> made(trace.tracks().size());
  SpanId i = 0;
  for (TrackId track = 0; track < made.size(); ++track) {
    if (trace.tracks()[track].kind != TrackKind::thread) continue;
    while (i < trace.size() && trace.track_id(i) < track) ++i;
    SpanId end = i;
    while (end < trace.size() && trace.track_id(end) == track) ++end;
    made[track].is_worker = is_worker(trace, i, end);
    made[track].is_none = i < end && trace.source(i) != Source::paoding && track_is_overhead(trace, track);
    if (made[track].is_none) continue;
    const Window recorded = trace.window_of(trace.tracks()[track].process);
    ThreadSweep sweep(trace, recorded, end - i, made[track].is_worker ? HostUse::wait : HostUse::yours);
    for (; i < end; ++i) {
      if (trace.kind(i) != SpanKind::instant) sweep.open(i);
    }
    made[track].segments = sweep.finish();
  }
  tell_waits_from_code(trace, &made);
  return made;
}

std::string gpu_name(const Trace& trace, ProcessId process, int device) {
  const std::string of = trace.process_name(process);
  return fmt::format("{}{}GPU {}", of, of.empty() ? "" : " ", device);
}

std::vector<Budget> budgets(const Trace& trace, const std::vector<ThreadTime>& threads) {
  std::vector<Budget> made;
  for (TrackId track = 0; track < threads.size(); ++track) {
    if (trace.tracks()[track].kind != TrackKind::thread) continue;
    if (threads[track].is_none) continue;
    std::array<std::int64_t, kHostUses> ns{};
    for (const UseSegment& s : threads[track].segments) ns[static_cast<std::size_t>(s.use)] += s.end - s.start;
    made.push_back(
        {.of = trace.track_name(track), .is_worker = threads[track].is_worker, .parts = parts_of<HostUse>(ns)});
  }
  std::map<std::pair<ProcessId, int>, std::vector<SpanId>> devices;
  for (SpanId i = 0; i < trace.size(); ++i) {
    const bool has_length = trace.kind(i) != SpanKind::run && trace.kind(i) != SpanKind::instant;
    if (trace.on_gpu(i) && has_length) devices[{trace.track(i).process, trace.track(i).device}].push_back(i);
  }
  for (auto& [where, spans] : devices) {
    const auto [process, device] = where;
    const auto is_before = [&](SpanId a, SpanId b) { return trace.start(a) < trace.start(b); };
    if (!std::is_sorted(spans.begin(), spans.end(), is_before)) std::stable_sort(spans.begin(), spans.end(), is_before);
    made.push_back({.of = gpu_name(trace, process, device),
                    .device = device,
                    .parts = GpuSweep(trace, process, threads).sweep(spans)});
  }
  return made;
}

Budget together(const std::vector<Budget>& budgets) {
  Budget all;
  for (const Budget& budget : budgets) {
    if (!budget.is_worker) continue;
    all.workers += 1;
    for (const BudgetPart& part : budget.parts) {
      const auto same = [&](const BudgetPart& p) { return p.name == part.name; };
      const auto found = std::find_if(all.parts.begin(), all.parts.end(), same);
      if (found == all.parts.end()) {
        all.parts.push_back(part);
      } else {
        found->ns += part.ns;
      }
    }
  }
  all.of = all.workers == 1 ? "1 worker" : fmt::format("{} workers", all.workers);
  return all;
}

}  // namespace paoding::profile
