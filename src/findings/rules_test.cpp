// SPDX-License-Identifier: Apache-2.0
// Rules on traces made by hand, in which a step's time with the change made is known.
#include "findings/rules.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "findings/replay.h"
#include "tests/support/made_trace.h"

namespace paoding::findings {
namespace {

using namespace profile;

std::vector<Finding> findings_of_kind(const Findings& all, Kind kind) {
  std::vector<Finding> found;
  std::ranges::copy_if(all.found, std::back_inserter(found), [&](const Finding& one) { return one.kind == kind; });
  return found;
}

// Whether the interval holds the gain, but for some us.
testing::AssertionResult holds(const Finding& one, double us) {
  constexpr double kInexact = 20;
  const double low = static_cast<double>(one.gain_low_ns) / 1e3 - kInexact,
               high = static_cast<double>(one.gain_high_ns) / 1e3 + kInexact;
  if (low <= us && us <= high) return testing::AssertionSuccess();
  return testing::AssertionFailure() << us << " us are not in " << low << " to " << high;
}

// A step of 2 ms: two kernels of 500 us, and between them the host waits for the first and then works for 400 us.
TEST(SyncInStep, GainsTheIdleTimeBehindTheWait) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 2'000.0 * k;
    made.step(at, at + 2'000);
    made.launch(at + 10, at + 15, at + 515, "first", 7, "aten::mm");
    made.host(SpanKind::op, "aten::item", at + 20, at + 530);
    made.host(SpanKind::wait, "cudaStreamSynchronize", at + 22, at + 525);
    made.host(SpanKind::op, "aten::view", at + 540, at + 930);
    made.launch(at + 940, at + 945, at + 1'445, "second", 7, "aten::add");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 950, at + 1'455);
    made.host(SpanKind::op, "aten::view", at + 1'460, at + 1'990);
  }
  const Findings all = find(made.finish());
  EXPECT_EQ(all.abstained, "");
  const std::vector<Finding> found = findings_of_kind(all, Kind::sync_in_step);
  ASSERT_FALSE(found.empty());
  const auto item = std::ranges::find(found, "aten::item", &Finding::op);
  ASSERT_NE(item, found.end());
  // Without it the 390 us of the host lie beside the first kernel: the second begins 85 us behind 430, not 430 behind
  // 515.
  EXPECT_TRUE(holds(*item, 429));
  EXPECT_NE(item->change.find(".item()"), std::string::npos);
}

// A step that the host limits: a read of 160 us, of which it waits for 38, with a copy of the value.
TEST(SyncInStep, TakesTheReadAlongWithItsWait) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    made.launch(at + 10, at + 15, at + 100, "first", 7, "aten::mm");
    made.host(SpanKind::op, "aten::item", at + 20, at + 180);
    made.copy(Copy::device_to_host, "Device -> Pinned", 4, at + 60, at + 65, at + 101, at + 103);
    made.host(SpanKind::wait, "cudaStreamSynchronize", at + 70, at + 108);
    made.host(SpanKind::op, "aten::view", at + 190, at + 890);
    made.launch(at + 900, at + 905, at + 950, "second", 7, "aten::add");
    made.host(SpanKind::op, "aten::view", at + 910, at + 990);
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::sync_in_step);
  const auto item = std::ranges::find(found, "aten::item", &Finding::op);
  ASSERT_NE(item, found.end());
  EXPECT_NEAR(static_cast<double>(item->replayed_high_ns) / 1e3, 160, 6);
}

// Three reads one behind the other, while nothing runs on the GPU: the time until the next launch is lost once.
TEST(SyncInStep, CountsTheIdleTimeBehindSeveralWaitsOnce) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 2'000.0 * k;
    made.step(at, at + 2'000);
    made.launch(at + 10, at + 15, at + 1'015, "kernel", 7, "aten::mm");
    for (int n = 0; n < 3; ++n) {
      const double from = at + 100 + 1'000 * (n > 0 ? 1 : 0) + 300 * n;
      made.host(SpanKind::op, "aten::item", from, n == 0 ? at + 1'030 : from + 20);
      made.host(SpanKind::wait, "cudaStreamSynchronize", from + 2, n == 0 ? at + 1'025 : from + 15);
    }
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  std::int64_t idle = 0;
  for (const Wait& wait : steps.waits()) idle += wait.idle_ns;
  EXPECT_GT(idle, 8 * 900'000);
  EXPECT_LE(idle, 8 * 1'000'000);  // from one kernel to the next
}

TEST(SyncInStep, IsNotTheRecordersOwnWaitAtTheEnd) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + (k < 7 ? 1'000 : 9'000));
    made.launch(at + 10, 20 + 2'000.0 * k, 2'019 + 2'000.0 * k, "kernel", 7, "aten::mm");
  }
  made.host(SpanKind::wait, "cudaDeviceSynchronize", 7'100, 15'990);
  const Findings all = find(made.finish());
  EXPECT_EQ(all.abstained, "");
  EXPECT_EQ(all.step_ns, 2'000'000);  // the GPU's, though the host marks one each ms
  EXPECT_TRUE(all.found.empty());
}

TEST(PageableCopies, GainTheTimeThatTheirCallsHoldTheHost) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 3'000.0 * k;
    made.step(at, at + 3'000);
    made.copy(Copy::host_to_device, "pageable", 8 << 20, at + 10, at + 1'010, at + 800, at + 1'000);
    made.launch(at + 1'020, at + 1'030, at + 2'930, "kernel", 7, "aten::mm");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 1'040, at + 2'940);
  }
  const Findings all = find(made.finish());
  const std::vector<Finding> found = findings_of_kind(all, Kind::pageable_copies);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 790));  // of a call of 1,000 us the copy of 200 is left, and 10 of the call
}

