// SPDX-License-Identifier: Apache-2.0
// Spans of a list: they touch, nest in what is around them, and leave the recorder's own work out.
#include <gtest/gtest.h>

#include <vector>

#include "profile/recorder.h"

namespace paoding::profile {
namespace {

TEST(SpanList, BeginsEachSpanWhereTheOneBeforeItHasEnded) {
  const SiteId op = Recorder::add_site({.op = "of_list", .kind = SpanKind::op});
  const SiteId around = Recorder::add_site({.name = "run", .kind = SpanKind::run});
  constexpr std::uint32_t kSpans = 3 * Recorder::kChunkRecords;
  Recorder::start({.state = State::cpu});
  {
    const SpanScope run(around, 7);
    SpanList spans;
    for (std::uint32_t i = 0; i < kSpans; ++i) {
      for (int work = 0; work < 500; ++work) asm volatile("" ::: "memory");
      spans.complete(op);
    }
  }
  const Trace trace = Recorder::stop();
  std::uint32_t count = 0, touching = 0, memory = 0;
  std::int64_t last = 0;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::recording) ++memory;
    if (trace.kind(i) != SpanKind::op) continue;
    touching += trace.start(i) == last ? 1 : 0;
    EXPECT_GE(trace.start(i), last);
    last = trace.end(i);
    ++count;
    ASSERT_NE(trace.parent(i), kNone);
    EXPECT_EQ(trace.run(i), 7u);
    EXPECT_EQ(trace.kind(trace.parent(i)), SpanKind::run);
  }
  EXPECT_EQ(count, kSpans);
  EXPECT_EQ(memory, 4u);
  // All but the first, and those in front of which the recorder got memory: its time is no span's of the list.
  EXPECT_EQ(touching, kSpans - 1 - memory);
}

TEST(SpanList, LeavesOutWhatIsSkipped) {
  const SiteId op = Recorder::add_site({.op = "of_list", .kind = SpanKind::op});
  Recorder::start({.state = State::cpu});
  SpanList spans;
  spans.complete(op);
  const Ticks from = spans.now();
  EXPECT_EQ(spans.skip(), from);
  EXPECT_GT(spans.now(), from);
  const Ticks behind = spans.now();
  EXPECT_EQ(spans.complete(op), behind);
  EXPECT_GT(spans.end(), behind);
  const Trace trace = Recorder::stop();
  std::vector<SpanId> ops;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.kind(i) == SpanKind::op) ops.push_back(i);
  }
  ASSERT_EQ(ops.size(), 2u);
  EXPECT_GT(trace.start(ops[1]), trace.end(ops[0]));
}

}  // namespace
}  // namespace paoding::profile
