// SPDX-License-Identifier: Apache-2.0
#include "profile/trace_merge.h"

#include <algorithm>
#include <cstdlib>
#include <map>
#include <numeric>
#include <optional>
#include <utility>

#include "base/check.h"

namespace paoding::profile {

namespace {

// The host's name is behind the blank, and no part of whose clock it is.
std::string_view clock_of(std::string_view host) { return host.substr(0, host.rfind(' ')); }

std::string_view host_name(std::string_view host) {
  const std::size_t blank = host.rfind(' ');
  return blank == host.npos ? "?" : host.substr(blank + 1);
}

const Process& process_of(const NamedTrace& one) { return one.trace.processes().front(); }
std::string_view host_of(const NamedTrace& one) { return one.trace.text(one.trace.anchors().front().host); }

// Whatever a file says: so that no time overflows, and none goes backwards.
bool has_sound_clocks(const Trace& trace) {
  constexpr std::int64_t kYears = std::int64_t{1} << 58, kWall = std::int64_t{1} << 61;
  const std::vector<ClockAnchor>& all = trace.anchors();
  for (std::size_t i = 0; i < all.size(); ++i) {
    const ClockAnchor& own = all[i];
    for (const std::int64_t ns : {trace.window_start(), trace.window_end()}) {
      if (std::abs(ns - own.ns) >= kYears) return false;
    }
    if (own.system_ns < 0 || own.system_ns >= kYears || own.wall_ns < 0 || own.wall_ns >= kWall) return false;
    if (own.host != all[0].host) return false;
    if (i > 0 && own.ns <= all[i - 1].ns) return false;
    if (i > 0 && own.system_ns - all[i - 1].system_ns > 2 * (own.ns - all[i - 1].ns)) return false;
    if (i > 0 && own.system_ns < all[i - 1].system_ns) return false;
  }
  return true;
}

void check_alone(const NamedTrace& one) {
  if (one.trace.processes().size() > 1) {
    fail(ErrorKind::argument, "{}: it is of {} processes already, needs to be of one to be set beside others", one.name,
         one.trace.processes().size());
  }
  if (one.trace.processes().empty() || one.trace.anchors().empty()) {
    fail(ErrorKind::argument,
         "{}: it does not say of which process and by which clock it is (files of before version 3 do not), without "
         "which it cannot be set beside others",
         one.name);
  }
  if (!has_sound_clocks(one.trace)) fail(ErrorKind::argument, "{}: its clocks contradict each other", one.name);
}

void check_together(const NamedTrace& a, const NamedTrace& b) {
  const Process &p = process_of(a), &q = process_of(b);
  const std::string_view own = a.trace.text(p.name), other = b.trace.text(q.name);
  if (own != other) {
    fail(ErrorKind::argument, "{} is of the program '{}', {} of '{}': only recordings of one program go together",
         a.name, own, b.name, other);
  }
  if (p.rank >= 0 && p.rank == q.rank) {
    fail(ErrorKind::argument, "{} and {} are both of rank {}: only recordings of different ranks go together", a.name,
         b.name, p.rank);
  }
  const bool is_same_machine = clock_of(host_of(a)) == clock_of(host_of(b));
  if (p.pid == q.pid && (is_same_machine || p.rank == q.rank)) {
    fail(ErrorKind::argument, "{} and {} are both of process {}{}", a.name, b.name, p.pid,
         is_same_machine ? "" : " of their machines and have no ranks that tell them apart");
  }
}

// From a recording's time to that of all: on lines through its anchors, in whole numbers, so that what came first does.
class ToCommon {
 public:
  ToCommon(std::vector<ClockAnchor> anchors, std::int64_t offset_ns)
      : anchors_(std::move(anchors)), offset_ns_(offset_ns) {}

  std::int64_t operator()(std::int64_t ns) const {
    if (anchors_.size() < 2) return ns - anchors_[0].ns + anchors_[0].system_ns + offset_ns_;
    const auto behind = std::upper_bound(anchors_.begin() + 1, anchors_.end() - 1, ns,
                                         [](std::int64_t at, const ClockAnchor& anchor) { return at < anchor.ns; });
    const ClockAnchor &from = *std::prev(behind), &to = *behind;
    const auto length = static_cast<__int128>(to.ns - from.ns);
    const auto moved = static_cast<__int128>(ns - from.ns) * (to.system_ns - from.system_ns);
    const __int128 whole = moved / length - (moved % length < 0 ? 1 : 0);  // rounded down on both sides of 0
    return from.system_ns + static_cast<std::int64_t>(whole) + offset_ns_;
  }