TEST(PageableCopies, OfResultsGetAdviceOfTheirOwn) {
  MadeTrace made;
  for (int k = 0; k < 16; ++k) {
    const double at = 3'000.0 * k;
    made.step(at, at + 3'000);
    made.launch(at + 5, at + 10, at + 1'900, "kernel", 7, "aten::mm");
    if (k % 2 == 1) {
      made.copy(Copy::device_to_host, "pageable", 8 << 20, at + 1'910, at + 2'710, at + 1'920, at + 2'700);
    } else {
      made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 20, at + 1'910);
    }
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::pageable_copies);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_EQ(found[0].title, "copies from the GPU go to pageable memory");
  EXPECT_EQ(found[0].text.find("8 of 16 steps have 1 copy from the GPU to pageable memory, 8.39 MB at 10.8 GB/s; the "
                               "calls hold the host for 800 us of each of those (2.96 ms on average)"),
            0u)
      << found[0].text;
  EXPECT_EQ(found[0].change.find("DataLoader"), std::string::npos) << found[0].change;
  EXPECT_NE(found[0].change.find("copy_(x, non_blocking=True)"), std::string::npos) << found[0].change;
}

TEST(ExposedCopies, GainTheCopyThatRunsBesideTheKernels) {
  MadeTrace made;
  for (int k = 0; k < 10; ++k) {
    const double at = 2'000.0 * k;
    made.step(at, at + 2'000);
    made.copy(Copy::host_to_device, "pinned", 8 << 20, at + 10, at + 14, at + 20, at + 420);
    made.launch(at + 20, at + 422, at + 1'922, "kernel", 7, "aten::mm");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 30, at + 1'932);
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::exposed_copies);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 360));  // nine of ten copies of 400 us, and all of them at most
  EXPECT_LE(found[0].replayed_high_ns, 405'000);
}

TEST(AllocationInStep, GainsTheTimeInWhichTheGpuIsIdle) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    made.host(SpanKind::host, "cudaFree", at + 10, at + 310);
    made.launch(at + 320, at + 325, at + 425, "kernel", 7, "aten::mm");
    made.host(SpanKind::op, "aten::view", at + 330, at + 990);
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::allocation_in_step);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 300));
}

TEST(RebuiltGraph, GainsTheCallsThatMakeIt) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    made.host(SpanKind::host, "cudaGraphInstantiate", at + 10, at + 210);
    made.launch(at + 320, at + 325, at + 425, "kernel", 7, "aten::mm");
    made.host(SpanKind::op, "aten::view", at + 330, at + 990);
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::rebuilt_graph);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 200));
}

// The GPU is the bottleneck: 188 us of work, and 12 us to the next graph, which was made while it was busy.
Trace graphs_that_follow_each_other(bool are_new) {
  MadeTrace made;
  made.launch_by("cudaGraphLaunch");
  for (int k = 0; k < 8; ++k) {
    const double at = 200.0 * k;
    made.step(at, at + 200);
    if (are_new) made.host(SpanKind::host, "cudaGraphInstantiate", at + 10, at + 60);
    made.launch(at + 70, at + 300, at + 488);
  }
  return made.finish();
}

