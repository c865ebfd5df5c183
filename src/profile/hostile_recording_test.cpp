// SPDX-License-Identifier: Apache-2.0
// Recordings that are made to be too much: spans within each other without end, small files that say of millions, names
// that are long. Reports about them are small, and name the parts that they leave out.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <cmath>
#include <deque>
#include <filesystem>
#include <functional>
#include <random>

#include "paoding/profile.h"
#include "profile/recorder.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "profile/save.h"
#include "profile/timeline.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

// In every form: text of all widths, JSON, CSV, both timelines and the recording itself. The most bytes of one.
std::size_t most_bytes(const Trace& trace) {
  std::size_t most = 0;
  for (const Nesting nesting : {Nesting::op, Nesting::scope}) {
    for (const ReportFormat format : {ReportFormat::text, ReportFormat::json, ReportFormat::csv}) {
      for (const int width : {0, 80}) {
        const ReportOptions options{.detail = Detail::instances,
                                    .nesting = nesting,
                                    .width = width,
                                    .share_groups = width > 0,
                                    .self = true,
                                    .kernels = true,
                                    .line_width = width,
                                    .format = format};
        most = std::max(most, report(trace, options).size());
      }
    }
  }
  const TemporaryFolder folder;
  for (const char* name : {"t.json", "t.json.gz", "t.pftrace", "t.paoding", "t.html"}) {
    EXPECT_EQ(save(trace, measure(trace), {}, (folder / name).string()), "");
    most = std::max<std::size_t>(most, std::filesystem::file_size(folder / name));
  }
  return most;
}

std::uint64_t noted(const Trace& trace, std::string_view text) {
  std::uint64_t count = 0;
  for (const Note& note : measure(trace).notes) count += note.text.starts_with(text) ? note.count : 0;
  return count;
}