 private:
  const std::vector<ClockAnchor> anchors_;
  const std::int64_t offset_ns_;
};

// Machines of the recordings: how far the steady clock of each is from the first one's, by their wall clocks.
class Machines {
 public:
  void add(const NamedTrace& one) {
    const std::string_view host = host_of(one);
    for (const ClockAnchor& anchor : one.trace.anchors()) {
      const std::int64_t ahead = anchor.wall_ns - anchor.system_ns;
      const auto [found, is_new] = machines_.try_emplace(std::string(clock_of(host)),
                                                         Machine{std::string(host_name(host)), ahead, ahead, ahead});
      found->second.least = std::min(found->second.least, ahead);
      found->second.most = std::max(found->second.most, ahead);
      if (!first_) first_ = ahead;
    }
  }
  std::int64_t offset_ns(const NamedTrace& one) const {
    return machines_.at(std::string(clock_of(host_of(one)))).ahead - *first_;
  }
  void note(Trace* trace) const {
    if (machines_.size() < 2) return;
    trace->add_note("machines, whose times are set beside each other by their wall clocks", machines_.size());
    constexpr std::int64_t kSet = 1'000'000;
    for (const auto& [clock, machine] : machines_) {
      if (machine.most - machine.least < kSet) continue;
      trace->add_note(fmt::format("ms by which the wall clock of {} was set meanwhile", machine.name),
                      static_cast<std::uint64_t>((machine.most - machine.least) / 1'000'000));
    }
  }

 private:
  struct Machine {
    std::string name;
    std::int64_t ahead;  // of its wall clock, as first seen
    std::int64_t least, most;
  };
  std::map<std::string, Machine> machines_;
  std::optional<std::int64_t> first_;
};

// Puts recordings into one trace, one after the other.
class Merged {
 public:
  // `processes`: what those of `from` are in `to`.
  Merged(Trace* to, const Trace& from, std::vector<ProcessId> processes, const ToCommon& time)
      : to_(*to), from_(from), processes_(std::move(processes)), time_(time) {}

  // Returns the largest number of a run or correlation; `numbers`: those that were given before.
  std::uint32_t add(std::uint32_t numbers, const std::string& prefix) {
    for (const Track& track : from_.tracks()) {
      tracks_.push_back(to_.add_track(track.kind, from_.text(track.name), track.device, processes_[track.process]));
    }
    for (SiteId i = 0; i < from_.sites().size(); ++i) {
      SiteInfo info = from_.site_info(i);
      if (info.kind == SpanKind::replay) info.instance = prefix + info.instance;  // graphs of processes are their own
      sites_.push_back(to_.add_site(info));
    }
    std::vector<ColumnId> columns;
    for (const ArgumentColumn& column : from_.columns()) {
      columns.push_back(to_.add_column(from_.text(column.name), column.type));
    }
    ArgumentsInOrder arguments(from_);
    const auto first = static_cast<SpanId>(to_.size());
    std::uint32_t most = 0;
    for (SpanId i = 0; i < from_.size(); ++i) {
      Span span = from_.span(i);
      most = std::max({most, span.run, span.correlation});
      span.track = tracks_[span.track];
      span.site = sites_[span.site];
      const std::int64_t end = time_(from_.end(i));
      span.start_ns = time_(span.start_ns);
      span.duration_ns = end - span.start_ns;
      if (span.run != 0) span.run += numbers;
      if (span.correlation != 0) span.correlation += numbers;
      span.parent = kNone;  // found again
      if (span.cause != kNone) span.cause += first;
      const SpanId id = to_.add(span);
      PD_ASSERT(id == first + i, "a span is not in the window of its own recording");
      if (const Cut cut = from_.cut(i); cut.at_start || cut.at_end) to_.set_cut(id, cut);
      arguments.for_each(i, [&](const ArgumentColumn& column, std::size_t at) {
        const ColumnId own = columns[static_cast<std::size_t>(&column - from_.columns().data())];
        switch (column.type) {
          case ArgumentType::integer: to_.add_argument(id, own, column.integer(at)); break;
          case ArgumentType::real: to_.add_argument(id, own, column.real(at)); break;
          case ArgumentType::text: to_.add_argument(id, own, from_.text(column.text(at))); break;
        }
      });
    }
    for (const Flow& flow : from_.flows()) to_.add_flow(flow.from + first, flow.to + first);
    add_rest(prefix);
    return most;
  }

 private:
  void add_rest(const std::string& prefix) {
    for (const ReplayPart& part : from_.parts()) {
      to_.add_part({sites_[part.replay], part.site == kNone ? kNone : sites_[part.site], part.calls, part.ns});
    }
    for (const Phase& phase : from_.phases()) to_.add_phase({sites_[phase.site], phase.name, phase.ns});
    for (const Limit& limit : from_.limits()) to_.add_limit(limit);
    for (Memory memory : from_.memory()) {
      memory.of = prefix + memory.of;
      to_.add_memory(std::move(memory));
    }
    std::vector<CounterId> counters;
    for (const Counter& counter : from_.counters()) {
      counters.push_back(to_.add_counter(counter.device, from_.text(counter.name), processes_[counter.process]));
    }
    for (const Sample& sample : from_.samples()) {
      to_.add_sample({counters[sample.counter], time_(sample.ns), sample.value});
    }
    for (const Note& note : from_.notes()) to_.add_note(prefix + note.text, note.count, note.kind);
    if (from_.span_cost_ns() > to_.span_cost_ns()) {
      to_.add_note("ns that a span costs", from_.span_cost_ns(), Note::Kind::span_cost);
    }
  }

