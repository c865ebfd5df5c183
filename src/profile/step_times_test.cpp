// SPDX-License-Identifier: Apache-2.0
#include "profile/step_times.h"

#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <chrono>
#include <thread>

#include "paoding/error.h"
#include "paoding/profile.h"

namespace paoding::profile {
namespace {

// A hundred steps of 100 us, of which 20 are between the runs; one is another length.
Trace hundred_steps(int odd, SpanKind what, std::int64_t more) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  std::int64_t at = 0;
  const auto add = [&](const SiteInfo& site, std::int64_t length, std::uint32_t run = 0) {
    trace.add({.track = host, .site = trace.add_site(site), .start_ns = at, .duration_ns = length, .run = run});
  };
  for (int i = 0; i < 100; ++i) {
    const std::int64_t longer = i == odd ? more : 0;
    const std::int64_t in_run = what == SpanKind::op ? longer : 0;
    add({.name = "run", .kind = SpanKind::run}, 80'000 + in_run, static_cast<std::uint32_t>(i + 1));
    add({.op = "mul", .kind = SpanKind::op}, 30'000);
    at += 30'000;
    add({.op = "sum", .kind = SpanKind::op}, 40'000 + in_run);
    at += 50'000 + in_run;
    if (what == SpanKind::feed && longer > 0) add({.name = "feed", .kind = SpanKind::feed}, longer);
    at += 20'000 + longer - in_run;
  }
  trace.finish();
  return trace;
}

TEST(StepTimes, SaysWhatTheWorstStepTookLongerIn) {
  const auto of = [](const Trace& trace) { return step_times(trace, thread_times(trace)); };
  const StepTimes slow_op = of(hundred_steps(40, SpanKind::op, 70'000));
  EXPECT_EQ(slow_op.count, 100u);
  EXPECT_EQ(slow_op.p50, 100'000);
  EXPECT_EQ(slow_op.p99, 100'000);
  EXPECT_EQ(slow_op.worst, 170'000);
  EXPECT_EQ(slow_op.worst_step, 41u);  // counted from 1
  EXPECT_EQ(slow_op.why, "ops: sum");
  EXPECT_EQ(slow_op.why_ns, 70'000);
  EXPECT_EQ(of(hundred_steps(7, SpanKind::feed, 5'000)).why, "feed");
  EXPECT_EQ(of(hundred_steps(7, SpanKind::host, 5'000)).why, "your code");
  EXPECT_EQ(of(hundred_steps(99, SpanKind::host, 5'000)).worst, 100'000);  // behind the last there is no next
}

TEST(StepTimes, OfNothing) {
  Trace trace;
  trace.finish();
  EXPECT_EQ(step_times(trace, thread_times(trace)).count, 0u);
}

TEST(ProfiledSteps, RecordsAHalfOpenWindow) {
  ProfiledSteps steps(parse_steps("2:5"), State::cpu);
  for (int step = 0; step < 8; ++step) {
    steps.before(step);
    const ProfileRange range("step " + std::to_string(step));
  }
  ASSERT_NE(steps.profiler(), nullptr);
  const std::string report = steps.profiler()->stop(SortBy::none);
  for (int step = 0; step < 8; ++step) {
    EXPECT_EQ(report.find("::step " + std::to_string(step)) != report.npos, step >= 2 && step < 5) << report;
  }
}

// Steps that take longer while they are recorded, by what their loop does, and steps around them.
TEST(ProfiledSteps, SayWhatRecordingCostsByTheStepsAroundThem) {
  using std::chrono::milliseconds;
  ProfiledSteps steps(parse_steps("6:13"), State::cpu);
  for (int step = 0; step < 19; ++step) {
    steps.before(step);
    const bool is_first = step == 0;  // cold, as first steps are
    std::this_thread::sleep_for(milliseconds(is_first ? 60 : step >= 6 && step < 13 ? 12 : 8));
  }
  Profiler& seen = *steps.profiler();
  const std::string text = seen.stop(), json = seen.stop(SortBy::total, "", {.format = ReportFormat::json}),
                    csv = seen.stop(SortBy::total, "", {.format = ReportFormat::csv});
  simdjson::dom::parser parser;
  const simdjson::padded_string padded(json);
  const simdjson::dom::element beside = parser.parse(padded)["steps_beside"];
  EXPECT_EQ(std::int64_t(beside["recorded_steps"]), 7);
  EXPECT_EQ(std::int64_t(beside["plain_steps"]), 11);  // the last goes on still
  const std::int64_t recorded = beside["recorded_p50_ns"], plain = beside["plain_p50_ns"];
  EXPECT_GE(recorded, 12'000'000);
  EXPECT_LT(recorded, 24'000'000);
  EXPECT_GE(plain, 8'000'000);
  EXPECT_LT(plain, recorded);
  const double share = 100 * static_cast<double>(recorded - plain) / static_cast<double>(plain);
  EXPECT_NE(text.find(fmt::format("Recording cost, measured: {:.3g}% of a step (", share)), text.npos) << text;
  EXPECT_NE(csv.find(fmt::format("\nsteps_beside,plain,,p50,11,{},", plain)), csv.npos) << csv;
}

TEST(ProfiledSteps, SayNothingOfItWhereThereAreFewSteps) {
  ProfiledSteps steps(parse_steps("2:8"), State::cpu);
  for (int step = 0; step < 10; ++step) steps.before(step);
  EXPECT_EQ(steps.profiler()->stop().find("measured"), std::string::npos);
}

TEST(ProfiledSteps, ReadsWhichTheyAre) {
  EXPECT_EQ(parse_steps("2:8").first, 2);
  EXPECT_EQ(parse_steps("2:8").end, 8);
  EXPECT_EQ(parse_steps("5").end, 6);
  for (const char* wrong : {"", ":", "2:", ":8", "8:2", "2:2", "-1:3", "2:8:9", "a", "1e3", "2 : 8"}) {
    EXPECT_THROW(parse_steps(wrong), Error) << wrong;
  }
}

}  // namespace
}  // namespace paoding::profile
