// SPDX-License-Identifier: Apache-2.0
// The recorder and the public profiler: threads, filters, limits, wrong use, and what a span costs.
#include "profile/recorder.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <stdlib.h>
#include <unistd.h>

#include <cstdio>
#include <fstream>
#include <optional>
#include <sstream>
#include <thread>

#include "paoding/error.h"

namespace paoding::profile {
namespace {

std::int64_t clock_ns() { return std::chrono::steady_clock::now().time_since_epoch().count(); }

SiteId recorded_site(const char* op, SpanKind kind = SpanKind::op) {
  return Recorder::add_site({.op = op, .kind = kind});
}

// The recorder's own spans, for which it gets memory, are left out.
std::vector<SpanId> others(const Trace& trace) {
  std::vector<SpanId> all;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != SpanKind::recording) all.push_back(i);
  }
  return all;
}

template <class F>
void expect_error(F f, const std::string& part) {
  try {
    f();
    FAIL() << "no error with: " << part;
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::argument);
    EXPECT_NE(std::string(e.what()).find(part), std::string::npos) << e.what();
  }
}

TEST(Recorder, KnowsTheTurnsOfALoopApartWithoutAListOfThem) {
  constexpr std::int64_t kTurns = 1 << 20;
  const SiteInfo info{.op = "turn", .instance = "turn7", .kind = SpanKind::op};
  const TurnSites few = Recorder::add_sites(info, 3), many = Recorder::add_sites(info, kTurns);
  const SiteId other = recorded_site("behind the turns");
  EXPECT_EQ(Recorder::add_sites(info, 5).first, many.first);
  EXPECT_EQ(Recorder::add_site(info), many.first);
  Recorder::start({});
  for (const SiteId seen : {few.at(2), many.at(0), many.at(2), many.at(kTurns - 1), other}) SpanScope span(seen);
  const Trace trace = Recorder::stop();
  std::vector<std::string> instances;
  const std::vector<SpanId> spans = others(trace);
  for (const SpanId i : spans) instances.emplace_back(trace.text(trace.site(i).instance));
  EXPECT_EQ(instances, (std::vector<std::string>{"turn7@2", "turn7", "turn7@2", "turn7@1048575", ""}));
  EXPECT_EQ(trace.site_id(spans[0]), trace.site_id(spans[2]));
  // More turns than there are ids: they share one.
  const TurnSites endless = Recorder::add_sites({.op = "endless"}, std::int64_t{1} << 40);
  EXPECT_EQ(endless.at(std::int64_t{1} << 39), endless.first);
}

TEST(Recorder, KeepsTimesOfTheSteadyClock) {
  Recorder::start({});
  const std::int64_t before = clock_ns();
  {
    SpanScope outer(recorded_site("outer"));
    SpanScope inner(recorded_site("inner"));
    std::this_thread::sleep_for(std::chrono::milliseconds(5));
  }
  const std::int64_t after = clock_ns();
  const Trace trace = Recorder::stop();
  ASSERT_EQ(others(trace).size(), 2u);
  const SpanId outer = others(trace)[0], inner = others(trace)[1];
  EXPECT_EQ(trace.name(outer), "outer");
  EXPECT_EQ(trace.parent(inner), outer);
  constexpr std::int64_t kSlack = 2000;  // ns, of converting between two clocks
  EXPECT_GE(trace.start(outer), before - kSlack);
  EXPECT_LE(trace.end(outer), after + kSlack);
  EXPECT_GE(trace.duration(inner), 5'000'000 - kSlack);
}

TEST(Recorder, KeepsTheSpansOfManyThreadsAndOfThreadsThatEnded) {
  constexpr int kThreads = 4, kSpans = 20000;  // more than two chunks each
  const SiteId s = recorded_site("step");
  Recorder::start({.state = State::cpu});  // a GPU may add notes of its own
  std::vector<std::thread> threads;
  for (int t = 0; t < kThreads; ++t) {
    threads.emplace_back([&] {
      for (int i = 0; i < kSpans; ++i) SpanScope span(s);
    });
  }
  for (auto& thread : threads) thread.join();
  const Trace trace = Recorder::stop();
  EXPECT_EQ(trace.tracks().size(), std::size_t{kThreads});
  std::vector<int> spans(kThreads);
  for (const SpanId i : others(trace)) spans[trace.track_id(i)] += 1;
  for (int n : spans) EXPECT_EQ(n, kSpans);
  EXPECT_TRUE(trace.notes().empty()) << trace.notes()[0].text;
}

