// SPDX-License-Identifier: Apache-2.0
// Findings of traces made by hand, whose gains are computed by hand.
#include <gtest/gtest.h>

#include <algorithm>

#include "findings/finding.h"
#include "profile/report.h"
#include "tests/support/made_trace.h"

namespace paoding::findings {
namespace {

using namespace profile;

const Finding* finding_of(const Findings& all, Kind kind) {
  const auto found = std::ranges::find(all.found, kind, &Finding::kind);
  return found == all.found.end() ? nullptr : &*found;
}

// Ten ms a step: 3 in the loader, then a kernel of 6.9 that the host waits for.
void add_late_steps(MadeTrace& made, int steps) {
  for (int k = 0; k < steps; ++k) {
    const double at = 10'000.0 * k;
    made.step(at, at + 10'000);
    made.host(SpanKind::feed, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 3'000);
    made.launch(at + 3'000, at + 3'005, at + 9'905, "gemm", 7, "aten::mm");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 3'010, at + 9'915);
  }
}

TEST(Findings, HoldTheThreeMillisecondsThatALoaderTakes) {
  MadeTrace made;
  add_late_steps(made, 10);
  const Trace trace = made.finish();
  const Findings all = find(trace);
  EXPECT_EQ(all.abstained, "");
  EXPECT_EQ(all.steps, 10);
  EXPECT_EQ(all.step_ns, 10'000'000);
  const Finding* late = finding_of(all, Kind::late_data);
  ASSERT_NE(late, nullptr);
  EXPECT_EQ(late->number, 1);
  // All of it without a loader; a loader beside it still makes the first of ten steps wait.
  EXPECT_NEAR(static_cast<double>(late->replayed_high_ns), 3'000'000, 1'000);
  EXPECT_NEAR(static_cast<double>(late->replayed_low_ns), 2'700'000, 1'000);
  EXPECT_NEAR(late->share, 0.3, 0.001);
  // No step is shorter than its kernel, however uncertain the replay is.
  EXPECT_EQ(all.base_ns, 10'000'000);
  EXPECT_NEAR(static_cast<double>(late->gain_high_ns), 10'000'000 - 6'900'000, 1'000);
  ASSERT_FALSE(late->evidence.spans.empty());
  EXPECT_EQ(trace.duration(late->evidence.spans.front().span), 3'000'000);
  EXPECT_NE(late->change.find("num_workers"), std::string::npos);
}

TEST(Findings, SayNothingOfALoaderThatHidesBehindKernels) {
  MadeTrace made;
  double gpu = 3'004;
  made.launch(-100, -95, gpu - 1, "gemm", 7, "aten::mm");
  for (int k = 0; k < 10; ++k) {  // the host is a step ahead: the GPU is never idle
    const double at = 10'000.0 * k;
    made.step(at, at + 10'000);
    made.host(SpanKind::feed, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 3'000);
    const double from = std::max(gpu, at + 3'005);
    gpu = from + 9'999;
    made.launch(at + 3'000, from, gpu, "gemm", 7, "aten::mm");
    gpu += 1;
  }
  const Findings all = find(made.finish());
  EXPECT_EQ(all.abstained, "");
  EXPECT_EQ(finding_of(all, Kind::late_data), nullptr);
}

TEST(Findings, CountTheSameTimeOnce) {
  MadeTrace made;
  for (int k = 0; k < 10; ++k) {  // the loader's three ms are a copy from pageable memory
    const double at = 10'000.0 * k;
    made.step(at, at + 10'000);
    made.host(SpanKind::feed, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 3'000);
    made.copy(Copy::host_to_device, "pageable", 1 << 20, at + 1, at + 2'999, at + 2'900, at + 2'990);
    made.launch(at + 3'000, at + 3'005, at + 9'905, "gemm", 7, "aten::mm");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 3'010, at + 9'915);
  }
  const Findings all = find(made.finish());
  EXPECT_EQ(all.abstained, "");
  std::int64_t sum = 0;
  for (const Finding& one : all.found) sum += one.replayed_high_ns;
  EXPECT_GE(sum, 2'900'000);
  EXPECT_LE(sum, 3'010'000);  // the latency of the kernel's launch may hide behind the copy
}

TEST(Findings, GainNoMoreTogetherThanTheStepHasBesideItsKernels) {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 4'000.0 * k;
    made.step(at, at + 4'000);
    made.host(SpanKind::feed, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at, at + 1'000);
    for (int i = 0; i < 100; ++i)
      made.launch(at + 1'010 + 20 * i, at + 1'016 + 20 * i, at + 1'018 + 20 * i, "add", 7, "aten::add");
    made.host(SpanKind::wait, "cudaStreamSynchronize", at + 3'010, at + 3'030);
  }
  const Findings all = find(made.finish());
  EXPECT_EQ(all.abstained, "");
  ASSERT_NE(finding_of(all, Kind::late_data), nullptr);
  const Finding* launches = finding_of(all, Kind::late_launches);
  ASSERT_NE(launches, nullptr);
  EXPECT_EQ(launches->op, "aten::add");
  std::int64_t sum = 0;
  for (const Finding& one : all.found) {
    EXPECT_LE(one.gain_low_ns, one.gain_high_ns);
    sum += one.replayed_high_ns;
  }
  EXPECT_LE(sum, 4'000'000 - 100 * 2'000);
  // A hundred kernels of 2 us, 1 us apart, and 20 + 100 us for a graph's launch at most: 1.68 ms of 1.98 at least.
  EXPECT_LE(launches->gain_low_ns, 1'860'000);
  EXPECT_GE(launches->gain_high_ns, 1'600'000);
}

TEST(Findings, AreSortedAndNumberedByTheirGain) {
  MadeTrace made;
  add_late_steps(made, 6);
  const Findings all = find(made.finish());
  for (std::size_t i = 0; i < all.found.size(); ++i) {
    EXPECT_EQ(all.found[i].number, static_cast<int>(i) + 1);
    if (i > 0) {
      EXPECT_GE(all.found[i - 1].replayed_high_ns, all.found[i].replayed_high_ns);
    }
    EXPECT_GE(all.found[i].share_high, 0.01);
  }
}

TEST(Findings, AbstainFromTracesThatSayTooLittle) {
  const auto reason = [](auto&& change, int steps = 10) {
    MadeTrace made;
    add_late_steps(made, steps);
    change(made);
    const Findings all = find(made.finish());
    EXPECT_TRUE(all.abstained.empty() || all.found.empty());
    return all.abstained;
  };
  EXPECT_EQ(reason([](MadeTrace&) {}, 5), "");
  EXPECT_NE(reason([](MadeTrace&) {}, 4).find("4 steps"), std::string::npos);
  EXPECT_NE(reason([](MadeTrace& made) {
              made.trace().add_note("spans dropped", 3, Note::Kind::dropped);
            }).find("3 records were lost"),
            std::string::npos);
  EXPECT_NE(
      reason([](MadeTrace& made) { made.trace().add_note("without a time", 2, Note::Kind::timeless); }).find("no time"),
      std::string::npos);
  EXPECT_NE(
      reason([](MadeTrace& made) { made.unlaunched("from who knows where", 6'000, 26'000, 9); }).find("no launch"),
      std::string::npos);
  EXPECT_NE(reason([](MadeTrace& made) {
              made.host(SpanKind::recording, "flush", 2'000, 2'000 + 3'000);
            }).find("recording took"),
            std::string::npos);
  EXPECT_NE(reason([](MadeTrace& made) { made.launch(95'000, 94'000, 94'010); }).find("before its launch"),
            std::string::npos);
}

TEST(Findings, AbstainFromTracesThatAreNotWhole) {
  MadeTrace cut;
  add_late_steps(cut, 10);
  cut.trace().add_note("the file's rest: it ends in the middle", 1);
  EXPECT_NE(find(cut.finish()).abstained.find("not whole"), std::string::npos);

  MadeTrace lost;  // no work of a GPU is there for its launches
  for (int k = 0; k < 10; ++k) {
    lost.step(1'000.0 * k, 1'000.0 * (k + 1));
    for (int i = 0; i < 10; ++i)
      lost.host(SpanKind::launch, "cudaLaunchKernel", 1'000.0 * k + 10 * i, 1'000.0 * k + 10 * i + 4);
  }
  EXPECT_NE(find(lost.finish()).abstained.find("not recorded"), std::string::npos);

  MadeTrace gap;  // nothing but its mark is left of one step
  for (int k = 0; k < 10; ++k) {
    gap.step(1'000.0 * k, 1'000.0 * (k + 1));
    for (int i = 0; i < 20 && k != 5; ++i)
      gap.launch(1'000.0 * k + 10 * i, 1'000.0 * k + 10 * i + 5, 1'000.0 * k + 10 * i + 9);
  }
  EXPECT_NE(find(gap.finish()).abstained.find("1 of 10 steps"), std::string::npos);
}

TEST(Findings, OfAnEmptyTraceAreNone) {
  Trace trace;
  trace.finish();
  EXPECT_EQ(find(trace).abstained, "nothing was recorded");
}

TEST(Findings, StandInTheReportAsTextAndJson) {
  MadeTrace made;
  add_late_steps(made, 10);
  const Trace trace = made.finish();
  ReportOptions options{.findings = true};
  const std::string text = report(trace, options);
  EXPECT_NE(text.find("- Findings -"), std::string::npos);
  EXPECT_NE(
      text.find("1. the GPU waits for data: about 3 ms (30%) of the average step of 10 ms, between 2.02 ms and 3.1 ms\n"
                "  Steps: 10 ms -> 7 ms on average in all 10 steps\n"),
      std::string::npos)
      << text;
  options.format = ReportFormat::json;
  const std::string json = report(trace, options);
  EXPECT_NE(json.find("\"kind\":\"late_data\""), std::string::npos);
  EXPECT_NE(json.find("\"evidence\":[{\"start_ns\":"), std::string::npos);
  EXPECT_EQ(report(trace).find("Findings"), std::string::npos);
}

}  // namespace
}  // namespace paoding::findings
