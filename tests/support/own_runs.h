// SPDX-License-Identifier: Apache-2.0
// Recordings of a program of ours, made by hand: runs that each launch one graph of an H200, every second of which is
// stamped in full as the recorder does it, or runs on the CPU. Times are in microseconds.
#pragma once

#include <map>
#include <string>
#include <vector>

#include "profile/trace.h"

namespace paoding::profile {

struct OwnStep {
  SiteInfo site;  // without its kind
  double us = 0;
};

/// A step's site in the words that the runtime gives it.
inline SiteInfo own_site(const std::string& op, const std::string& shapes, double flops = 0, Unit unit = Unit::none,
                         std::int64_t bytes = 0, LaunchShape launch = {}) {
  SiteInfo site{.name = op, .op = op, .instance = op + "0", .kernel = "group_1"};
  site.bytes = bytes, site.flops = flops, site.unit = unit;
  site.shapes = shapes, site.launch = launch;
  return site;
}

inline std::int64_t ns_of(double us) { return static_cast<std::int64_t>(us * 1000); }

inline Trace own_runs_on_gpu(const std::vector<OwnStep>& steps, int runs = 10, bool is_stamped_in_full = false) {
  Trace trace;
  const ProcessId process = trace.add_process(1, -1, "made");
  const TrackId host = trace.add_track(TrackKind::thread, "thread0", -1, process);
  const TrackId stream = trace.add_track(TrackKind::stream, "stream", 0, process);
  trace.add_limit({.device = 0, .name = "NVIDIA H200", .sms = 132, .threads_of_sm = 2048});
  const SiteId run = trace.add_site({.name = "run", .kind = SpanKind::run});
  const SiteId launch = trace.add_site({.name = "graph launch", .kind = SpanKind::launch});
  const SiteId wait = trace.add_site({.name = "wait", .kind = SpanKind::wait});
  const SiteId replay = trace.add_site({.name = "graph replay", .instance = "graph0", .kind = SpanKind::replay});
  double all = 0;
  for (const OwnStep& step : steps) all += step.us;
  std::map<SiteId, ReplayPart> parts;
  std::uint64_t stamped = 0;
  for (int k = 0; k < runs; ++k) {
    const double at = (all + 20) * k, begins = at + 10;
    const auto number = static_cast<std::uint32_t>(k + 1);
    const auto add = [&](TrackId track, SiteId site, double from, double to) {
      trace.add({.track = track,
                 .site = site,
                 .start_ns = ns_of(from),
                 .duration_ns = ns_of(to) - ns_of(from),
                 .run = number});
    };
    add(host, run, at, at + all + 19);
    add(host, launch, at + 1, at + 4);
    add(host, wait, at + 5, begins + all + 3);
    if (k % 2 == 1 && !is_stamped_in_full) {
      add(stream, replay, begins, begins + all);
      continue;
    }
    ++stamped;
    double now = begins;
    for (const OwnStep& step : steps) {
      SiteInfo info = step.site;
      info.kind = SpanKind::kernel;
      const SiteId site = trace.add_site(info);
      add(stream, site, now, now + step.us);
      ReplayPart& part = parts.try_emplace(site, ReplayPart{replay, site, 0, 0}).first->second;
      part.calls += 1, part.ns += ns_of(step.us);
      now += step.us;
    }
  }
  trace.add_part({replay, kNone, stamped, static_cast<std::int64_t>(stamped) * ns_of(all)});
  for (const auto& [site, part] : parts) trace.add_part(part);
  trace.finish();
  return trace;
}

inline Trace own_runs_on_cpu(const std::vector<OwnStep>& steps, int runs = 10) {
  Trace trace;
  const ProcessId process = trace.add_process(1, -1, "made");
  const TrackId host = trace.add_track(TrackKind::thread, "thread0", -1, process);
  const SiteId run = trace.add_site({.name = "run", .kind = SpanKind::run});
  double now = 0;
  for (int k = 0; k < runs; ++k) {
    const double begin = now;
    const auto number = static_cast<std::uint32_t>(k + 1);
    for (const OwnStep& step : steps) {
      SiteInfo info = step.site;
      info.kind = SpanKind::op;
      trace.add({.track = host,
                 .site = trace.add_site(info),
                 .start_ns = ns_of(now),
                 .duration_ns = ns_of(now + step.us) - ns_of(now),
                 .run = number});
      now += step.us;
    }
    trace.add({.track = host,
               .site = run,
               .start_ns = ns_of(begin),
               .duration_ns = ns_of(now) - ns_of(begin),
               .run = number});
    now += 1;
  }
  trace.finish();
  return trace;
}

}  // namespace paoding::profile