TEST(Recorder, StopsWhileOtherThreadsWriteAndStartsAgain) {
  const SiteId s = recorded_site("busy");
  std::atomic<bool> end{false};
  std::vector<std::thread> threads;
  for (int t = 0; t < 2; ++t) {
    threads.emplace_back([&] {
      while (!end) SpanScope span(s);
    });
  }
  for (int session = 0; session < 20; ++session) {
    const std::int64_t from = clock_ns();
    Recorder::start({});
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
    const Trace trace = Recorder::stop();
    for (SpanId i = 0; i < trace.size(); ++i) ASSERT_GE(trace.start(i), from - 2000) << "of an earlier recording";
  }
  end = true;
  for (auto& thread : threads) thread.join();
}

std::string note_of(const Trace& trace, std::size_t i) {
  return i < trace.notes().size() ? fmt::format("{} ({})", trace.notes()[i].text, trace.notes()[i].count) : "";
}

TEST(Recorder, KeepsTheRunThatItFindsUnderWayAndTheOneThatItLeaves) {
  const SiteId run = recorded_site("run", SpanKind::run), op = recorded_site("op");
  std::optional<Trace> trace;
  {
    const LongSpanScope before(run);
    Recorder::start({.state = State::cpu});
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
  }
  {
    const LongSpanScope after(run, Recorder::next_run());
    { const SpanScope whole(op); }
    const SpanScope also(op);
    std::this_thread::sleep_for(std::chrono::milliseconds(2));
    trace = Recorder::stop();
  }
  const std::vector<SpanId> seen = others(*trace);
  ASSERT_EQ(seen.size(), 4u);
  EXPECT_TRUE(trace->cut(seen[0]).at_start);
  EXPECT_EQ(trace->start(seen[0]), trace->window_start());
  EXPECT_GE(trace->duration(seen[0]), 2'000'000 - 2000);
  EXPECT_NE(trace->run(seen[0]), 0u);
  EXPECT_TRUE(trace->cut(seen[1]).at_end);
  EXPECT_EQ(trace->end(seen[1]), trace->window_end());
  EXPECT_EQ(trace->parent(seen[2]), seen[1]);
  EXPECT_FALSE(trace->cut(seen[2]).at_end);
  EXPECT_TRUE(trace->cut(seen[3]).at_end);
  EXPECT_EQ(note_of(*trace, 0), "spans that began before the recording, cut (1)");
  EXPECT_EQ(note_of(*trace, 1), "spans that were under way when it ended, cut (2)");
}

TEST(Recorder, KeepsAThreadOfWhichNothingEnded) {
  std::atomic<int> at{0};
  const SiteId s = recorded_site("long", SpanKind::compile);
  std::thread thread([&] {
    const LongSpanScope all(s);
    at = 1;
    while (at != 2) std::this_thread::yield();
  });
  while (at != 1) std::this_thread::yield();
  Recorder::start({.state = State::cpu});
  std::this_thread::sleep_for(std::chrono::milliseconds(1));
  const Trace trace = Recorder::stop();
  at = 2;
  thread.join();
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_TRUE(trace.cut(0).at_start && trace.cut(0).at_end);
  EXPECT_EQ(trace.duration(0), trace.wall_ns());
}

TEST(Recorder, WritesNothingWhenOff) {
  EXPECT_FALSE(Recorder::active());
  { SpanScope span(recorded_site("unseen")); }
  Recorder::start({});
  const Trace trace = Recorder::stop();
  for (SpanId i = 0; i < trace.size(); ++i) EXPECT_EQ(trace.kind(i), SpanKind::recording);  // of a GPU, its end
}

