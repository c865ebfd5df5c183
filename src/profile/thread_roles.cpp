// SPDX-License-Identifier: Apache-2.0
#include "profile/thread_roles.h"

#include <algorithm>
#include <limits>
#include <tuple>

namespace paoding::profile {

namespace {

// A frame in which a thread waits: "<built-in method acquire of _thread.lock object at 0x7f>",
// "threading.py(327): wait".
bool is_wait(std::string_view frame) {
  const auto has = [&](std::string_view word) { return frame.find(word) != frame.npos; };
  if (frame.starts_with("<built-in")) {
    return has("acquire of _thread.") || has("acquire of _multiprocessing.SemLock") || has("method poll of select") ||
           has("method poll of Epoll") || has("select.poll") || has("function poll") || has("method select") ||
           has("function select") || has("method sleep") || has("function sleep");
  }
  return (has("threading.py") && (frame.ends_with(" wait") || frame.ends_with(" join") || has(" _wait_for_tstate"))) ||
         (has("selectors.py") && frame.ends_with(" select"));
}

// A call of Python's or XLA's in which the host waits for a value of a GPU's.
bool reads_value(std::string_view name) {
  static constexpr std::string_view kReads[] = {"np.asarray(jax.Array)", "block_until_ready",   "BlockHostUntilReady",
                                                "PjRtBuffer::Await",     "jax.Array.__float__", "jax.Array.item"};
  return std::ranges::any_of(kReads, [&](std::string_view read) { return name.find(read) != name.npos; });
}

constexpr std::string_view kEngine = "autograd::engine::evaluate_function";

// Signs of a thread's part, which its spans give.
struct Signs {
  std::uint64_t steps = 0, launches = 0, ops = 0;
  std::int64_t in_engine_ns = 0, in_ops_ns = 0;                             // outermost ops
  std::int64_t first = std::numeric_limits<std::int64_t>::max(), last = 0;  // of its spans
  bool is_users = false;                                                    // it has ranges or frames, or feeds
};

std::vector<Signs> signs_of_threads(const Trace& trace) {
  std::vector<Signs> made(trace.tracks().size());
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.on_gpu(i)) {
      if (trace.cause(i) != kNone) ++made[trace.track_id(trace.cause(i))].launches;
      continue;
    }
    Signs& own = made[trace.track_id(i)];
    own.first = std::min(own.first, trace.start(i)), own.last = std::max(own.last, trace.end(i));
    switch (trace.kind(i)) {
      case SpanKind::step: ++own.steps; [[fallthrough]];
      case SpanKind::range:
      case SpanKind::frame:
      case SpanKind::run:
      case SpanKind::feed: own.is_users = true; break;
      case SpanKind::op: {
        ++own.ops;
        const SpanId p = trace.parent(i);
        if (p != kNone && trace.kind(p) == SpanKind::op) break;
        own.in_ops_ns += trace.duration(i);
        if (trace.name(i).starts_with(kEngine)) own.in_engine_ns += trace.duration(i);
        break;
      }
      default: break;
    }
  }
  return made;
}

bool is_engine(const Signs& signs) {
  return signs.in_engine_ns > 0 && signs.steps == 0 && 2 * signs.in_engine_ns >= signs.in_ops_ns;
}

void block_in_waits(const Trace& trace, std::vector<UseSegment>* segments) {
  constexpr int kFurthest = 16;
  constexpr signed char kNotKnown = -1, kGoesOn = 0, kWaits = 1, kReads = 2;
  std::vector<signed char> sites(trace.sites().size(), kNotKnown);
  const auto waits_at = [&](SpanId i) {
    signed char& known = sites[trace.site_id(i)];
    const SpanKind kind = trace.kind(i);
    if (known == kNotKnown && kind != SpanKind::frame && kind != SpanKind::host) known = kGoesOn;
    if (known == kNotKnown && reads_value(trace.name(i))) known = kReads;
    if (known == kNotKnown) known = kind == SpanKind::frame && is_wait(trace.name(i)) ? kWaits : kGoesOn;
    return known;
  };
  for (UseSegment& segment : *segments) {
    if (segment.use != HostUse::yours || segment.span == kNone) continue;
    if (waits_at(segment.span) != kGoesOn) segment.use = HostUse::blocked;
    SpanId around = trace.parent(segment.span);
    for (int k = 0; k < kFurthest && around != kNone && segment.use == HostUse::yours; ++k) {
      if (waits_at(around) == kReads) segment.use = HostUse::blocked;
      around = trace.parent(around);
    }
  }
}

