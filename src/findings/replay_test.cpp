// SPDX-License-Identifier: Apache-2.0
// Replays: the unchanged trace takes as long as it did, and changed ones as long as is computed by hand.
#include "findings/replay.h"

#include <gtest/gtest.h>

#include "tests/support/made_trace.h"
#include "trace/reader.h"

namespace paoding::findings {
namespace {

using namespace profile;

std::vector<SpanId> spans_named(const Trace& trace, std::string_view name) {
  std::vector<SpanId> found;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.name(i) == name) found.push_back(i);
  }
  return found;
}

std::int64_t with(const Replay& replay, const std::vector<Edit>& edits) {
  return replay.step_ns(std::span<const Edit>(edits));
}

// A GPU that is busy all the time: two kernels of 400 us each, 2 us apart, launched long before they run; the host
// waits for the second.
Trace busy_gpu(int steps = 8) {
  MadeTrace made;
  for (int k = 0; k < steps; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    made.launch(at + 10, at + 20, at + 420, "first", 7, "aten::mm");
    made.launch(at + 30, at + 422, at + 822, "second", 7, "aten::add");
    made.host(SpanKind::wait, "cudaStreamSynchronize", at + 40, at + 832);
  }
  return made.finish();
}

TEST(Replay, TakesAsLongAsTheTraceThatIsUnchanged) {
  const Trace trace = busy_gpu();
  const Steps steps(trace);
  const Replay replay(steps);
  EXPECT_EQ(replay.measured_step_ns(), 1'000'000);
  EXPECT_EQ(replay.step_ns(), 1'000'000);
  EXPECT_EQ(replay.error(), 0);
}