  Trace& to_;
  const Trace& from_;
  const std::vector<ProcessId> processes_;
  const ToCommon& time_;
  std::vector<TrackId> tracks_;
  std::vector<SiteId> sites_;
};

}  // namespace

void check_mergeable(const std::vector<NamedTrace>& recordings) {
  if (recordings.size() < 2) return;
  std::size_t spans = 0;
  for (std::size_t i = 0; i < recordings.size(); ++i) {
    check_alone(recordings[i]);
    for (std::size_t j = 0; j < i; ++j) check_together(recordings[j], recordings[i]);
    spans += recordings[i].trace.size();
  }
  if (spans >= kNone) fail(ErrorKind::argument, "{} events in all recordings are more than one report holds", spans);
}

Trace merge(std::vector<NamedTrace> recordings) {
  PD_ASSERT(!recordings.empty(), "a trace of no recording");
  check_mergeable(recordings);
  if (recordings.size() == 1) return std::move(recordings[0].trace);
  const std::size_t spans =
      std::accumulate(recordings.begin(), recordings.end(), std::size_t{0},
                      [](std::size_t sum, const NamedTrace& one) { return sum + one.trace.size(); });
  std::ranges::sort(recordings, {},
                    [](const NamedTrace& one) { return std::pair(process_of(one).rank, process_of(one).pid); });
  Machines machines;
  for (const NamedTrace& one : recordings) machines.add(one);

  Trace all;
  std::vector<ToCommon> times;
  std::vector<Window> windows;
  for (const NamedTrace& one : recordings) {
    const Process& process = process_of(one);
    all.add_process(process.pid, process.rank, one.trace.text(process.name), process.source);
    times.emplace_back(one.trace.anchors(), machines.offset_ns(one));
    windows.push_back({times.back()(one.trace.window_start()), times.back()(one.trace.window_end())});
  }
  all.set_window(std::ranges::min(windows, {}, &Window::start).start, std::ranges::max(windows, {}, &Window::end).end);
  all.reserve(spans);
  std::uint32_t numbers = 0;
  for (ProcessId i = 0; i < recordings.size(); ++i) {
    const NamedTrace& one = recordings[i];
    const std::int64_t ahead = one.trace.anchors().front().wall_ns - one.trace.anchors().front().system_ns;
    for (const std::int64_t ns : {windows[i].start, windows[i].end}) {
      const std::int64_t system = ns - machines.offset_ns(one);
      all.add_anchor(i, host_of(one), {ns, system, system + ahead});
    }
    const std::string prefix = all.process_name(i) + " ";
    numbers += Merged(&all, one.trace, {i}, times[i]).add(numbers, prefix);
    recordings[i].trace = Trace();
  }
  machines.note(&all);
  all.finish();
  return all;
}

Trace merge_ranks(std::vector<NamedTrace> traces, const std::vector<std::int64_t>& later_ns) {
  PD_ASSERT(!traces.empty() && traces.size() == later_ns.size(), "a trace without the time that it is moved by");
  std::size_t spans = 0;
  for (const NamedTrace& one : traces) spans += one.trace.size();
  if (spans >= kNone) fail(ErrorKind::argument, "{} events in all traces are more than one report holds", spans);
  Trace all;
  all.reserve(spans);
  std::uint32_t numbers = 0;
  std::vector<std::vector<ProcessId>> processes_of(traces.size());  // all first: a process is named among others alone
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const Trace& own = traces[i].trace;
    for (const Process& process : own.processes()) {
      processes_of[i].push_back(all.add_process(process.pid, process.rank, own.text(process.name), process.source));
    }
    if (processes_of[i].empty()) processes_of[i].push_back(all.add_process(0, static_cast<int>(i), ""));
  }
  for (std::size_t i = 0; i < traces.size(); ++i) {
    const Trace& own = traces[i].trace;
    const ToCommon time({ClockAnchor{.system_ns = later_ns[i]}}, 0);
    std::vector<ProcessId>& processes = processes_of[i];
    // A rank is not known before and behind its recording.
    for (const ProcessId process : processes) {
      for (const std::int64_t ns : {own.window_start(), own.window_end()}) {
        all.add_anchor(process, fmt::format("clock of trace {} ?", i), {time(ns), time(ns), time(ns)});
      }
    }
    const std::string prefix = all.process_name(processes.front()) + " ";
    numbers += Merged(&all, own, std::move(processes), time).add(numbers, i == 0 && traces.size() == 1 ? "" : prefix);
    traces[i].trace = Trace();
  }
  all.finish();
  return all;
}

}  // namespace paoding::profile
