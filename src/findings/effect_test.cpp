// SPDX-License-Identifier: Apache-2.0
// Effects of changes on the steps of traces made by hand, examples among their evidence, and how a report puts them.
#include "findings/effect.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <numeric>

#include "findings/evidence.h"
#include "profile/report.h"
#include "tests/support/made_trace.h"

namespace paoding::findings {
namespace {

using namespace profile;

std::string text_of(const Trace& trace) { return report(trace, {.findings = true}); }

bool has(const std::string& text, std::string_view part) { return text.find(part) != text.npos; }

// 24 steps of 1 ms, of which the 7th, 13th and 20th take 5: the loop's thread is at something for 4 ms more.
Trace with_three_slow_steps() {
  MadeTrace made;
  double at = 0;
  for (int k = 1; k <= 24; ++k) {
    const double more = k == 7 || k == 13 || k == 20 ? 4'000 : 0;
    made.step(at, at + 1'000 + more);
    made.launch(at + 10, at + 15, at + 900, "gemm", 7, "aten::mm");
    made.host(SpanKind::op, "aten::view", at + 20, at + 910);
    if (more > 0) made.host(SpanKind::range, "write a checkpoint", at + 915, at + 915 + more);
    at += 1'000 + more;
  }
  return made.finish();
}

TEST(Effect, OfRareSlowStepsIsSaidOfThoseSteps) {
  const Trace trace = with_three_slow_steps();
  const Findings all = find(trace);
  const auto slow = std::ranges::find(all.found, Kind::rare_slow_steps, &Finding::kind);
  ASSERT_NE(slow, all.found.end()) << all.abstained;
  EXPECT_EQ(slow->effect.in_steps, (std::vector<std::size_t>{7, 13, 20}));
  EXPECT_NEAR(static_cast<double>(slow->effect.before_ns), 5'000'000, 1'000);
  EXPECT_NEAR(static_cast<double>(slow->effect.after_ns), 1'000'000, 1'000);
  // The average of all steps is the gain that is predicted.
  EXPECT_NEAR(static_cast<double>(slow->replayed_high_ns), 3 * 4'000'000 / 24.0, 1'000);
  const std::string text = text_of(trace);
  EXPECT_TRUE(has(text, "about 500 us (33.3%) of the average step of 1.5 ms, between ")) << text;
  EXPECT_TRUE(has(text, "\n  Steps: 5 ms -> 1 ms on average in 3 of 24 steps (7, 13, 20)\n")) << text;
  EXPECT_TRUE(has(text,
                  "\n  Lost (time beyond that of other steps) at: 'write a checkpoint' 3 times, 12 ms (the "
                  "most 4 ms, in step 7)\n"))
      << text;
  EXPECT_TRUE(has(text, "p50 1, p99 5, worst 5 on the host, as they are marked (step 7, counted from 1")) << text;
}

// A kernel of 900 us in a step of 1 ms, beside which the host has 767 us to do.
Trace with_a_busy_host() {
  MadeTrace made;
  for (int k = 0; k < 8; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    made.launch(at + 10, at + 15, at + 920, "gemm", 7, "aten::mm");
    made.host(SpanKind::op, "aten::view", at + 20, at + 690);
    made.host(SpanKind::wait, "cudaStreamSynchronize", at + 695, at + 925);
  }
  return made.finish();
}

TEST(Effect, IsBoundByTheSideThatBecomesTheLimit) {
  const Trace trace = with_a_busy_host();
  const Steps steps(trace);
  const Replay replay(steps);
  std::vector<Edit> edits;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::kernel) edits.push_back(Edit::duration(i, 105'000));
  }
  const Replay::Outcome before = replay.outcome(), after = replay.outcome({edits});
  EXPECT_EQ(before.limit(), Side::gpu);
  EXPECT_EQ(before.gpu, std::vector<std::int64_t>(8, 905'000));
  EXPECT_EQ(after.limit(), Side::host);
  const Effect effect = effect_of(before, after, {steps.first_number(), steps.lengths(), steps.average_ns()});
  EXPECT_EQ(effect.in_steps.size(), 8u);
  EXPECT_EQ(effect.limit, Side::host);
  EXPECT_EQ(effect.before_ns, 1'000'000);
  EXPECT_NEAR(static_cast<double>(effect.after_ns), 772'000, 3'000);  // 695 to the wait, its call, 75 behind it
  EXPECT_TRUE(has(effect.bound,
                  "with the change the host becomes the limit: on average it is at work for 772 us of the 772 us"))
      << effect.bound;
  EXPECT_TRUE(has(effect.bound, "; the GPU has 800 us a step less to do, of which 228 us shorten it")) << effect.bound;
}

TEST(Effect, IsNotBoundWhereNothingKeepsItDown) {
  const Trace trace = with_a_busy_host();
  const Steps steps(trace);
  const Replay replay(steps);
  std::vector<Edit> edits;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::kernel) edits.push_back(Edit::duration(i, 855'000));
  }
  const Effect effect = effect_of(replay.outcome(), replay.outcome({edits}), {1, steps.lengths(), steps.average_ns()});
  EXPECT_EQ(effect.before_ns - effect.after_ns, 50'000);
  EXPECT_EQ(effect.bound, "");
}

TEST(Effect, LeavesAStepTheWorkOfItsOtherSide) {
  // The host works for 900 of 1,000 ns and the GPU for 400. The part that is taken may be 1.15 times as much.
  const Replay::Outcome before{.all_ns = 2'000, .steps = {1'000, 1'000}, .host = {900, 900}, .gpu = {400, 400}},
      half{.all_ns = 1'100, .steps = {550, 550}, .host = {450, 450}, .gpu = {400, 400}},
      little{.all_ns = 1'800, .steps = {900, 900}, .host = {800, 800}, .gpu = {400, 400}};
  const MeasuredSteps measured{1, {1'000, 1'000}, 1'000};
  EXPECT_EQ(effect_of(before, half, measured).most_ns, 600);                              // the GPU's work stays
  EXPECT_NEAR(static_cast<double>(effect_of(before, little, measured).most_ns), 215, 1);  // 785 of the host's
}

TEST(Effect, OfAGainThatIsSpreadIsSaidOfAllSteps) {
  const Replay::Outcome before{.all_ns = 4'120, .steps = {1'000, 1'000, 1'120, 1'000}, .host = {}, .gpu = {}},
      after{.all_ns = 4'048, .steps = {986, 986, 1'090, 986}, .host = {}, .gpu = {}};  // one of them by 2.7%
  // A replay misses the measured times by a little.
  const MeasuredSteps measured{3, {1'001, 1'001, 1'121, 1'001}, 1'031};
  const Effect spread = effect_of(before, after, measured);
  EXPECT_EQ(spread.in_steps, (std::vector<std::size_t>{3, 4, 5, 6}));
  EXPECT_EQ(spread.before_ns, 1'031);
  EXPECT_EQ(spread.after_ns, 1'031 - 18);
  const Replay::Outcome rare{.all_ns = 4'000, .steps = {1'000, 1'000, 1'000, 1'000}, .host = {}, .gpu = {}};
  const Effect of_one = effect_of(before, rare, measured);
  EXPECT_EQ(of_one.in_steps, (std::vector<std::size_t>{5}));
  EXPECT_EQ(of_one.before_ns, 1'121);
  EXPECT_EQ(of_one.after_ns, 1'001);
}

TEST(Evidence, IsToldOfTheStepsThatHaveIt) {
  const Trace trace = with_three_slow_steps();
  const Steps steps(trace);
  ASSERT_EQ(steps.count(), 24u);
  const Affected few = affected(steps, {19, 6, 12, 6});
  EXPECT_EQ(few.have(), "3 of 24 steps have");
  EXPECT_EQ(few.in_steps(), "In 3 of 24 steps: ");
  EXPECT_EQ(few.part(6'000'000), "2 ms of each of those (5 ms on average)");
  EXPECT_EQ(affected(steps, {6}).have(), "1 of 24 steps has");
  std::vector<std::size_t> nearly_all(22);
  std::iota(nearly_all.begin(), nearly_all.end(), std::size_t{0});
  const Affected all = affected(steps, nearly_all);
  EXPECT_EQ(all.have(), "A step has");
  EXPECT_EQ(all.in_steps(), "");
  EXPECT_EQ(all.part(12'000'000), "500 us of a step of 1.5 ms");
}

TEST(Evidence, ShowsOneSpanOfEveryNameBeforeAnotherOfOne) {
  MadeTrace made;
  for (int k = 0; k < 6; ++k) {
    const double at = 1'000.0 * k;
    made.step(at, at + 1'000);
    for (int n = 0; n < 3; ++n) made.launch(at + 100 * n, at + 100 * n + 5, at + 100 * n + 50 + k, "long", 7);
    made.launch(at + 500, at + 505, at + 510, "void ns::brief<float>(int)", 7);
  }
  const Trace trace = made.finish();
  const Steps steps(trace);
  Evidence evidence;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::kernel) evidence.add(i, static_cast<double>(trace.duration(i)));
  }
  const Examples shown = evidence.examples(steps);
  ASSERT_EQ(shown.kinds.size(), 2u);
  EXPECT_EQ(shown.kinds[0].name, "long");
  EXPECT_EQ(shown.kinds[0].count, 18u);
  EXPECT_EQ(shown.kinds[0].ns, 3 * (45 + 46 + 47 + 48 + 49 + 50) * 1'000);
  EXPECT_EQ(shown.kinds[1].name, "brief");
  EXPECT_EQ(shown.kinds[1].count, 6u);
  ASSERT_EQ(shown.spans.size(), 8u);
  EXPECT_EQ(shown.spans[0].ns, 50'000);
  EXPECT_EQ(shown.spans[0].step, 6u);
  EXPECT_EQ(shown.spans[1].kind, 1u);
  std::vector<std::size_t> in_steps;
  for (const Example& one : shown.spans) {
    if (one.kind == 0) in_steps.push_back(one.step);
  }
  EXPECT_EQ(in_steps, (std::vector<std::size_t>{6, 5, 4, 3}));  // each in another step
}

TEST(Findings, SayWhoseMedianItIsAndWhichStepsAreLeftOut) {
  MadeTrace made;
  double at = 0, gpu = 0;
  for (int k = 0; k < 9; ++k) {  // the first is cold; the host is ahead of the GPU
    const double length = k == 0 ? 3'000 : 100;
    made.step(at, at + length);
    gpu = std::max(gpu, at + 15) + 400;
    made.launch(at + 5, gpu - 400, gpu - 1, "gemm", 7, "aten::mm");
    at += length;
  }
  const Trace trace = made.finish();
  const Findings all = find(trace);
  EXPECT_EQ(all.recorded_steps, 9);
  EXPECT_EQ(all.first_step, 2);
  EXPECT_EQ(all.steps, 8);
  EXPECT_EQ(all.host_ns, 100'000);
  EXPECT_EQ(all.step_ns, 400'000);
  EXPECT_EQ(all.limit, Side::gpu);
  EXPECT_TRUE(has(text_of(trace),
                  "Steps 2 to 9 of 9 (steps as they are marked; step 1 is left out, as warming up): on average a step "
                  "takes 402 us until its work on GPUs has ended, 100 us on the host alone; the GPU is the limit, at "
                  "work for 90% of it or more; the median step takes 400 us, 100 us on the host; replaying "))
      << text_of(trace);
}

TEST(Findings, SayTheLimitOfTheAverageStepAndOfTheMedianOneWhereTheyDiffer) {
  MadeTrace made;
  double at = 0;
  for (int k = 1; k <= 24; ++k) {  // the GPU is busy for 980 us of each, but three steps wait for the host
    const double more = k == 7 || k == 13 || k == 20 ? 4'000 : 0;
    made.step(at, at + 1'000 + more);
    made.launch(at + 10, at + 15, at + 995, "gemm", 7, "aten::mm");
    made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 20, at + 997);
    at += 1'000 + more;
  }
  const Trace trace = made.finish();
  const Findings all = find(trace);
  EXPECT_EQ(all.step_ns, 1'000'000);
  EXPECT_EQ(all.base_ns, 1'500'000);
  EXPECT_EQ(all.limit, Side::neither);  // 980 of 1,500 us
  EXPECT_EQ(all.limit_of_median, Side::gpu);
  EXPECT_TRUE(
      has(text_of(trace),
          "on average a step takes 1.5 ms until its work on GPUs has ended, 1.5 ms on the host alone; neither is "
          "at work for 90% of it; the median step takes 1 ms, 1 ms on the host; of it the GPU is the limit, at "
          "work for 90% of it or more; "))
      << text_of(trace);
}

TEST(Findings, SayOnceHowToRecordLines) {
  const std::string without = text_of(with_three_slow_steps());
  EXPECT_TRUE(has(without, "\nNo finding names a line: torch.profiler.profile(with_stack=True) records lines"))
      << without;
  for (const std::string frame : {"src/train.py(12): save", "train.py:12 save"}) {
    MadeTrace made;
    for (int k = 0; k < 10; ++k) {
      const double at = 10'000.0 * k;
      made.step(at, at + 10'000);
      made.host(SpanKind::frame, frame, at + 1, at + 9'950);
      made.host(SpanKind::frame, "torch/utils/data.py(3): next", at + 2, at + 3'100);
      made.host(SpanKind::feed, "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__", at + 3, at + 3'000);
      made.launch(at + 3'100, at + 3'105, at + 9'905, "gemm", 7, "aten::mm");
      made.host(SpanKind::wait, "cudaDeviceSynchronize", at + 3'110, at + 9'915);
    }
    const std::string text = text_of(made.finish());
    EXPECT_TRUE(has(text, "train.py:12\n")) << text;
    EXPECT_FALSE(has(text, "No finding names a line")) << text;
  }
}

TEST(Findings, NameChecksForPeopleAndGiveTheirWordsToPrograms) {
  const Trace trace = with_three_slow_steps();
  ReportOptions options{.findings = true};
  const std::string text = report(trace, options);
  EXPECT_TRUE(has(text, "clocks that sink (the trace has no samples")) << text;
  EXPECT_FALSE(has(text, "sinking_clocks")) << text;
  options.format = ReportFormat::json;
  const std::string json = report(trace, options);
  EXPECT_TRUE(has(json, R"({"kind":"sinking_clocks","title":"clocks that sink","why":)")) << json;
  EXPECT_TRUE(has(json, R"("in_steps":[7,13,20])")) << json;
}

}  // namespace
}  // namespace paoding::findings