std::string file_of(const std::function<void(RecordingWriter&)>& fill) {
  std::string file;
  RecordingWriter writer([&](std::string_view bytes) { file += bytes; });
  writer.window(0, 1'000'000'000);
  fill(writer);
  writer.finish();
  return file;
}

TEST(HostileRecording, OfSpansWithinEachOtherWithoutEndHasRowsForSoManyOfThem) {
  constexpr int kDeep = 60'000;
  for (const SpanKind kind : {SpanKind::range, SpanKind::op, SpanKind::run, SpanKind::compute}) {
    Trace trace;
    const TrackId track = trace.add_track(TrackKind::thread, "thread0");
    const SiteId site = trace.add_site({.name = "deep", .op = "deep", .scope = "a/b", .kind = kind});
    for (int i = 0; i < kDeep; ++i)
      trace.add({.track = track, .site = site, .start_ns = i, .duration_ns = 4 * kDeep - 2 * i});
    trace.finish();
    const Measures m = measure(trace);
    EXPECT_EQ(m.wall, 4 * kDeep);
    std::uint64_t calls = 0;
    for (const Section& section : m.per_thread) {
      EXPECT_LT(section.rows.size(), 70u);
      for (const Row& row : section.rows) {
        EXPECT_LE(row.depth, 66);
        calls += row.name == "deep" ? row.calls : 0;
      }
    }
    const std::uint64_t too_deep = noted(trace, "rows of calls within more than");
    EXPECT_TRUE(kind != SpanKind::range || calls + too_deep == std::uint64_t{kDeep}) << calls << " " << too_deep;
    EXPECT_LT(most_bytes(trace), 40'000'000u);
  }
}

TEST(HostileRecording, OfAProgramsOwnRangesIsReported) {
  Profiler seen(State::cpu);
  {
    std::deque<ProfileRange> open;
    for (int i = 0; i < 60'000; ++i) open.emplace_back("deeper");
    while (!open.empty()) open.pop_back();
  }
  const std::string text = seen.stop();
  EXPECT_LT(text.size(), 100'000u);
  EXPECT_NE(text.find("rows of calls within more than 64 others"), text.npos) << text;
}

// 64 MB of zeros take 2 KB when they are packed, and a span of them five bytes.
TEST(HostileRecording, ThatSaysOfMoreSpansThanAnyChunkHasIsLeftOut) {
  const std::string file = file_of([](RecordingWriter& writer) {
    const SiteId site = writer.site({.op = "mul", .kind = SpanKind::op});
    const StoredSpan span{.site = site, .start = 1, .end = 2};
    writer.spans(writer.track(TrackKind::thread, "thread0", -1), StoredClock::nanoseconds, {&span, 1});
  });
  for (const std::uint64_t count : {std::uint64_t{67'000'000}, std::uint64_t{13'000'000}, std::uint64_t{70'000}}) {
    BodyWriter body;
    for (const std::uint64_t number : {std::uint64_t{0}, std::uint64_t{0}, count}) body.number(number);
    while (body.bytes().size() < kMostChunkBytes) body.byte(0);
    const std::size_t behind = file.size() - chunk_of(ChunkType::end, {}).size();
    const std::string bomb = file.substr(0, behind) + chunk_of(ChunkType::spans, body) + file.substr(behind);
    EXPECT_LT(bomb.size(), 10'000u);
    const Trace trace = read_recording_text(bomb, "bomb");
    EXPECT_EQ(trace.size(), 1u) << count;
    EXPECT_EQ(noted(trace, "chunks of spans that contradict themselves, left out"), 1u);
  }
}

TEST(HostileRecording, OfOperationsThatAreNoNumberSaysNothingOfThem) {
  for (const double flops : {std::nan(""), -std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    const std::string file = file_of([&](RecordingWriter& writer) {
      const SiteId site = writer.site({.op = "mul", .kind = SpanKind::op, .flops = flops});
      const std::vector<StoredSpan> spans{{.site = site, .start = 1, .end = 3},
                                          {.site = site, .start = 4, .end = 9, .flops = flops}};
      writer.spans(writer.track(TrackKind::thread, "thread0", -1), StoredClock::nanoseconds, spans);
    });
    const Trace trace = read_recording_text(file, "hostile");
    ASSERT_EQ(trace.size(), 2u);
    for (SpanId i = 0; i < trace.size(); ++i) EXPECT_EQ(trace.flops(i), 0) << i;
    EXPECT_GT(most_bytes(trace), 0u);
    for (const Section& section : measure(trace).per_thread) {
      for (const Row& row : section.rows) EXPECT_EQ(row.flops, 0) << row.name;
    }
  }
}

TEST(HostileRecording, ThatIsPackedAThousandfoldIsReadAsFarAsItsSizeGoes) {
  const std::string file = file_of([](RecordingWriter& writer) {
    const SiteId site = writer.site({.op = "mul", .kind = SpanKind::op});
    const std::vector<StoredSpan> at_once(kMostChunkSpans, {.site = site, .start = 7, .end = 7});
    const TrackId track = writer.track(TrackKind::thread, "thread0", -1);
    for (int i = 0; i < 200; ++i) writer.spans(track, StoredClock::nanoseconds, at_once);
    std::vector<Sample> samples(kMostChunkSpans, {writer.counter(-1, "held"), 5, 5});
    for (int i = 0; i < 50; ++i) writer.samples(samples);
  });
  EXPECT_LT(file.size(), 100'000u);
  const Trace trace = read_recording_text(file, "bomb");  // 13 million at one moment
  EXPECT_LE(trace.size(), 1'800'000u);
  EXPECT_GT(noted(trace, "chunks of spans that contradict themselves, left out"), 100u);
  const Measures m = measure(trace);
  EXPECT_EQ(m.records.received, trace.size());
}

TEST(HostileRecording, OfNamesThatAreLongIsNoLongerThanItsRows) {
  const std::string longest(1 << 20, 'n'), other = longest + "m";
  std::string slashes;
  while (slashes.size() < longest.size()) slashes += "s/";
  Trace trace;
  const TrackId track = trace.add_track(TrackKind::thread, longest);
  for (int i = 0; i < 300; ++i) {
    SiteInfo around{.name = fmt::format("around {}", i), .op = fmt::format("around {}", i), .kind = SpanKind::op};
    SiteInfo inside{.name = i % 2 == 0 ? longest : other, .op = "", .scope = slashes, .kind = SpanKind::op};
    inside.kernel = longest;
    const std::int64_t at = 100 * i;
    trace.add({.track = track, .site = trace.add_site(around), .start_ns = at, .duration_ns = 90});
    trace.add({.track = track, .site = trace.add_site(inside), .start_ns = at + 1, .duration_ns = 80});
    trace.add({.track = track,
               .site = trace.add_site({.name = fmt::format("{}{}", longest, i % 3), .kind = SpanKind::instant}),
               .start_ns = at + 2});
  }
  std::string words;
  while (words.size() < longest.size()) words += "a ";
  trace.add_note(words, 7);
  trace.add_memory({.of = longest, .what = other, .bytes = 1});
  trace.finish();
  // A recording keeps each name once, in its whole length.
  EXPECT_LT(most_bytes(trace), 60'000'000u);
  const std::string text = report(trace);
  EXPECT_LT(text.size(), 4'000'000u);
  // The two are still two.
  std::uint64_t rows = 0;
  for (const Section& section : measure(trace).per_thread) {
    for (const Row& row : section.rows) rows += row.name.starts_with("nnn") ? row.calls : 0;
  }
  EXPECT_EQ(rows, 300u);
}

// ---- parents of spans that overlap ----

TEST(HostileRecording, OfSpansThatOverlapHasTheParentsThatAWalkThroughAllFinds) {
  std::mt19937 random(11);
  for (int round = 0; round < 200; ++round) {
    Trace trace;
    const TrackId tracks[] = {trace.add_track(TrackKind::thread, "a"), trace.add_track(TrackKind::stream, "b", 0)};
    const SiteId sites[] = {trace.add_site({.name = "span", .kind = SpanKind::host}),
                            trace.add_site({.name = "moment", .kind = SpanKind::instant})};
    for (int i = 0; i < 120; ++i) {
      trace.add({.track = tracks[random() % 2],
                 .site = sites[random() % 8 == 0 ? 1 : 0],
                 .start_ns = static_cast<std::int64_t>(random() % 60),
                 .duration_ns = static_cast<std::int64_t>(random() % 4 == 0 ? 0 : random() % 25)});
    }
    trace.finish();
    for (SpanId i = 0; i < trace.size(); ++i) {
      SpanId parent = kNone;
      for (SpanId s = 0; s < i; ++s) {
        const bool is_over = trace.end(s) == trace.start(i) && trace.duration(i) > 0;
        const bool is_around = trace.track_id(s) == trace.track_id(i) && trace.kind(s) != SpanKind::instant &&
                               !is_over && trace.start(s) <= trace.start(i) && trace.end(s) >= trace.end(i);
        if (is_around) parent = s;
      }
      ASSERT_EQ(trace.parent(i), parent) << round << " " << i;
    }
  }
}

}  // namespace
}  // namespace paoding::profile
