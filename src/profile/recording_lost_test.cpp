// SPDX-License-Identifier: Apache-2.0
// Recordings that lost their ends: what was lost is "not seen", never "your code".
#include <gtest/gtest.h>

#include "profile/recording.h"
#include "profile/report.h"

namespace paoding::profile {
namespace {

std::int64_t part_of(const Budget& budget, std::string_view name) {
  std::int64_t sum = 0;
  for (const BudgetPart& part : budget.parts) sum += part.name == name ? part.ns : 0;
  return sum;
}

// A microsecond, of which threads have told so far.
std::string unfinished(const std::vector<std::vector<std::pair<std::uint64_t, std::uint64_t>>>& threads) {
  std::string file;
  RecordingWriter writer([&](std::string_view bytes) { file += bytes; });
  writer.window(0, 0);
  writer.clock(1000, 0);
  const SiteId site = writer.site({.op = "mul", .kind = SpanKind::op});
  for (std::size_t i = 0; i < threads.size(); ++i) {
    const TrackId track = writer.track(TrackKind::thread, "thread" + std::to_string(i), -1);
    std::vector<StoredSpan> spans;
    for (const auto& [start, end] : threads[i])
      spans.push_back({.site = site, .start = 1000 + start, .end = 1000 + end});
    writer.spans(track, StoredClock::ticks, spans);
  }
  writer.clock(2000, 1000);
  return file;
}

TEST(LostEnds, AreNotSeenFromWhereTheFirstThreadTellsNoMore) {
  // Alone: 300 of ops, 50 between them, and the rest that nobody knows.
  const Measures one = measure(read_recording_text(unfinished({{{0, 100}, {150, 350}}}), "one"));
  EXPECT_EQ(one.wall, 1000);
  EXPECT_EQ(one.computation, 300);
  EXPECT_EQ(one.yours, 50);
  EXPECT_EQ(one.unseen, 650);
  EXPECT_EQ(one.records.received, 2u);
  EXPECT_EQ(one.runs, 0u);
  ASSERT_EQ(one.budgets.size(), 1u);
  EXPECT_EQ(part_of(one.budgets[0], "ops"), 300);
  EXPECT_EQ(part_of(one.budgets[0], "your code"), 50);
  EXPECT_EQ(part_of(one.budgets[0], "not seen"), 650);
  // Another told of more: what it was at is known, what the first was at meanwhile is not.
  const Measures two = measure(read_recording_text(unfinished({{{0, 100}}, {{0, 50}, {700, 900}}}), "two"));
  EXPECT_EQ(two.computation, 300);
  EXPECT_EQ(two.yours, 0);
  EXPECT_EQ(two.unseen, 700);
  ASSERT_EQ(two.budgets.size(), 2u);
  EXPECT_EQ(part_of(two.budgets[0], "not seen"), 900);
  EXPECT_EQ(part_of(two.budgets[1], "your code"), 650);
  EXPECT_EQ(part_of(two.budgets[1], "not seen"), 100);
}

TEST(LostEnds, AreAllWhereNothingWasWritten) {
  const Measures none = measure(read_recording_text(unfinished({}), "none"));
  EXPECT_EQ(none.wall, 1000);
  EXPECT_EQ(none.yours, 0);
  EXPECT_EQ(none.unseen, 1000);
  EXPECT_EQ(none.records.received, 0u);
}

}  // namespace
}  // namespace paoding::profile