TEST(Recorder, FiltersByStateAndDetail) {
  Recorder::start({.state = State::cpu});
  EXPECT_TRUE(Recorder::active());
  EXPECT_FALSE(Recorder::phases_active());
  EXPECT_FALSE(Recorder::gpu_active());
  const TrackId track = Recorder::gpu_track(TrackKind::stream, "stream 7", 0);
  Recorder::add_gpu(recorded_site("mul", SpanKind::kernel), 0, 10, 10, track);
  EXPECT_EQ(Recorder::stop().size(), 0u);

  Recorder::start({.state = State::gpu, .detail = Detail::phases});
  EXPECT_FALSE(Recorder::active());
  EXPECT_FALSE(Recorder::phases_active());
  EXPECT_TRUE(Recorder::gpu_active());
  const std::int64_t now = clock_ns();
  Recorder::add_gpu(recorded_site("mul", SpanKind::kernel), 5, now, 12,
                    Recorder::gpu_track(TrackKind::stream, "stream 7", 0));
  const Trace trace = Recorder::stop();
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.start(0), now);
  EXPECT_EQ(trace.duration(0), 12);
  EXPECT_EQ(trace.run(0), 5u);
  EXPECT_TRUE(trace.on_gpu(0));

  Recorder::start({.detail = Detail::instances});
  EXPECT_TRUE(Recorder::phases_active());
  Recorder::stop();
}

TEST(Recorder, CountsWhatItDropsWhenFull) {
  constexpr std::uint64_t kSpans = 3 * Recorder::kChunkRecords;
  const SiteId s = recorded_site("many");
  // Too little to begin to write what there is.
  Recorder::start({.state = State::cpu, .max_bytes = Recorder::kChunkRecords * sizeof(SpanRecord)});
  for (std::uint64_t i = 0; i < kSpans; ++i) SpanScope span(s);
  const Trace trace = Recorder::stop();
  EXPECT_EQ(trace.size(), std::size_t{Recorder::kChunkRecords});
  ASSERT_EQ(trace.notes().size(), 1u) << trace.notes()[0].text;
  EXPECT_EQ(trace.notes()[0].count, kSpans + 1 - Recorder::kChunkRecords);  // one of the kept is the recorder's
}

TEST(Recorder, AddsUpWhatIsSaidAgain) {
  Recorder::start({.state = State::cpu});
  for (int i = 0; i < 1000; ++i) Recorder::add_note("runs that nobody saw", 2);
  Recorder::add_note("runs that nobody saw", 5, Note::Kind::dropped);
  const Trace trace = Recorder::stop();
  ASSERT_EQ(trace.notes().size(), 2u);
  EXPECT_EQ(trace.notes()[0].count, 2000u);
  EXPECT_EQ(trace.notes()[1].count, 5u);
}

TEST(Recorder, TellsItsSourcesAndKeepsTheHostsHalfWhenOneFails) {
  static int starts = 0;
  Recorder::add_source({.start = [](State, Detail) { ++starts; },
                        .stop =
                            [] {
                              if (starts == 1) throw Error(ErrorKind::device, "no GPU today");
                            }});
  Recorder::start({.state = State::cpu});
  Recorder::stop();
  EXPECT_EQ(starts, 0);
  Recorder::start({});
  const Trace trace = Recorder::stop();
  EXPECT_EQ(starts, 1);
  EXPECT_TRUE(std::any_of(trace.notes().begin(), trace.notes().end(),
                          [](const Note& note) { return note.text == "GPU spans: no GPU today"; }));
  starts = 100;
}

TEST(Profiler, RefusesToStartTwiceAndToStopWhatIsNotRunning) {
  expect_error([] { stop_profiler(); }, "nothing is being recorded");
  start_profiler(State::cpu, Detail::phases);
  expect_error([] { start_profiler(); }, "state CPU, detail phases");
  expect_error([] { Profiler nested; }, "already under way");
  expect_error([] { stop_profiler(SortBy::total, "/tmp/profile"); },
               "'/tmp/profile', needs to end in .json, .json.gz or .pftrace");
  EXPECT_TRUE(Recorder::running());
  EXPECT_NE(stop_profiler().find("Place: CPU"), std::string::npos);
}

TEST(Profiler, KeepsMomentsThatHaveAName) {
  profile_instant("before");
  Profiler seen;
  profile_instant("epoch");
  {
    const ProfileRange range("read");
    profile_instant("file is open");
  }
  profile_instant("epoch");
  seen.end();
  profile_instant("behind");
  const Trace& trace = seen.trace();
  std::vector<std::string> instants;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) != SpanKind::instant) continue;
    instants.emplace_back(trace.name(i));
    const bool is_inside = trace.parent(i) != kNone && trace.name(trace.parent(i)) == "read";
    EXPECT_EQ(is_inside, trace.name(i) == "file is open");
  }
  EXPECT_EQ(instants, (std::vector<std::string>{"epoch", "file is open", "epoch"}));
  ASSERT_EQ(trace.processes().size(), 1u);
  EXPECT_EQ(trace.processes()[0].pid, getpid());
  EXPECT_NE(seen.stop().find("\nepoch "), std::string::npos);
}

