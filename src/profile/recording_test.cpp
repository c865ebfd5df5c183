// SPDX-License-Identifier: Apache-2.0
// Recordings in files are read as they were written: whole files, torn ones and broken ones.
#include "profile/recording.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <fstream>
#include <random>
#include <sstream>

#include "paoding/error.h"
#include "profile/report.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

std::string slurp(const std::filesystem::path& path) {
  std::stringstream text;
  text << std::ifstream(path, std::ios::binary).rdbuf();
  return text.str();
}

Trace random_trace(unsigned seed, int count) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Trace trace;
  trace.set_window(1'000'000'000'000, 1'000'000'000'000 + 100'000);
  ProcessId last = 0;
  for (int i = 0; i < below(3); ++i) last = trace.add_process(100 + i, i - 1, "program");
  for (ProcessId process = 0; process <= last; ++process) {
    for (int i = 0; i < below(4); ++i) {
      trace.add_anchor(process, "host " + std::to_string(below(2)), {1000 * i + below(900), 500 * i, below(900)});
    }
  }
  const TrackId tracks[] = {trace.add_track(TrackKind::thread, "thread0"),
                            trace.add_track(TrackKind::stream, "stream 7", 1, last),
                            trace.add_track(TrackKind::copy_engine, "copies 7", 1)};
  std::vector<ColumnId> columns;
  for (int c = 0; c < below(5); ++c) {
    columns.push_back(trace.add_column("argument " + std::to_string(c), static_cast<ArgumentType>(below(3))));
  }
  std::vector<SpanId> added;
  for (int i = 0; i < count; ++i) {
    SiteInfo site{.name = "n" + std::to_string(below(5)), .kind = static_cast<SpanKind>(below(kSpanKinds))};
    if (below(2) == 0) site.op = "op" + std::to_string(below(3));
    if (below(6) == 0) site.members = {{"op0", 3}, {"op9", 1}};
    if (below(3) == 0)
      site.scope = "a/b", site.instance = "op7", site.bytes = 77, site.flops = 1e9, site.unit = Unit::tf32;
    site.copy = static_cast<Copy>(below(6));
    if (below(4) == 0) site.kernel = "kernel" + std::to_string(below(3));
    if (below(5) == 0) site.shapes = "f32[" + std::to_string(below(3)) + "] -> f32[]";
    if (below(5) == 0) site.launch = {{1 + below(200), 1, 2}, 128, below(2) * 40, below(2) * 1024};
    const SpanId id = trace.add({.track = tracks[below(3)],
                                 .site = trace.add_site(site),
                                 .start_ns = 1'000'000'000'000 - 100 + below(100'200),
                                 .duration_ns = below(3000),
                                 .run = static_cast<std::uint32_t>(below(9)),
                                 .correlation = static_cast<std::uint32_t>(below(50)),
                                 .bytes = below(10) == 0 ? below(1000) : -1,
                                 .flops = below(20) == 0 ? 0.5 : -1});
    if (id == kNone) continue;
    added.push_back(id);
    for (const ColumnId column : columns) {
      if (below(3) != 0) continue;
      switch (trace.columns()[column].type) {
        case ArgumentType::integer: trace.add_argument(id, column, std::int64_t{below(100)} - 50); break;
        case ArgumentType::real: trace.add_argument(id, column, 0.5 * below(100)); break;
        case ArgumentType::text: trace.add_argument(id, column, "text " + std::to_string(below(4))); break;
      }
    }
  }
  for (int i = below(100); i > 0 && !added.empty(); --i) {
    const auto any = [&] { return added[static_cast<std::size_t>(below(static_cast<int>(added.size())))]; };
    trace.add_flow(any(), any());
  }
  trace.add_note("something", 3, static_cast<Note::Kind>(below(6)));
  trace.add_limit({1, 4600.5, {0, 1, 2.5, 3, 4}, "a GPU", 132, 2048, 65536, 233472});
  trace.add_limit({.device = 2, .name = "a GPU of which only the name is known"});
  for (int i = 0; i < below(4); ++i) {
    Memory memory;
    memory.device = below(2) - 1;
    memory.of = "program";
    memory.what = "part " + std::to_string(i);
    memory.is_inside = below(2) == 0;
    memory.bytes = below(1000);
    trace.add_memory(memory);
  }
  for (int i = 0; i < below(30); ++i) {
    const CounterId counter = trace.add_counter(below(3) - 1, "held for " + std::to_string(below(2)), last);
    trace.add_sample({counter, 1'000'000'000'000 - 100 + below(100'200), std::int64_t{below(4)} << 30});
  }
  for (SiteId i = 0; i < trace.sites().size(); ++i) {
    if (trace.sites()[i].kind != SpanKind::replay) continue;
    trace.add_part({i, kNone, 2, 0});
    trace.add_part({i, 0, 3, 60});
    trace.add_phase({i, "waiting", 7});
  }
  trace.finish();
  return trace;
}

// All that can be asked of a trace, as text.
std::string text_of(const Trace& trace) {
  std::string text = fmt::format("{} {}\n", trace.window_start(), trace.window_end());
  for (SpanId i = 0; i < trace.size(); ++i) {
    const Span s = trace.span(i);
    const SiteInfo site = trace.site_info(s.site);
    text += fmt::format("{} {} {} {} {} {} {} {} {} {}{} {} {} {} {} {} {} {} {} {} {} {}\n", s.track, s.start_ns,
                        s.duration_ns, s.run, s.correlation, s.parent, s.cause, s.bytes, s.flops, trace.cut(i).at_start,
                        trace.cut(i).at_end, site.name, site.op, site.scope, site.instance, to_string(site.kind),
                        to_string(site.copy), site.bytes, site.flops, static_cast<int>(site.unit), site.members.size(),
                        site.kernel);
    text += site.shapes + " " + to_string(site.launch) + "\n";
  }
  for (const ReplayPart& part : trace.parts()) {
    text += fmt::format("{} {} {} {}\n", part.replay, part.site, part.calls, part.ns);
  }
  for (const Phase& phase : trace.phases()) text += fmt::format("{} {} {}\n", phase.site, phase.name, phase.ns);
  for (const Limit& limit : trace.limits()) {
    text += fmt::format("{} {}", limit.device, limit.bytes_per_ns);
    for (const double rate : limit.flops_per_ns) text += fmt::format(" {}", rate);
    text += fmt::format(" {} {} {} {} {}\n", limit.name, limit.sms, limit.threads_of_sm, limit.registers_of_sm,
                        limit.shared_of_sm);
  }
  for (const Note& note : trace.notes()) {
    text += fmt::format("{} {} {}\n", note.text, note.count, static_cast<int>(note.kind));
  }
  for (const Counter& counter : trace.counters()) {
    text += fmt::format("{} {} {}\n", counter.device, trace.text(counter.name), counter.process);
  }
  for (const Process& process : trace.processes()) {
    text += fmt::format("{} {} {}\n", process.pid, process.rank, trace.text(process.name));
  }
  for (const ClockAnchor& at : trace.anchors()) {
    text += fmt::format("{} {} {} {} {}\n", at.process, trace.text(at.host), at.ns, at.system_ns, at.wall_ns);
  }
  for (TrackId track = 0; track < trace.tracks().size(); ++track) {
    text += fmt::format("{} {}\n", trace.track_name(track), trace.tracks()[track].process);
  }
  for (const ArgumentColumn& column : trace.columns()) {
    text += fmt::format("{} {}\n", trace.text(column.name), static_cast<int>(column.type));
    for (std::size_t i = 0; i < column.of.size(); ++i) {
      const bool is_text = column.type == ArgumentType::text;
      text += fmt::format("{} {}\n", column.of[i],
                          is_text ? std::string(trace.text(column.text(i))) : std::to_string(column.bits[i]));
    }
  }
  for (const Flow& flow : trace.flows()) text += fmt::format("{} {}\n", flow.from, flow.to);
  for (const Sample& sample : trace.samples()) {
    text += fmt::format("{} {} {}\n", sample.counter, sample.ns, sample.value);
  }
  for (const Memory& memory : trace.memory()) {
    text += fmt::format("{} {} {} {} {}\n", memory.device, memory.of, memory.what, memory.is_inside, memory.bytes);
  }
  return text;
}

TEST(Recording, IsReadAsItWasWritten) {
  const TemporaryFolder folder;
  const std::string path = (folder / "all.paoding").string();
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Trace trace = random_trace(seed, 400);
    write_recording(trace, path);
    const Trace read = read_recording(path);
    ASSERT_EQ(text_of(read), text_of(trace)) << seed;
    ASSERT_EQ(report(read), report(trace));
  }
}

// A file from before there were processes, arguments, flows and instants gives the report of then.
TEST(Recording, OfTheFirstVersionIsRead) {
  struct Then {
    const char* name;
    std::size_t spans;
    double wall, computation, framework, recording, compile, yours;
    std::uint64_t replays;
  };
  for (const Then& then :
       {Then{"version_1_cpu", 151, 134349, 86238, 18457, 23175, 0, 6479, 0},
        Then{"version_1_gpu", 230, 6284550909, 201075, 1598918, 2815873108, 3462252002, 4625806, 41}}) {
    const Trace trace = read_recording(fmt::format("tests/recordings/{}.paoding", then.name));
    const Measures m = measure(trace);
    EXPECT_EQ(trace.size(), then.spans) << then.name;
    EXPECT_EQ(m.wall, then.wall);
    EXPECT_EQ(m.computation, then.computation);
    EXPECT_EQ(m.framework, then.framework);
    EXPECT_EQ(m.recording, then.recording);
    EXPECT_EQ(m.compile, then.compile);
    EXPECT_EQ(m.yours, then.yours);
    EXPECT_EQ(m.records.dropped + m.records.outside + m.records.unattributed, 0u);
    for (const Note& note : trace.notes()) EXPECT_EQ(note.kind, Note::Kind::estimated) << note.text;
    EXPECT_TRUE(trace.processes().empty() && trace.columns().empty());
    EXPECT_EQ(m.replays, then.replays);
  }
}

TEST(Recording, OfTheSecondVersionIsRead) {
  const Trace trace = read_recording("tests/recordings/version_2_cpu.paoding");
  EXPECT_EQ(trace.size(), 76u);
  EXPECT_EQ(measure(trace).wall, 104194);
  EXPECT_EQ(trace.processes().size(), 1u);
  EXPECT_TRUE(trace.anchors().empty());
  EXPECT_TRUE(trace.notes().empty());
}

// The last one whose sites had no shapes of operands and no launches.
TEST(Recording, OfTheFourthVersionIsRead) {
  const std::string path = "tests/recordings/version_4_gpu.paoding";
  ASSERT_TRUE(slurp(path).starts_with(recording_head(4)));
  const Trace trace = read_recording(path);
  EXPECT_EQ(trace.size(), 138u);
  EXPECT_TRUE(trace.notes().empty());
  for (const Site& site : trace.sites()) EXPECT_TRUE(site.shapes == 0 && !site.launch.is_known());
}

TEST(Recording, OfALaterVersionIsSaidToBeOne) {
  std::string file = recording_head();
  file[file.size() - 2] = '9';
  try {
    read_recording_text(file, "later");
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    EXPECT_STREQ(error.what(), "later: it is a recording of version '9', this paoding reads 1 to 5");
  }
}

// A writer that is killed leaves whole chunks and perhaps a piece of one.
TEST(Recording, IsReadUpToWhereItWasCutOff) {
  std::string file;
  std::vector<std::size_t> ends;
  RecordingWriter writer([&](std::string_view bytes) {
    file += bytes;
    ends.push_back(file.size());
  });
  writer.window(0, 0);
  writer.clock(1000, 0);
  const TrackId track = writer.track(TrackKind::thread, "thread0", -1);
  const SiteId site = writer.site({.op = "mul", .kind = SpanKind::op});
  for (std::uint64_t i = 0; i < 5; ++i) {
    const StoredSpan span{.site = site, .start = 1000 + 200 * i, .end = 1100 + 200 * i};
    writer.spans(track, StoredClock::ticks, {&span, 1});
    writer.clock(1200 + 200 * i, static_cast<std::int64_t>(100 + 100 * i));  // two ticks a nanosecond
  }
  writer.window(0, 500);
  writer.finish();
  for (std::size_t size = recording_head().size(); size < file.size(); ++size) {
    const Trace trace = read_recording_text(std::string_view(file).substr(0, size), "cut");
    const auto whole = std::count_if(ends.begin(), ends.end(), [&](std::size_t end) { return end <= size; });
    const auto spans = static_cast<std::size_t>(std::clamp<std::ptrdiff_t>((whole - 4) / 2, 0, 5));
    ASSERT_LE(trace.size(), spans + 1) << size;
    ASSERT_GE(trace.size() + 1, spans) << size;
    ASSERT_EQ(trace.notes().size(), 1u);
    ASSERT_TRUE(trace.notes()[0].text.starts_with("the recording was never finished: chunk ")) << trace.notes()[0].text;
    for (SpanId i = 0; i + 1 < trace.size(); ++i) ASSERT_EQ(trace.duration(i), 50);
  }
  const Trace trace = read_recording_text(file, "whole");
  EXPECT_EQ(trace.size(), 5u);
  EXPECT_TRUE(trace.notes().empty());
  EXPECT_EQ(trace.wall_ns(), 500);
  EXPECT_EQ(trace.start(4), 400);
}

// A file that was whole once says in front how long the recording was, but nobody knows the rest behind the cut.
TEST(Recording, ThatWasCutOffEndsWithTheLastSpanThatIsLeft) {
  const TemporaryFolder folder;
  const std::string path = (folder / "whole.paoding").string();
  Trace made;
  made.set_window(0, 10'000'000);
  const TrackId host = made.add_track(TrackKind::thread, "thread0");
  std::mt19937 random(3);
  for (int i = 0; i < 90'000; ++i) {
    made.add({.track = host,
              .site = made.add_site({.op = "mul", .kind = SpanKind::op}),
              .start_ns = 100 * i,
              .duration_ns = static_cast<std::int64_t>(random() % 100)});
  }
  made.finish();
  write_recording(made, path);
  const std::string file = slurp(path);
  std::size_t most = 0;
  for (std::size_t tenths = 1; tenths < 10; ++tenths) {
    const Trace trace = read_recording_text(std::string_view(file).substr(0, tenths * file.size() / 10), "cut");
    most = std::max(most, trace.size());
    ASSERT_LT(trace.size(), made.size());
    std::int64_t first = 0, last = 0;
    for (SpanId i = 0; i < trace.size(); ++i) {
      first = i == 0 ? trace.start(i) : std::min(first, trace.start(i));
      last = std::max(last, trace.end(i));
    }
    EXPECT_EQ(trace.window_start(), first);
    EXPECT_EQ(trace.window_end(), last);
  }
  EXPECT_GT(most, 0u) << "no cut left a chunk of spans";
}

TEST(Recording, OfAnyBytesIsAnErrorOrATrace) {
  const TemporaryFolder folder;
  const std::string path = (folder / "all.paoding").string();
  write_recording(random_trace(3, 100), path);
  const std::string file = slurp(path);
  std::mt19937 random(5);
  for (int round = 0; round < 3000; ++round) {
    std::string broken = file;
    for (int k = 0; k < 3; ++k) broken[random() % broken.size()] = static_cast<char>(random());
    try {
      const Trace trace = read_recording_text(broken, "broken");
      ASSERT_GE(measure(trace).framework, 0);
    } catch (const Error& error) {
      ASSERT_EQ(error.kind(), ErrorKind::file);
    }
  }
  // Chunks whose checksum is right and whose bodies are anything.
  for (int round = 0; round < 3000; ++round) {
    std::string made = recording_head(1 + round % kRecordingVersion);
    for (int k = 0; k < 6; ++k) {
      BodyWriter body;
      for (auto left = random() % 40; left > 0; --left)
        body.byte(static_cast<std::uint8_t>(random() % 3 == 0 ? random() : random() % 4));
      made += chunk_of(static_cast<ChunkType>(random() % kChunkTypes), body);
    }
    ASSERT_GE(measure(read_recording_text(made, "made")).framework, 0);
  }
}

TEST(Recording, SaysWhatIsNotOne) {
  const TemporaryFolder folder;
  std::ofstream((folder / "other").string()) << "{}";
  try {
    read_recording((folder / "other").string());
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::file);
    EXPECT_NE(std::string(error.what()).find("it is no recording of paoding's"), std::string::npos) << error.what();
  }
  EXPECT_THROW(read_recording((folder / "missing").string()), Error);
}

// An event may take 40 bytes; nested spans of a loop take a few.
TEST(Recording, TakesFewBytesAnEvent) {
  Trace trace;
  const TrackId track = trace.add_track(TrackKind::thread, "thread0");
  std::mt19937 random(1);
  std::int64_t at = 5'000'000'000'000;
  constexpr int kSpans = 100'000;
  std::vector<SiteId> sites;
  for (int i = 0; i < 50; ++i) sites.push_back(trace.add_site({.op = "op" + std::to_string(i), .kind = SpanKind::op}));
  for (int i = 0; i < kSpans; ++i) {
    const std::int64_t ns = 500 + static_cast<std::int64_t>(random() % 4000);
    trace.add({.track = track, .site = sites[i % 50], .start_ns = at, .duration_ns = ns, .run = 1u + i / 50});
    at += ns + static_cast<std::int64_t>(random() % 300);
  }
  trace.finish();
  const TemporaryFolder folder;
  const std::string path = (folder / "all.paoding").string();
  write_recording(trace, path);
  EXPECT_LT(std::filesystem::file_size(path), 8u * kSpans);
}

}  // namespace
}  // namespace paoding::profile