TEST(RebuiltGraph, GainsTheGapBeforeAGraphThatIsNew) {
  const std::vector<Finding> found = findings_of_kind(find(graphs_that_follow_each_other(true)), Kind::rebuilt_graph);
  ASSERT_EQ(found.size(), 1u);
  // Seven gaps of eight steps shrink to 3.5 us at least, and to 1.5 at most; the interval adds the error of replays.
  EXPECT_NEAR(static_cast<double>(found[0].gain_low_ns), kGainBelow * 7 * 8'500.0 / 8, 50);
  EXPECT_NEAR(static_cast<double>(found[0].gain_high_ns), kGainAbove * 7 * 10'500.0 / 8, 50);
  EXPECT_TRUE(findings_of_kind(find(graphs_that_follow_each_other(false)), Kind::rebuilt_graph).empty());
}

// In four of eight steps nothing is recorded for 10 ms; then the driver may load code.
Trace silent_before_a_launch(bool loads, double silent_us) {
  MadeTrace made;
  const TrackId driver = made.thread(std::string(kOverheadTrack));
  double at = 0;
  for (int k = 0; k < 8; ++k) {
    const double longer = k % 2 == 1 ? silent_us : 0;
    made.step(at, at + 1'000 + longer);
    made.launch(at + 10, at + 15, at + 115, "first", 7, "aten::mm");
    if (loads && longer > 0) {
      made.on_thread(driver);
      made.host(SpanKind::compile, "Lazy Function Loading", at + longer + 250, at + longer + 280);
      made.on_thread(kNone);
    }
    made.launch(at + longer + 320, at + longer + 325, at + longer + 425, "second", 7, "aten::add");
    made.host(SpanKind::op, "aten::view", at + longer + 330, at + longer + 990);
    at += 1'000 + longer;
  }
  return made.finish();
}

TEST(LateCompile, GainsTheSilenceThatEndsWithALoad) {
  const std::vector<Finding> found = findings_of_kind(find(silent_before_a_launch(true, 10'000)), Kind::late_compile);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], (10'000 + 250 + 30 - 115) / 2.0));  // while the GPU is idle
  EXPECT_TRUE(findings_of_kind(find(silent_before_a_launch(false, 10'000)), Kind::late_compile).empty());
  // A short one is as likely the user's own code.
  for (const Finding& one : findings_of_kind(find(silent_before_a_launch(true, 1'000)), Kind::late_compile)) {
    EXPECT_LE(one.gain_high_ns, 30'000);
  }
}

// The work of a step of 1 ms that begins with a pause: a launch, and an op until near the end. The next step is at `at`
// then.
void work_after(MadeTrace* made, double* at, double pause) {
  const double begin = *at + pause;
  made->launch(begin + 320, begin + 325, begin + 425, "kernel", 7, "aten::mm");
  made->host(SpanKind::op, "aten::view", begin + 330, begin + 990);
  *at += 1'000 + pause;
}

TEST(LateCompile, GainsAnOpThatIsSlowAtItsOnlyCall) {
  MadeTrace made;
  double at = 0;
  for (int k = 0; k < 10; ++k) {
    const double longer = k == 4 ? 20'000 : 0;
    made.step(at, at + 1'000 + longer);
    if (k == 4) made.host(SpanKind::op, "aten::special_entr", at + 10, at + 10 + longer);
    work_after(&made, &at, longer);
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::late_compile);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 2'000));
  EXPECT_EQ(found[0].op, "aten::special_entr");
}

TEST(RareSlowSteps, GainThePausesOfAFewSteps) {
  MadeTrace made;
  double at = 0;
  for (int k = 0; k < 40; ++k) {
    const double longer = k % 20 == 10 ? 10'000 : 0;  // in two of 40 steps nothing is recorded for 10 ms
    made.step(at, at + 1'000 + longer);
    work_after(&made, &at, longer);
  }
  const Trace trace = made.finish();
  const std::vector<Finding> found = findings_of_kind(find(trace), Kind::rare_slow_steps);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 500));
  MadeTrace few;
  for (int k = 0; k < 8; ++k) few.step(1'000.0 * k, 1'000.0 * (k + 1));
  const Findings all = find(few.finish());
  EXPECT_NE(std::ranges::find(all.silent, Kind::rare_slow_steps, &Silence::kind), all.silent.end());
}

// The steps behind a pause are a little longer too, and are not those that are rare.
TEST(RareSlowSteps, AreThoseOfThePauseAndNotTheOnesBehindIt) {
  MadeTrace made;
  double at = 0;
  for (int k = 0; k < 30; ++k) {
    const double longer = k % 10 == 4 ? 50'000 : k % 10 == 5 ? 1'000 : k % 10 == 6 ? 2'000 : 0;
    made.step(at, at + 1'000 + longer);
    if (longer > 0) made.host(SpanKind::range, "read_batch", at, at + longer);
    work_after(&made, &at, longer);
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::rare_slow_steps);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 5'000));
  EXPECT_NE(found[0].text.find("3 of 30 steps"), std::string::npos) << found[0].text;
  EXPECT_NE(found[0].change.find("read ahead"), std::string::npos) << found[0].change;
}

// Every tenth step writes a checkpoint: four copies to the host, each of which it waits for, and a file.
TEST(RareSlowSteps, AreOneFindingWithAllThatACheckpointDoes) {
  MadeTrace made;
  double at = 0;
  for (int k = 0; k < 40; ++k) {
    const bool saves = k % 10 == 5;
    const double longer = saves ? 8'000 : 0;
    made.step(at, at + 1'000 + longer);
    made.launch(at + 10, at + 15, at + 990, "kernel", 7, "aten::mm");
    made.host(SpanKind::op, "aten::view", at + 20, at + 980);
    for (int n = 0; saves && n < 4; ++n) {
      const double from = at + 1'000 + 500 * n;
      made.copy(Copy::device_to_host, "pageable", 4 << 20, from, from + 490, from + 5, from + 480);
    }
    at += 1'000 + longer;
  }
  const Findings all = find(made.finish());
  EXPECT_EQ(all.abstained, "");
  ASSERT_EQ(all.found.size(), 1u);
  const Finding& one = all.found.front();
  EXPECT_EQ(one.kind, Kind::rare_slow_steps);
  EXPECT_EQ(one.effect.in_steps, (std::vector<std::size_t>{6, 16, 26, 36}));
  std::size_t stretches = 0;
  for (const ExampleKind& kind : one.evidence.kinds) {
    if (kind.is == "time beyond that of other steps") stretches += kind.count;
  }
  EXPECT_EQ(stretches, 4u) << "each slow step is one example, however many stretches it has";
  EXPECT_NE(one.text.find(", 10 steps apart"), std::string::npos) << one.text;
  EXPECT_NE(one.text.find(" 16.8 MB come from the GPU in one of them, 0 MB in one of the others"), std::string::npos)
      << one.text;
  // The file is 6 ms of the 8, and four calls that need not wait 1.96.
  EXPECT_TRUE(holds(one, 7'960 / 10.0));
  const auto copies = std::ranges::find(one.parts, Kind::pageable_copies, &Part::kind);
  ASSERT_NE(copies, one.parts.end());
  EXPECT_EQ(copies->text.find("4 of 40 steps have 4 copies from the GPU"), 0u) << copies->text;
  EXPECT_NE(std::ranges::find(one.evidence.kinds, "Memcpy", &ExampleKind::name), one.evidence.kinds.end());
  EXPECT_EQ(one.change.find("if they save a checkpoint"), 0u) << one.change;
  EXPECT_EQ(one.change.find("gc."), std::string::npos) << one.change;
}

TEST(LateData, IsFoundWhereTheLoopMakesItWithoutALoader) {
  MadeTrace made;
  for (int k = 0; k < 10; ++k) {  // 2 ms that are no op, in front of a copy
    const double at = 4'000.0 * k;
    made.step(at, at + 4'000);
    made.copy(Copy::host_to_device, "pinned", 1 << 20, at + 2'000, at + 2'004, at + 2'010, at + 2'030);
    made.launch(at + 2'040, at + 2'045, at + 3'945, "kernel", 7, "aten::mm");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 2'050, at + 3'990);
  }
  const std::vector<Finding> found = findings_of_kind(find(made.finish()), Kind::late_data);
  ASSERT_EQ(found.size(), 1u);
  EXPECT_TRUE(holds(found[0], 1'990));
}

TEST(Replay, MovesAThreadThatIsHandedWorkWithTheOneThatHandsItOver) {
  MadeTrace made;
  const TrackId worker = made.thread("worker");
  for (int k = 0; k < 6; ++k) {
    const double at = 1'000.0 * k;
    made.on_thread(kNone);
    made.step(at, at + 1'000);
    made.host(SpanKind::host, "next_batch", at + 5, at + 600);
    made.host(SpanKind::host, "dispatch", at + 600, at + 690);
    made.on_thread(worker);  // while the main thread is busy
    made.host(SpanKind::host, "H2D Dispatch", at + 610, at + 650);
    made.launch(at + 620, at + 625, at + 635, "copies");
    made.on_thread(kNone);
    made.launch(at + 700, at + 705, at + 985, "kernel");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 710, at + 990);
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  const Replay replay(steps);
  EXPECT_LT(replay.error(), 0.001);
  std::vector<Edit> edits;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.name(i) == "next_batch") edits.push_back(Edit::remove(i));
  }
  EXPECT_NEAR(static_cast<double>(replay.step_ns(std::span<const Edit>(edits))), 405'000, 1'000);
}

TEST(Replay, LeavesWorkOfBeforeTheStepsWhereItWas) {
  MadeTrace made;
  made.launch(-100, -90, 1'500, "before", 7, "aten::mm");  // the GPU has 1.5 ms to do when the first step begins
  for (int k = 0; k < 6; ++k) {
    const double at = 100.0 * k;
    made.step(at, at + 100);
    made.launch(at + 10, 1'502 + 200.0 * k, 1'700 + 200.0 * k, "kernel", 7, "aten::mm");
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  EXPECT_LT(Replay(steps).error(), 0.001);
}

}  // namespace
}  // namespace paoding::findings