TEST(Profiler, ReportsAHalfOpenWindowOfSteps) {
  const SiteId run = Recorder::add_site({.name = "run", .kind = SpanKind::run});
  std::string text;
  for (int step = 0; step < 10; ++step) {
    if (step == 2) start_profiler(State::all, Detail::op);
    if (step == 8) text = stop_profiler(SortBy::total);
    SpanScope span(run, Recorder::next_run());
    SpanScope op(recorded_site("windowed"));
  }
  const std::size_t row = text.find("thread0::windowed");
  ASSERT_NE(row, std::string::npos) << text;
  std::istringstream cells(text.substr(row));
  std::string name;
  int calls = 0;
  cells >> name >> calls;
  EXPECT_EQ(calls, 6);
}

TEST(Profiler, ScopedFormWritesTheTimelineAndReportsAgain) {
  char path[] = "/tmp/paoding_timeline_XXXXXX.json";
  const int file = mkstemps(path, 5);
  ASSERT_GE(file, 0);
  close(file);
  Profiler seen(State::cpu);
  expect_error([&] { seen.trace(); }, "stop()");
  { SpanScope op(recorded_site("scoped")); }
  EXPECT_NE(seen.stop(SortBy::calls, path).find("scoped"), std::string::npos);
  EXPECT_NE(seen.stop(SortBy::max).find("Sorted by maximum"), std::string::npos);
  EXPECT_EQ(others(seen.trace()).size(), 1u);
  std::stringstream written;
  written << std::ifstream(path).rdbuf();
  EXPECT_NE(written.str().find("\"scoped\""), std::string::npos);
  std::remove(path);
  { Profiler unstopped; }
  EXPECT_FALSE(Recorder::running());
}

TEST(Profiler, ReadsTheWordsOfTheCommandLine) {
  EXPECT_EQ(parse_state("All"), State::all);
  EXPECT_EQ(parse_state("gpu"), State::gpu);
  EXPECT_EQ(parse_detail("Default"), Detail::op);
  EXPECT_EQ(parse_detail("OpDetail"), Detail::phases);
  EXPECT_EQ(parse_detail("AllOpDetail"), Detail::instances);
  EXPECT_EQ(parse_detail("phases"), Detail::phases);
  EXPECT_EQ(parse_sort("ave"), SortBy::average);
  EXPECT_EQ(parse_sort("none"), SortBy::none);
  expect_error([] { parse_state("tpu"); }, "state is 'tpu', needs to be one of cpu, gpu, all");
  expect_error([] { parse_detail("ops"); }, "Default, OpDetail, AllOpDetail");
  expect_error([] { parse_sort("name"); }, "none, calls, total, max, min, average");
}

// Not an assertion on speed, which a loaded machine would fail; the bound catches a lock or an allocation per span.
TEST(Recorder, CostsNanosecondsPerSpan) {
  constexpr int kSpans = 1'000'000;
  const SiteId s = recorded_site("cost");
  const auto measure = [&](int spans) {
    double best = 1e9;
    for (int round = 0; round < 5; ++round) {
      const std::int64_t start = clock_ns();
      for (int i = 0; i < spans; ++i) {
        SpanScope span(s);
        asm volatile("" ::: "memory");
      }
      best = std::min(best, static_cast<double>(clock_ns() - start) / spans);
    }
    return best;
  };
  const double off = measure(kSpans);
  Recorder::start({.max_bytes = std::size_t{1} << 29});  // no file, which would share the disk's time
  const double on = measure(kSpans);
  const Trace trace = Recorder::stop();
  EXPECT_EQ(others(trace).size(), 5u * kSpans);
  RecordProperty("off_ps", static_cast<int>(off * 1000));
  RecordProperty("on_ps", static_cast<int>(on * 1000));
#if defined(__SANITIZE_ADDRESS__) || defined(__SANITIZE_THREAD__) || defined(__clang__)  // clang: of `make tsan`
  constexpr double kSlower = 20;
#else
  constexpr double kSlower = 1;
#endif
  EXPECT_LT(off, 50 * kSlower);
  EXPECT_LT(on, 500 * kSlower);
}

}  // namespace
}  // namespace paoding::profile
