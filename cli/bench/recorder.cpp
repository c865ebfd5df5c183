// SPDX-License-Identifier: Apache-2.0
// Section P: times of long recordings: to end one, make a trace of it, write and read its file, make a report.
#include "profile/recorder.h"

#include <unistd.h>

#include <algorithm>
#include <cstdio>
#include <filesystem>
#include <optional>

#include "cli/bench/case.h"
#include "paoding/profile.h"
#include "profile/recording.h"
#include "profile/report.h"

namespace paoding::cli::bench {
namespace {

using profile::Recorded;
using profile::Recorder;
using profile::SiteId;
using profile::SpanKind;
using profile::SpanScope;
using profile::Trace;

// Runs of a program of 99 ops, begun and ended as one that computes nothing.
Recorded record(std::int64_t spans) {
  constexpr int kOps = 99;
  static const SiteId run = Recorder::add_site({.name = "run", .kind = SpanKind::run});
  static const std::vector<SiteId> ops = [] {
    std::vector<SiteId> made;
    for (int i = 0; i < kOps; ++i) {
      made.push_back(Recorder::add_site(
          {.op = fmt::format("op{}", i % 20), .instance = fmt::format("op{}", i), .kind = SpanKind::compute}));
    }
    return made;
  }();
  Recorder::start({.state = State::cpu, .max_bytes = std::size_t{1} << 30});
  for (std::int64_t i = 0; i < spans / (kOps + 1); ++i) {
    const SpanScope around(run, Recorder::next_run());
    for (const SiteId op : ops) const SpanScope seen(op);
  }
  return Recorder::end();
}

Samples time_rounds(const Setting& setting, const std::function<void()>& work, const std::function<void()>& before) {
  const int rounds = std::min(setting.effort.least, 7);
  return time_work(work, 1, {rounds, rounds, 0}, before);
}

Case row(const char* name, const char* what, double goal_us) {
  Case c;
  c.section = 'P';
  c.kind = "recorder";
  c.name = name;
  c.what = what;
  c.sizes = "{}";
  c.on_gpu = false;
  c.goal.wall = goal_us;
  return c;
}

Case counter_case() {
  Case c = row("span/counter", "two readings of the CPU's counter, of which a span consists", 0);
  c.measure = [](const Setting& setting) {
    constexpr int kTimes = 10'000;
    return time_work(
        [] {
          for (int i = 0; i < kTimes; ++i) {
            (void)Recorder::now();
            asm volatile("" ::: "memory");
            (void)Recorder::now();
            asm volatile("" ::: "memory");
          }
        },
        kTimes, {std::min(setting.effort.least, 20), 20, 0});
  };
  return c;
}

Case end_case() {
  Case c = row("recorder/end_1m", "the end of a recording of 1 M spans", 50e3);
  c.measure = [](const Setting& setting) {
    // Recorded and not ended: so many spans, then the end alone is timed.
    std::optional<Recorded> ended;
    const auto begin = [&] {
      ended.reset();
      record(1'000'000);  // whose chunks are there again
      Recorder::start({.state = State::cpu, .max_bytes = std::size_t{1} << 30});
      static const SiteId site = Recorder::add_site({.name = "span", .kind = SpanKind::host});
      for (int i = 0; i < 1'000'000; ++i) const SpanScope seen(site);
    };
    return time_rounds(
        setting, [&] { ended.emplace(Recorder::end()); }, begin);
  };
  return c;
}

Case trace_case() {
  Case c = row("recorder/trace_1m", "1 M spans that were recorded as a trace", 0);
  c.measure = [](const Setting& setting) {
    std::optional<Recorded> ended;
    std::optional<Trace> made;
    return time_rounds(
        setting, [&] { made.emplace(ended->to_trace()); }, [&] { made.reset(), ended.emplace(record(1'000'000)); });
  };
  return c;
}

// A recording of 10 M spans in a file of this process.
struct LongRecording {
  LongRecording() : path(std::filesystem::temp_directory_path() / fmt::format("paoding_bench_{}.paoding", ::getpid())) {
    profile::write_recording(record(10'000'000).to_trace(), path);
  }
  ~LongRecording() { std::remove(path.c_str()); }
  const std::string path;
};

Case load_case() {
  Case c = row("recorder/load_10m", "a recording of 10 M spans, from its file to a trace", 2e6);
  c.measure = [](const Setting& setting) {
    const LongRecording recording;
    std::optional<Trace> loaded;
    return time_rounds(
        setting, [&] { loaded.emplace(profile::read_recording(recording.path)); }, [&] { loaded.reset(); });
  };
  return c;
}

// Kernels of 256 ops, one after the other, of runs that were launched as graphs.
Trace trace_of_kernels(std::int64_t count) {
  constexpr std::int64_t kOps = 256, kNs = 3000, kBetweenNs = 500;
  Trace trace;
  const profile::TrackId host = trace.add_track(profile::TrackKind::thread, "thread0");
  const profile::TrackId gpu = trace.add_track(profile::TrackKind::stream, "stream 1", 0);
  const SiteId run = trace.add_site({.name = "run", .kind = SpanKind::run});
  const SiteId launch = trace.add_site({.name = "graph launch", .kind = SpanKind::launch});
  std::vector<SiteId> ops;
  for (std::int64_t i = 0; i < kOps; ++i) {
    ops.push_back(trace.add_site({.op = fmt::format("op{}", i % 20),
                                  .instance = fmt::format("op{}", i),
                                  .kind = SpanKind::kernel,
                                  .bytes = 1 << 20}));
  }
  trace.reserve(static_cast<std::size_t>(count + count / kOps * 2));
  std::int64_t now = 0;
  for (std::uint32_t i = 1; i <= count / kOps; ++i) {
    trace.add({.track = host, .site = launch, .start_ns = now + 100, .duration_ns = 2000, .run = i});
    trace.add({.track = host, .site = run, .start_ns = now, .duration_ns = 4000, .run = i});
    for (const SiteId op : ops) {
      trace.add({.track = gpu, .site = op, .start_ns = now + 10'000, .duration_ns = kNs, .run = i, .correlation = i});
      now += kNs + kBetweenNs;
    }
  }
  trace.finish();
  return trace;
}

Case report_case(bool is_of_gpu) {
  Case c = row(is_of_gpu ? "recorder/report_10m_kernels" : "recorder/report_10m",
               is_of_gpu ? "the report of 10 M kernels" : "the report of a trace of 10 M spans", 3e6);
  c.measure = [is_of_gpu](const Setting& setting) {
    constexpr std::int64_t kMany = 10'000'000;
    const Trace trace = is_of_gpu ? trace_of_kernels(kMany) : record(kMany).to_trace();
    std::string text;
    return time_rounds(setting, [&] { text = profile::report(trace); }, {});
  };
  return c;
}

}  // namespace

Cases recorder_cases() {
  return {counter_case(), end_case(), trace_case(), load_case(), report_case(false), report_case(true)};
}

}  // namespace paoding::cli::bench