// Calls `take` with every part of `loop` that is one segment of `engine`.
template <class Take>
void for_each_part(const std::vector<UseSegment>& loop, const std::vector<UseSegment>& engine, Take&& take) {
  std::size_t at = 0;
  for (const UseSegment& own : loop) {
    std::int64_t from = own.start;
    while (from < own.end) {
      while (at < engine.size() && engine[at].end <= from) ++at;
      const UseSegment* other = at < engine.size() && engine[at].start <= from ? &engine[at] : nullptr;
      const std::int64_t until = other != nullptr     ? std::min(own.end, other->end)
                                 : at < engine.size() ? std::min(own.end, engine[at].start)
                                                      : own.end;
      take(own, other, from, until);
      from = until;
    }
  }
}

void add_part(std::vector<UseSegment>* made, UseSegment part) {
  if (!made->empty() && made->back().use == part.use && made->back().span == part.span &&
      made->back().end == part.start) {
    made->back().end = part.end;
  } else {
    made->push_back(part);
  }
}

std::vector<UseSegment> blocked_by(const std::vector<UseSegment>& loop, const std::vector<UseSegment>& engine) {
  std::vector<UseSegment> made;
  std::size_t parts = 0;
  for_each_part(loop, engine, [&](const UseSegment&, const UseSegment*, std::int64_t, std::int64_t) { ++parts; });
  made.reserve(parts);
  for_each_part(loop, engine, [&](const UseSegment& own, const UseSegment* other, std::int64_t from, std::int64_t to) {
    const bool waits = own.use == HostUse::yours && other != nullptr && is_busy(other->use);
    add_part(&made, {from, to, waits ? HostUse::blocked : own.use, own.span});
  });
  return made;
}

}  // namespace

bool is_busy(HostUse use) { return !is_users(use) && use != HostUse::unseen; }

void tell_waits_from_code(const Trace& trace, std::vector<ThreadTime>* threads) {
  const auto is_anothers = [](const Process& process) { return process.source != Source::paoding; };
  if (std::ranges::none_of(trace.processes(), is_anothers)) return;
  const std::vector<Signs> signs = signs_of_threads(trace);
  for (ProcessId process = 0; process < trace.processes().size(); ++process) {
    if (!is_anothers(trace.processes()[process])) continue;
    std::vector<TrackId> own;
    for (TrackId track = 0; track < threads->size(); ++track) {
      if (trace.tracks()[track].process == process && !(*threads)[track].segments.empty()) own.push_back(track);
    }
    TrackId loop = kNone;
    const auto rank = [&](TrackId track) {
      return std::tuple(signs[track].steps, signs[track].launches, signs[track].ops);
    };
    for (const TrackId track : own) {
      if (is_engine(signs[track])) {
        (*threads)[track].role = ThreadTime::Role::engine;
      } else if (rank(track) > std::tuple(0u, 0u, 0u) && (loop == kNone || rank(track) > rank(loop))) {
        loop = track;
      }
    }
    if (loop != kNone) (*threads)[loop].role = ThreadTime::Role::loop;
    for (const TrackId track : own) {
      ThreadTime& thread = (*threads)[track];
      block_in_waits(trace, &thread.segments);
      for (UseSegment& segment : thread.segments) {  // nothing is known of it then
        const bool is_outside = segment.end <= signs[track].first || segment.start >= signs[track].last;
        if (segment.use == HostUse::yours && segment.span == kNone && is_outside) segment.use = HostUse::idle;
      }
      if (track == loop || (thread.role == ThreadTime::Role::other && signs[track].is_users)) continue;
      for (UseSegment& segment : thread.segments) {
        if (segment.use != HostUse::yours) continue;
        if (segment.span == kNone) segment.use = HostUse::idle;
        if (segment.span != kNone && trace.kind(segment.span) == SpanKind::host) segment.use = HostUse::ops;
      }
    }
    for (const TrackId track : own) {
      if (loop == kNone || (*threads)[track].role != ThreadTime::Role::engine) continue;
      (*threads)[loop].segments = blocked_by((*threads)[loop].segments, (*threads)[track].segments);
    }
  }
}

}  // namespace paoding::profile
