// SPDX-License-Identifier: Apache-2.0
#include "profile/recording_rest.h"

#include <algorithm>
#include <bit>
#include <limits>
#include <unordered_map>

#include "base/check.h"
#include "profile/recorder_state.h"

namespace paoding::profile {

namespace {

TrackId thread_track(Trace& trace, std::uint32_t number) {
  const std::string name = fmt::format("thread{}", number);
  for (TrackId track = 0; track < trace.tracks().size(); ++track) {
    const Track& own = trace.tracks()[track];
    if (own.kind == TrackKind::thread && trace.text(own.name) == name) return track;
  }
  return trace.add_track(TrackKind::thread, name);
}

void add_argument(Trace& trace, SpanId id, const LiveRest& rest, ArgumentId name, std::uint64_t bits) {
  if (id == kNone) return;
  const auto& [text, type] = rest.arguments[name];
  const ColumnId column = trace.add_column(text, type);
  switch (type) {
    case ArgumentType::integer: trace.add_argument(id, column, static_cast<std::int64_t>(bits)); break;
    case ArgumentType::real: trace.add_argument(id, column, std::bit_cast<double>(bits)); break;
    case ArgumentType::text:
      trace.add_argument(id, column, bits < rest.texts.size() ? rest.texts[bits] : std::string_view());
      break;
  }
}

}  // namespace

void add_rest(const UnfinishedTrace& to, LiveRest& rest) {
  std::unordered_map<SiteId, SiteId> site_of;
  std::uint32_t run = kNone;  // of those whose number nobody has told
  for (LiveRest::Thread& thread : rest.threads) {
    const TrackId track = thread_track(to.trace, thread.number);
    EndOrder ends;
    ArgumentsAhead ahead;
    const auto add = [&](const SpanRecord& record, std::int64_t end) {
      const auto [found, is_new] = site_of.try_emplace(record.site);
      if (is_new) found->second = to.trace.add_site(rest.site_info(record.site));
      const bool begins_before = record.start < rest.started.ticks;
      const std::int64_t start = begins_before ? to.window.start - 1 : to.to_ns(record.start);
      return to.trace.add({.track = track,
                           .site = found->second,
                           .start_ns = start,
                           .duration_ns = std::max<std::int64_t>(end - start, 0),
                           .run = record.run == 0 && begins_before ? --run : record.run});
    };
    for (const SpanRecord& record : thread.records) {
      if (ahead.take(record)) continue;
      const SpanId id = add(record, to.to_ns(ends.of(record.end)));
      for (const auto& [name, bits] : ahead.of(record)) add_argument(to.trace, id, rest, name, bits);
    }
    for (const SpanRecord& record : thread.open) add(record, to.window.end + 1);
  }
}

void add_lost(const UnfinishedTrace& to, const std::optional<LiveRest>& rest, std::int64_t of_gpus_ns) {
  Trace& trace = to.trace;
  constexpr std::int64_t kNothing = std::numeric_limits<std::int64_t>::min();
  std::vector<std::int64_t> seen(trace.tracks().size(), to.has_window ? to.window.start : kNothing);
  std::int64_t end = to.window.end;
  for (SpanId i = 0; i < trace.size(); ++i) {
    std::int64_t& own = seen[trace.track_id(i)];
    own = std::max(own, trace.end(i));
    if (!to.has_window) end = i == 0 ? own : std::max(end, own);
  }
  const SiteId lost = trace.add_site({.name = "lost", .kind = SpanKind::run});
  const auto add = [&](TrackId track, std::int64_t from) {
    if (from == kNothing || end <= from) return;
    const SpanId id = trace.add({.track = track, .site = lost, .start_ns = from, .duration_ns = end - from});
    if (id != kNone) trace.set_cut(id, {true, true});
  };
  bool has_thread = false, has_gpu = false;
  for (TrackId track = 0; track < seen.size(); ++track) {
    const bool is_thread = trace.tracks()[track].kind == TrackKind::thread;
    has_thread = has_thread || is_thread;
    has_gpu = has_gpu || !is_thread;
    if (is_thread && !(rest.has_value() && rest->is_all)) add(track, seen[track]);
  }
  const bool is_empty = !has_thread && to.has_window && !(rest.has_value() && rest->is_all);
  if (is_empty) add(trace.add_track(TrackKind::thread, "thread0"), to.window.start);
  if (rest.has_value() && has_gpu) add(trace.add_track(TrackKind::thread, "the GPU's last"), of_gpus_ns);
}

}  // namespace paoding::profile
