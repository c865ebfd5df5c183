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

// A copy engine that only fills, and kernels of which the host was ahead: neither is a launch's fault.
TEST(Budget, TellsFillsFromCopiesAndGapsBetweenKernelsFromLaunches) {
  BudgetScene s;
  s.trace.set_window(0, 1000);
  const TrackId host = s.trace.add_track(TrackKind::thread, "thread0"),
                gpu = s.trace.add_track(TrackKind::stream, "stream 7", 0);
  const auto work = [&](const char* name, SpanKind kind, std::int64_t launch, std::int64_t start, std::int64_t end) {
    static std::uint32_t correlation = 0;
    s.add(host, "launch", SpanKind::launch, launch, launch + 20, ++correlation);
    s.add(gpu, name, kind, start, end, correlation);
  };
  work("fill", SpanKind::memset, 0, 50, 80);
  work("a", SpanKind::kernel, 30, 90, 200);    // its launch began before the fill did
  work("b", SpanKind::kernel, 100, 210, 300);  // and this one long before `a` ended
  work("c", SpanKind::kernel, 290, 340, 400);  // the call is under way when `b` ends
  work("d", SpanKind::kernel, 500, 530, 1000);
  EXPECT_EQ(s.text(),
            "thread0: launch 100 your code 900\n"
            "GPU 0: kernels 730 exposed fills 30"
            " idle: between kernels 20"  // 80..90, 200..210
            " idle: launch 120"          // 0..50, 300..340, 500..530
            " idle: your code 100\n");   // 400..500
}

// PyTorch's two threads: while the engine runs gradients the loop's thread is blocked, and in between the engine waits.
class OtherBudget : public ::testing::Test {
 protected:
  BudgetScene s;
  ProcessId process = s.trace.add_process(7, -1, "train", Source::pytorch);
  TrackId loop = s.trace.add_track(TrackKind::thread, "main", -1, process),
          engine = s.trace.add_track(TrackKind::thread, "pt_autograd_0", -1, process),
          gpu = s.trace.add_track(TrackKind::stream, "stream 7", 0, process);

  void SetUp() override {
    s.trace.set_window(0, 1000);
    s.add(loop, "ProfilerStep#1", SpanKind::step, 0, 1000);
    s.add(loop, "aten::linear", SpanKind::op, 100, 200);
    s.add(loop, "launch", SpanKind::launch, 150, 160, 1);
    s.add(gpu, "forward", SpanKind::kernel, 170, 300, 1);
    s.add(engine, "autograd::engine::evaluate_function: Linear", SpanKind::op, 400, 600);
    s.add(engine, "launch", SpanKind::launch, 500, 520, 2);
    s.add(gpu, "backward", SpanKind::kernel, 530, 700, 2);
  }
};

TEST_F(OtherBudget, OfAThreadThatWaitsIsNoCode) {
  EXPECT_EQ(s.text(),
            "main: ops 90 launch 10 blocked 200 your code 700\n"           // 400..600
            "pt_autograd_0: ops 180 launch 20 idle or not recorded 800\n"  // 0..400, 600..1000
            "GPU 0: kernels 300 idle: launch 200"                          // the loop's 100..170, the engine's 400..530
            " idle: your code 500\n");                                     // 0..100, 300..400, 700..1000
}

TEST_F(OtherBudget, OfALockAPollAndASleepIsBlocked) {
  s.add(loop, "train.py(3): step", SpanKind::frame, 610, 900);
  s.add(loop, "<built-in method acquire of _thread.lock object at 0x7f01>", SpanKind::frame, 620, 650);
  s.add(loop, "<built-in method poll of select.poll object at 0x7f02>", SpanKind::frame, 660, 670);
  s.add(loop, "<built-in function sleep>", SpanKind::frame, 700, 705);
  s.add(loop, "threading.py(327): wait", SpanKind::frame, 800, 840);
  s.add(loop, "<built-in method append of list object at 0x7f03>", SpanKind::frame, 850, 860);
  const std::string text = s.text();
  EXPECT_NE(text.find("main: ops 90 launch 10 blocked 285 your code 615\n"), text.npos) << text;
  EXPECT_NE(text.find(" idle: blocked 45 idle: your code 455\n"), text.npos) << text;  // behind 700
}

// JAX's loop waits in a read, which has spans in it, and then nothing of the thread is recorded.
TEST(JaxBudget, OfAReadIsBlockedAndBehindTheLastSpanNothingIsKnown) {
  BudgetScene jax;
  jax.trace.set_window(0, 1000);
  const ProcessId own = jax.trace.add_process(7, -1, "train", Source::jax);
  const TrackId python = jax.trace.add_track(TrackKind::thread, "python3", -1, own);
  jax.add(python, "train", SpanKind::step, 100, 600);
  jax.add(python, "update", SpanKind::run, 100, 200);
  jax.add(python, "np.asarray(jax.Array)", SpanKind::host, 300, 500);
  jax.add(python, "PjRtBuffer::ToLiteral", SpanKind::host, 350, 400);
  EXPECT_EQ(jax.text(), "python3: run, between ops 100 blocked 200 idle or not recorded 500 your code 200\n");
}

// A thread on which nothing of the user's is recorded says nothing of the user's code; whom it waits for does.
TEST_F(OtherBudget, OfAHelperIsNotTheUsersCode) {
  const TrackId helper = s.trace.add_track(TrackKind::thread, "pjrt_worker", -1, process),
                pins = s.trace.add_track(TrackKind::thread, "pin_memory", -1, process);
  s.add(helper, "H2D Dispatch", SpanKind::host, 880, 920);
  s.add(helper, "launch", SpanKind::launch, 900, 910, 3);
  s.add(gpu, "copy", SpanKind::memcpy, 950, 1000, 3);
  s.add(pins, "pin", SpanKind::range, 300, 320);
  s.add(pins, "pin", SpanKind::range, 600, 620);
  EXPECT_EQ(s.text(),
            "main: ops 90 launch 10 blocked 200 your code 700\n"
            "pt_autograd_0: ops 180 launch 20 idle or not recorded 800\n"
            "pjrt_worker: ops 30 launch 10 idle or not recorded 960\n"
            "pin_memory: idle or not recorded 680 your code 320\n"
            "GPU 0: kernels 300 exposed copies 50"
            " idle: launch 270"         // 100..170, 400..530, 880..950
            " idle: your code 380\n");  // 0..100, 300..400, 700..880: the loop's
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
    if (below(2) == 0) trace.add_process(7, -1, "other", Source::pytorch);
    const TrackId tracks[] = {
        trace.add_track(TrackKind::thread, "thread0"), trace.add_track(TrackKind::stream, "stream 7", 0),
        trace.add_track(TrackKind::thread, "thread1"), trace.add_track(TrackKind::copy_engine, "copies 7", 0),
        trace.add_track(TrackKind::stream, "stream 9", 1)};
    const int count = below(40);
    for (int i = 0; i < count; ++i) {
      trace.add({.track = tracks[below(5)],
                 .site = trace.add_site({.name = below(4) == 0 ? "autograd::engine::evaluate_function: n" : "n",
                                         .kind = static_cast<SpanKind>(below(kSpanKinds))}),
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