TEST(Replay, ShortensAStepByAKernelThatIsShorter) {
  const Trace trace = busy_gpu();
  const Steps steps(trace);
  const Replay replay(steps);
  std::vector<Edit> edits;
  for (const SpanId i : spans_named(trace, "first")) edits.push_back(Edit::duration(i, 100'000));
  EXPECT_EQ(with(replay, edits), 700'000);
  edits.clear();
  for (const SpanId i : spans_named(trace, "second")) edits.push_back(Edit::remove(i));
  // Without the gap of 2 us too; its launch ends in front of the wait, and nothing waits for that.
  EXPECT_EQ(with(replay, edits), 598'000);
}

TEST(Replay, OverlapsTheHostWithTheGpuWhereNothingWaits) {
  const Trace trace = busy_gpu();
  const Steps steps(trace);
  const Replay replay(steps);
  std::vector<Edit> edits;
  for (const SpanId i : spans_named(trace, "cudaStreamSynchronize")) edits.push_back(Edit::no_wait(i));
  // 8 steps of two kernels and the usual gap behind each, and 20 us in front of the first.
  const std::int64_t gap = replay.usual_gap();
  const std::int64_t expected = (20'000 + 8 * (400'000 + 2'000 + 400'000) + 7 * gap) / 8;
  EXPECT_NEAR(static_cast<double>(with(replay, edits)), static_cast<double>(expected), 1'000);
}

TEST(Replay, SavesNothingOnTheHostWhereTheGpuIsBusy) {
  MadeTrace made;
  double gpu = 12;
  for (int k = 0; k < 8; ++k) {  // 100 us of the host, 200 of the GPU; a wait at the end of all
    const double at = 100.0 * k;
    made.step(at, at + 100);
    made.launch(at + 2, std::max(gpu, at + 12), std::max(gpu, at + 12) + 199, "kernel", 7, "aten::mm");
    gpu = std::max(gpu, at + 12) + 200;
    made.host(SpanKind::op, "aten::view", at + 10, at + 90);
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  const Replay replay(steps);
  EXPECT_LT(replay.error(), 0.001);
  std::vector<Edit> edits;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::op && trace.duration(i) == 80'000) edits.push_back(Edit::remove(i));
  }
  ASSERT_EQ(edits.size(), 8u);
  EXPECT_NEAR(static_cast<double>(with(replay, edits)), static_cast<double>(replay.step_ns()), 2'000);
}

TEST(Replay, CutsNestedStretchesOnce) {
  MadeTrace made;
  for (int k = 0; k < 6; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    made.host(SpanKind::op, "outer", at + 100, at + 500);
    made.host(SpanKind::op, "inner", at + 200, at + 400);
    made.launch(at + 600, at + 610, at + 620, "kernel", 7, "aten::mm");
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  const Replay replay(steps);
  std::vector<Edit> edits;
  for (const std::string_view name : {"inner", "outer"}) {
    for (const SpanId i : spans_named(trace, name)) edits.push_back(Edit::remove(i));
  }
  EXPECT_EQ(with(replay, edits), 600'000);
  // Half of the outer one, and all of the inner one: 100 of the outer's own 200 stay.
  edits.clear();
  for (const SpanId i : spans_named(trace, "inner")) edits.push_back(Edit::remove(i));
  for (const SpanId i : spans_named(trace, "outer")) edits.push_back(Edit::duration(i, 200'000));
  EXPECT_EQ(with(replay, edits), 700'000);
}

TEST(Replay, KeepsDependentLaunchesOverlapping) {
  MadeTrace made;
  for (int k = 0; k < 6; ++k) {  // the second kernel begins 3 us before the first has ended
    const double at = 500.0 * k;
    made.step(at, at + 500);
    made.launch(at + 10, at + 20, at + 220, "first", 7, "aten::mm");
    made.launch(at + 30, at + 217, at + 417, "second", 7, "aten::mm");
    made.host(SpanKind::wait, "cudaStreamSynchronize", at + 40, at + 427);
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  const Replay replay(steps);
  EXPECT_EQ(replay.step_ns(), 500'000);
  std::vector<Edit> edits;
  for (const SpanId i : spans_named(trace, "first")) edits.push_back(Edit::duration(i, 100'000));
  EXPECT_EQ(with(replay, edits), 400'000);
}

TEST(Replay, FollowsThreadsThatTakeTurns) {
  MadeTrace made;
  const TrackId engine = made.thread("autograd");
  for (int k = 0; k < 6; ++k) {  // the loader of the main thread delays the launches of the other one
    const double at = 1'000.0 * k;
    made.on_thread(kNone);
    made.step(at, at + 1'000);
    made.host(SpanKind::feed, "enumerate(DataLoader)", at, at + 300);
    made.launch(at + 310, at + 320, at + 330, "forward", 7, "aten::mm");
    made.on_thread(engine);
    made.launch(at + 400, at + 410, at + 420, "backward", 7, "MmBackward");
    made.on_thread(kNone);
    made.launch(at + 900, at + 910, at + 920, "update", 7, "aten::add_");
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  const Replay replay(steps);
  EXPECT_LT(replay.error(), 0.001);
  std::vector<Edit> edits;
  for (const SpanId i : spans_named(trace, "enumerate(DataLoader)")) edits.push_back(Edit::remove(i));
  EXPECT_EQ(with(replay, edits), 700'000);
}

TEST(Replay, DoesNotReproduceAStallThatNothingExplains) {
  MadeTrace made;
  for (int k = 0; k < 6; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    made.launch(at + 10, at + 20, at + 120, "first", 7, "aten::mm");
    made.launch(at + 30, at + 620, at + 720, "second", 7, "aten::mm");  // 500 us behind the first
    made.host(SpanKind::wait, "cudaStreamSynchronize", at + 40, at + 730);
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  EXPECT_GT(Replay(steps).error(), 0.4);
  EXPECT_NE(find(trace).abstained.find("replaying"), std::string::npos);
}

TEST(Replay, IsOffByLessThanTwoPercentOnRecordedTraces) {
  for (const char* file :
       {"jax_2026.json.gz", "jax_h200.xplane.pb.gz", "rocm_jax_gemm.xplane.pb.gz", "rocm_jax_conv.xplane.pb.gz"}) {
    const Trace trace = trace::read_trace(std::string("tests/recordings/others/") + file);
    const Steps steps(trace);
    EXPECT_GE(steps.count(), 3u) << file;
    EXPECT_LE(Replay(steps).error(), 0.02) << file;
  }
}

// Two ranks with a collective in each step, to which the second comes late: its host needs 700 us from one to the next.
// The first that is known of it is in the middle of the first step.
TEST(Replay, ShortensTheHostOfAnotherRankThatIsFirstSeenLater) {
  Trace trace;
  const ProcessId ranks[] = {trace.add_process(1, 0, "made", Source::pytorch),
                             trace.add_process(2, 1, "made", Source::pytorch)};
  TrackId hosts[2], streams[2];
  for (int r = 0; r < 2; ++r) {
    hosts[r] = trace.add_track(TrackKind::thread, "thread 1", -1, ranks[r]);
    streams[r] = trace.add_track(TrackKind::stream, "stream 7", r, ranks[r]);
  }
  const SiteId step = trace.add_site({.name = "ProfilerStep", .kind = SpanKind::step}),
               launch = trace.add_site({.name = "cudaLaunchKernel", .kind = SpanKind::launch}),
               wait = trace.add_site({.name = "cudaStreamSynchronize", .kind = SpanKind::wait}),
               sum = trace.add_site({.name = "ncclDevKernel_AllReduce", .kind = SpanKind::kernel});
  for (int k = 0; k < 8; ++k) {
    const std::int64_t at = 700'000 * k, late = at + 600'000;
    const auto number = static_cast<std::uint32_t>(k + 1);
    const auto add = [&](TrackId track, SiteId site, std::int64_t from, std::int64_t to, std::uint32_t correlation) {
      trace.add({.track = track, .site = site, .start_ns = from, .duration_ns = to - from, .correlation = correlation});
    };
    add(hosts[0], step, at, at + 700'000, 0);
    add(hosts[0], launch, at + 10'000, at + 14'000, number);
    add(streams[0], sum, at + 20'000, late + 60'000, number);
    add(hosts[0], wait, at + 15'000, late + 65'000, 0);
    add(hosts[1], launch, late, late + 4'000, number);
    add(streams[1], sum, late + 10'000, late + 60'000, number);
  }
  trace.finish();
  const Steps steps(trace);
  const Replay replay(steps);
  ASSERT_EQ(steps.process(), ranks[0]);
  EXPECT_EQ(replay.step_ns(), replay.measured_step_ns());
  // From the second step on it comes after half the time.
  const std::int64_t halved = with(replay, {Edit::host(hosts[1], 0, trace.last_ns(), trace.last_ns() / 2)});
  EXPECT_NEAR(static_cast<double>(halved), 350'000, 60'000);
}

}  // namespace
}  // namespace paoding::findings
