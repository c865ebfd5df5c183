// SPDX-License-Identifier: Apache-2.0
// Replays with stamps at their ends only are taken apart into the kernels of a replay that was stamped in full.
#include "findings/replays_apart.h"

#include <gtest/gtest.h>

#include <map>
#include <string>

#include "findings/finding.h"
#include "tests/support/own_runs.h"

namespace paoding::findings {
namespace {

using namespace profile;

const std::vector<OwnStep> kSteps = {
    {own_site("matmul", ""), 200}, {own_site("relu", ""), 40}, {own_site("sum", ""), 20}};

TEST(ReplaysApart, HaveTheKernelsOfAWholeOneInItsOrderAndTheirOwnTime) {
  const Trace trace = own_runs_on_gpu(kSteps);
  const auto apart = take_replays_apart(trace);
  ASSERT_TRUE(apart.has_value());
  EXPECT_EQ(apart->trace.size(), trace.size() + 5 * 2);  // three kernels in the place of each of five replays
  EXPECT_EQ(apart->original.size(), apart->trace.size());
  std::map<std::uint32_t, std::string> ops;
  std::map<std::uint32_t, std::int64_t> ns;
  for (SpanId i = 0; i < apart->trace.size(); ++i) {
    EXPECT_NE(apart->trace.kind(i), SpanKind::replay);
    if (!apart->trace.on_gpu(i)) {
      EXPECT_EQ(apart->trace.start(i), trace.start(apart->original[i]));
      continue;
    }
    ASSERT_NE(apart->trace.cause(i), kNone);
    EXPECT_EQ(apart->trace.kind(apart->trace.cause(i)), SpanKind::launch);
    EXPECT_EQ(apart->trace.run(apart->trace.cause(i)), apart->trace.run(i));
    ops[apart->trace.run(i)] += std::string(apart->trace.name(i)) + " ";
    ns[apart->trace.run(i)] += apart->trace.duration(i);
    const bool is_of_replay = trace.kind(apart->original[i]) == SpanKind::replay;
    EXPECT_EQ(is_of_replay, apart->trace.run(i) % 2 == 0);
  }
  ASSERT_EQ(ops.size(), 10u);
  for (const auto& [run, names] : ops) EXPECT_EQ(names, "matmul relu sum ") << run;
  for (const auto& [run, time] : ns) EXPECT_EQ(time, 260'000) << run;
}

// A replay that took longer is one whose kernels did.
TEST(ReplaysApart, AreAsLongAsTheReplayWas) {
  Trace made = own_runs_on_gpu(kSteps);
  const SiteId replay = made.site_id(static_cast<SpanId>(made.size()) - 1);
  ASSERT_EQ(made.sites()[replay].kind, SpanKind::replay);
  const SpanId longer = made.add({.track = made.track_id(static_cast<SpanId>(made.size()) - 1),
                                  .site = replay,
                                  .start_ns = made.last_ns() + 1000,
                                  .duration_ns = 520'000});
  ASSERT_NE(longer, kNone);
  made.finish();
  const auto apart = take_replays_apart(made);
  ASSERT_TRUE(apart.has_value());
  const auto last = static_cast<SpanId>(apart->trace.size()) - 1;
  EXPECT_NEAR(static_cast<double>(apart->trace.duration(last - 2)), 400'000, 2);
  EXPECT_NEAR(static_cast<double>(apart->trace.duration(last - 1)), 80'000, 2);
  EXPECT_EQ(apart->trace.end(last), made.last_ns());
  EXPECT_EQ(apart->trace.end(last - 1), apart->trace.start(last));
}

// Stamps of a stream may overlap by the error of a clock. All spans stand where they stood before, and so does the
// replay.
TEST(ReplaysApart, LeaveAReplayWholeThatOtherWorkOfItsStreamOverlaps) {
  for (const std::int64_t from : {0, 1, 100'000, 259'999}) {
    for (const std::int64_t ns : {1, 1000, 400'000}) {
      Trace made = own_runs_on_gpu(kSteps);
      const auto last = static_cast<SpanId>(made.size()) - 1;
      ASSERT_EQ(made.kind(last), SpanKind::replay);
      const SiteId copy = made.add_site({.name = "copy", .kind = SpanKind::memcpy, .copy = Copy::device_to_host});
      made.add({.track = made.track_id(last), .site = copy, .start_ns = made.start(last) + from, .duration_ns = ns});
      made.finish();
      const auto apart = take_replays_apart(made);
      ASSERT_TRUE(apart.has_value());
      const bool is_around = from == 0 && ns == 400'000;  // then the kernels' order is known
      EXPECT_EQ(apart->trace.size(), made.size() + (is_around ? 5 : 4) * 2) << from << " " << ns;
      int whole = 0, copies = 0;
      for (SpanId i = 0; i < apart->trace.size(); ++i) {
        whole += apart->trace.kind(i) == SpanKind::replay ? 1 : 0;
        if (apart->trace.kind(i) != SpanKind::memcpy || !apart->trace.on_gpu(i)) continue;
        ++copies;
        EXPECT_EQ(made.kind(apart->original[i]), SpanKind::memcpy);
        EXPECT_EQ(made.start(apart->original[i]), apart->trace.start(i));
      }
      EXPECT_EQ(whole, is_around ? 0 : 1) << from << " " << ns;
      EXPECT_EQ(copies, 1);
    }
  }
}

TEST(ReplaysApart, AreNothingWhereNoneWasStampedInFullOrAllWere) {
  EXPECT_FALSE(take_replays_apart(own_runs_on_gpu(kSteps, 10, true)).has_value());
  Trace none;
  const TrackId stream = none.add_track(TrackKind::stream, "stream", 0);
  const SiteId replay = none.add_site({.name = "graph replay", .instance = "graph0", .kind = SpanKind::replay});
  none.add({.track = stream, .site = replay, .start_ns = 0, .duration_ns = 1000});
  none.add_part({replay, kNone, 1, 1000});
  none.finish();
  EXPECT_FALSE(take_replays_apart(none).has_value());
}

// Evidence is of the trace that was given, and the kernels that were seen come first.
TEST(ReplaysApart, EvidenceIsOfTheTraceThatWasGiven) {
  const std::int64_t elements = 16'777'216;
  const OwnStep step = {
      own_site("mul", "f32[16777216], f32[] -> f32[16777216]", static_cast<double>(elements), Unit::f32, 8 * elements),
      40};
  const Trace trace = own_runs_on_gpu({step, step, step});
  const Findings all = find(trace);
  ASSERT_EQ(all.abstained, "");
  const auto chain = std::ranges::find(all.found, Kind::pointwise_chain, &Finding::kind);
  ASSERT_NE(chain, all.found.end());
  ASSERT_FALSE(chain->evidence.spans.empty());
  EXPECT_EQ(trace.kind(chain->evidence.spans.front().span), SpanKind::kernel);
  for (const Example& one : chain->evidence.spans) {
    ASSERT_LT(one.span, trace.size());
    EXPECT_TRUE(trace.on_gpu(one.span));
  }
}

}  // namespace
}  // namespace paoding::findings
