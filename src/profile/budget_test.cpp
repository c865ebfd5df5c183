// SPDX-License-Identifier: Apache-2.0
// Budgets of traces made by hand, and what must hold of any: every nanosecond of the wall once.
#include "profile/budget.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>

namespace paoding::profile {
namespace {

class BudgetScene {
 public:
  Trace trace;
  void add(TrackId track, const char* name, SpanKind kind, std::int64_t start, std::int64_t end,
           std::uint32_t correlation = 0, std::uint32_t run = 0) {
    trace.add({.track = track,
               .site = trace.add_site({.name = name, .op = kind == SpanKind::op ? name : "", .kind = kind}),
               .start_ns = start,
               .duration_ns = end - start,
               .run = run,
               .correlation = correlation});
  }
  std::string text() {
    trace.finish();
    std::string all;
    for (const Budget& budget : budgets(trace, thread_times(trace))) {
      all += budget.of + ":";
      for (const BudgetPart& part : budget.parts) all += fmt::format(" {} {}", part.name, part.ns);
      all += "\n";
    }
    return all;
  }
};

TEST(Budget, GivesEveryMomentToTheInnermostSpan) {
  BudgetScene s;
  s.trace.set_window(0, 1000);
  const TrackId host = s.trace.add_track(TrackKind::thread, "thread0");
  s.add(host, "compile", SpanKind::compile, 0, 100);
  s.add(host, "inside", SpanKind::host, 20, 40);
  s.add(host, "load", SpanKind::range, 100, 300);
  s.add(host, "feed", SpanKind::feed, 250, 280);
  s.add(host, "run", SpanKind::run, 400, 700);
  s.add(host, "mul", SpanKind::op, 410, 500);
  s.add(host, "other threads", SpanKind::wait, 450, 470);
  s.add(host, "fetch", SpanKind::fetch, 800, 900);
  s.add(host, "wait", SpanKind::wait, 800, 850);
  s.add(host, "copy", SpanKind::memcpy, 850, 890);
  EXPECT_EQ(s.text(), "thread0: ops 70 run, between ops 210 wait 70 feed 30 fetch 50 compile 100 your code 470\n");
}

// Two replays of a graph of two kernels; the second is launched late, since the thread reads a file.
TEST(Budget, SaysWhyAGpuIsIdle) {
  BudgetScene s;
  s.trace.set_window(0, 1000);
  const TrackId host = s.trace.add_track(TrackKind::thread, "thread0"),
                gpu = s.trace.add_track(TrackKind::stream, "stream 7", 0),
                copies = s.trace.add_track(TrackKind::copy_engine, "copies 7", 0);
  for (const std::uint32_t run : {1u, 2u}) {
    const std::int64_t at = run == 1 ? 100 : 600;
    s.add(host, "run", SpanKind::run, at, at + 50, 0, run);
    s.add(host, "graph launch", SpanKind::launch, at + 10, at + 40);
    s.add(gpu, "a", SpanKind::kernel, at + 60, at + 100, run, run);
    s.add(gpu, "b", SpanKind::kernel, at + 120, at + 200, run, run);
  }
  s.add(host, "wait", SpanKind::wait, 150, 320);
  s.add(copies, "GPU->CPU", SpanKind::memcpy, 290, 310);
  s.add(host, "feed", SpanKind::feed, 500, 530);
  // Idle: 0..110 by the thread's own code and run, then launching; 140 to 150 .. as the comments say.
  EXPECT_EQ(s.text(),
            "thread0: run, between ops 40 launch 60 wait 170 feed 30 your code 700\n"
            "GPU 0: kernels 240 exposed copies 10 idle: inside a launch 40"  // 200..220, 700..720
            " idle: launch 120"                                              // 100..160, 600..660
            " idle: feed 30 idle: sync 10"                                   // 310..320
            " idle: your code 550\n");                                       // 0..100, 320..500, 530..600, 800..1000
}

TEST(Budget, LetsWorkersWaitBetweenRegions) {
  BudgetScene s;
  s.trace.set_window(0, 100);
  const TrackId host = s.trace.add_track(TrackKind::thread, "thread0");
  s.add(host, "mul", SpanKind::op, 10, 60);
  for (int t = 1; t <= 2; ++t) {
    s.add(s.trace.add_track(TrackKind::thread, fmt::format("thread{}", t)), "part", SpanKind::work, 10, 20 + 10 * t);
  }
  EXPECT_EQ(s.text(), "thread0: ops 50 your code 50\nthread1: ops 20 wait 80\nthread2: ops 30 wait 70\n");
  const Budget all = together(budgets(s.trace, thread_times(s.trace)));
  EXPECT_EQ(all.of, "2 workers");
  EXPECT_EQ(all.parts.at(0).ns + all.parts.at(1).ns, 200);
}

TEST(Budget, DoesNotKnowWhatARunDidBeforeTheRecording) {
  BudgetScene s;
  s.trace.set_window(100, 200);
  s.add(s.trace.add_track(TrackKind::thread, "thread0"), "run", SpanKind::run, 50, 160);
  EXPECT_EQ(s.text(), "thread0: not seen 60 your code 40\n");
}

// Spans at random, crossing, of all kinds, on threads and on two GPUs, some outside of the window.
TEST(Budget, AddsUpToTheWallTimeOfAnyTrace) {
  std::mt19937 random(11);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 2000; ++round) {
    Trace trace;
    if (below(2) == 0) trace.set_window(100, 100 + below(900));
    const TrackId tracks[] = {
        trace.add_track(TrackKind::thread, "thread0"), trace.add_track(TrackKind::stream, "stream 7", 0),
        trace.add_track(TrackKind::thread, "thread1"), trace.add_track(TrackKind::copy_engine, "copies 7", 0),
        trace.add_track(TrackKind::stream, "stream 9", 1)};
    const int count = below(40);
    for (int i = 0; i < count; ++i) {
      trace.add({.track = tracks[below(5)],
                 .site = trace.add_site({.name = "n", .kind = static_cast<SpanKind>(below(kSpanKinds))}),
                 .start_ns = below(1000),
                 .duration_ns = below(300),
                 .run = static_cast<std::uint32_t>(below(4)),
                 .correlation = static_cast<std::uint32_t>(below(10))});
    }
    trace.finish();
    const std::vector<ThreadTime> threads = thread_times(trace);
    for (const ThreadTime& thread : threads) {
      std::int64_t at = trace.window_start();
      for (const UseSegment& segment : thread.segments) {
        ASSERT_EQ(segment.start, at);
        ASSERT_GT(segment.end, segment.start);
        at = segment.end;
      }
      ASSERT_TRUE(thread.segments.empty() || at == trace.window_end());
    }
    for (const Budget& budget : budgets(trace, threads)) {
      std::int64_t sum = 0;
      for (const BudgetPart& part : budget.parts) {
        ASSERT_GT(part.ns, 0);
        sum += part.ns;
      }
      ASSERT_EQ(sum, trace.wall_ns()) << budget.of << " in round " << round;
    }
  }
}

}  // namespace
}  // namespace paoding::profile
