// SPDX-License-Identifier: Apache-2.0
// Perfetto's timeline, taken apart by a reader of protobufs' wire format; and the packed one.
#include <gtest/gtest.h>
#include <simdjson.h>
#include <zlib.h>

#include <fstream>
#include <map>
#include <random>
#include <set>
#include <sstream>

#include "profile/timeline.h"
#include "profile/timeline_rows.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

struct Field {
  std::uint32_t number, type;
  std::uint64_t value = 0;
  std::string_view text = {};
};

// The fields of a message, or a failure.
std::vector<Field> fields(std::string_view bytes) {
  std::vector<Field> all;
  std::size_t at = 0;
  const auto varint = [&] {
    std::uint64_t value = 0;
    for (int shift = 0; at < bytes.size(); shift += 7) {
      const auto byte = static_cast<unsigned char>(bytes[at++]);
      value |= std::uint64_t{byte & 0x7fu} << shift;
      if (byte < 0x80) return value;
    }
    ADD_FAILURE() << "a number is cut off";
    return value;
  };
  while (at < bytes.size()) {
    const std::uint64_t tag = varint();
    Field field{static_cast<std::uint32_t>(tag >> 3), static_cast<std::uint32_t>(tag & 7)};
    if (field.type == 0) {
      field.value = varint();
    } else if (field.type == 1) {
      for (int i = 0; i < 8; ++i) field.value |= std::uint64_t{static_cast<unsigned char>(bytes[at++])} << (8 * i);
    } else if (field.type == 2) {
      const std::uint64_t size = varint();
      if (size > bytes.size() - at) {
        ADD_FAILURE() << "a field is cut off";
        return all;
      }
      field.text = bytes.substr(at, size);
      at += size;
    } else {
      ADD_FAILURE() << "type " << field.type;
      return all;
    }
    all.push_back(field);
  }
  return all;
}

const Field* find(const std::vector<Field>& all, std::uint32_t number) {
  for (const Field& field : all) {
    if (field.number == number) return &field;
  }
  return nullptr;
}

// Slices nest on every track, names are those of spans, flows lead from causes to what they caused.
TEST(PerfettoTimeline, HasEverySpanAsASliceThatNests) {
  std::mt19937 random(3);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 30; ++round) {
    Trace trace;
    const TrackId tracks[] = {trace.add_track(TrackKind::thread, "thread0"),
                              trace.add_track(TrackKind::stream, "stream 7", 0)};
    for (int i = 0; i < 50; ++i) {
      trace.add(
          {.track = tracks[below(2)],
           .site = trace.add_site(
               {.name = "n" + std::to_string(below(5)), .op = "op", .kind = static_cast<SpanKind>(below(kSpanKinds))}),
           .start_ns = 1000 + below(1000),
           .duration_ns = 1 + below(300),
           .correlation = static_cast<std::uint32_t>(below(10))});
    }
    for (int i = 0; i < 20; ++i) {
      const auto from = static_cast<SpanId>(below(50)), to = static_cast<SpanId>(below(50));
      if (from != to) trace.add_flow(from, to);
    }
    trace.finish();
    std::string file;
    write_perfetto(trace, [&](std::string_view piece) { file += piece; });
    std::map<std::uint64_t, std::string> tracks_seen, names;
    std::map<std::uint64_t, std::vector<std::pair<std::uint64_t, std::string>>> open;
    std::multimap<std::string, std::pair<std::uint64_t, std::uint64_t>> slices;
    std::map<std::uint64_t, int> flows;
    for (const Field& packet : fields(file)) {
      ASSERT_EQ(packet.number, 1u);
      const auto parts = fields(packet.text);
      ASSERT_NE(find(parts, 10), nullptr) << "no sequence";
      if (const Field* descriptor = find(parts, 60)) {
        const auto all = fields(descriptor->text);
        tracks_seen[find(all, 1)->value] = find(all, 2)->text;
        const Field* parent = find(all, 5);
        ASSERT_TRUE(parent == nullptr || tracks_seen.contains(parent->value));
        continue;
      }
      if (const Field* interned = find(parts, 12)) {
        const std::vector<Field> inner = fields(interned->text), entry = fields(find(inner, 2)->text);
        names[find(entry, 1)->value] = find(entry, 2)->text;
      }
      const std::uint64_t time = find(parts, 8)->value;
      const auto event = fields(find(parts, 11)->text);
      const std::uint64_t track = find(event, 11)->value;
      ASSERT_TRUE(tracks_seen.contains(track));
      if (find(event, 9)->value == 1) {
        ASSERT_TRUE(open[track].empty() || open[track].back().first <= time);
        open[track].emplace_back(time, names.at(find(event, 10)->value));
        for (const Field& field : event) flows[field.value] += field.number == 47 ? 1 : 0;
      } else if (find(event, 9)->value == 3) {  // an instant
        slices.emplace(names.at(find(event, 10)->value), std::pair(time, time));
        for (const Field& field : event) flows[field.value] += field.number == 47 ? 1 : 0;
      } else {
        ASSERT_EQ(find(event, 9)->value, 2u);
        ASSERT_FALSE(open[track].empty());
        slices.emplace(open[track].back().second, std::pair(open[track].back().first, time));
        open[track].pop_back();
      }
    }
    for (const auto& [track, left] : open) ASSERT_TRUE(left.empty());
    ASSERT_EQ(slices.size(), trace.size());
    int caused = 0, seen = 0;
    for (SpanId i = 0; i < trace.size(); ++i) {
      const auto [first, last] = slices.equal_range(std::string(trace.name(i)));
      const std::pair times{static_cast<std::uint64_t>(trace.start(i)), static_cast<std::uint64_t>(trace.end(i))};
      EXPECT_TRUE(std::any_of(first, last, [&](const auto& slice) { return slice.second == times; }));
      caused += trace.cause(i) != kNone ? 1 : 0;
    }
    // Every arrow has a number, which both its ends say.
    for (const auto& [id, count] : flows) {
      EXPECT_TRUE(count == 0 || count == 2) << id;
      seen += count / 2;
    }
    EXPECT_EQ(seen, caused + static_cast<int>(trace.flows().size()));
  }
}

TEST(PerfettoTimeline, CountsWhatIsHeldWhereItChanges) {
  Trace trace;
  trace.add({.track = trace.add_track(TrackKind::thread, "thread0"),
             .site = trace.add_site({.op = "mul", .kind = SpanKind::op}),
             .start_ns = 10,
             .duration_ns = 20});
  const CounterId arenas = trace.add_counter(-1, "arenas"), of_gpu = trace.add_counter(3, "arenas");
  for (const Sample& sample : {Sample{arenas, 10, 4096}, Sample{arenas, 20, 4100}, Sample{of_gpu, 15, 5}}) {
    trace.add_sample(sample);
  }
  trace.finish();
  std::string bytes;
  write_perfetto(trace, [&](std::string_view piece) { bytes += piece; });
  std::map<std::uint64_t, std::uint64_t> counters;                                     // and the processes around them
  std::map<std::uint64_t, std::string> processes;                                      // of pids
  std::map<std::string, std::vector<std::pair<std::uint64_t, std::uint64_t>>> values;  // when, how many bytes
  for (const Field& packet : fields(bytes)) {
    const auto parts = fields(packet.text);
    if (const Field* descriptor = find(parts, 60)) {
      const auto own = fields(descriptor->text);
      if (find(own, 3) != nullptr) processes[find(own, 1)->value] = find(own, 2)->text;
      if (find(own, 8) == nullptr) continue;
      EXPECT_EQ(find(own, 2)->text, "memory: arenas");
      const auto unit = fields(find(own, 8)->text);
      EXPECT_EQ(find(unit, 3)->value, 3u);  // bytes
      counters[find(own, 1)->value] = find(own, 5)->value;
    } else if (const Field* event = find(parts, 11)) {
      const auto own = fields(event->text);
      if (find(own, 9)->value != 4) continue;
      const std::uint64_t counter = find(own, 11)->value;
      ASSERT_TRUE(counters.contains(counter));
      values[processes.at(counters.at(counter))].emplace_back(find(parts, 8)->value, find(own, 30)->value);
    }
  }
  EXPECT_EQ(counters.size(), 2u);
  using Points = std::vector<std::pair<std::uint64_t, std::uint64_t>>;
  EXPECT_EQ(values["host"], (Points{{10, 4096}, {20, 4100}, {30, 4100}}));
  EXPECT_EQ(values["GPU 3"], (Points{{15, 5}, {30, 5}}));
}

// As Chrome's does: what an op carries is there with its type.
TEST(PerfettoTimeline, SaysWhatSpansCarry) {
  Trace trace;
  trace.add({.track = trace.add_track(TrackKind::stream, "stream 7", 0),
             .site = trace.add_site({.op = "group",
                                     .kind = SpanKind::kernel,
                                     .copy = Copy::host_to_device,
                                     .bytes = 4096,
                                     .flops = 1e6,
                                     .members = {{"mul", 1}, {"add", 2}}}),
             .start_ns = 5,
             .duration_ns = 7,
             .run = 3});
  trace.add_argument(0, trace.add_column("registers", ArgumentType::integer), std::int64_t{-40});
  trace.add_argument(0, trace.add_column("share", ArgumentType::real), 0.25);
  trace.add_argument(0, trace.add_column("file", ArgumentType::text), "a.txt");
  trace.finish();
  std::string bytes;
  write_perfetto(trace, [&](std::string_view piece) { bytes += piece; });
  std::map<std::string, std::string> texts;
  std::map<std::string, std::uint64_t> numbers;
  std::map<std::string, std::int64_t> integers;
  std::map<std::string, double> reals;
  for (const Field& packet : fields(bytes)) {
    const auto parts = fields(packet.text);
    const Field* event = find(parts, 11);
    if (event == nullptr) continue;
    for (const Field& field : fields(event->text)) {
      if (field.number != 4) continue;
      const auto annotation = fields(field.text);
      const std::string key(find(annotation, 10)->text);
      if (const Field* text = find(annotation, 6)) texts[key] = text->text;
      if (const Field* number = find(annotation, 3)) numbers[key] = number->value;
      if (const Field* number = find(annotation, 4)) integers[key] = static_cast<std::int64_t>(number->value);
      if (const Field* number = find(annotation, 5)) reals[key] = std::bit_cast<double>(number->value);
    }
  }
  EXPECT_EQ(texts, (std::map<std::string, std::string>{
                       {"op", "group"}, {"copy", "CPU->GPU"}, {"members", "mul, add"}, {"file", "a.txt"}}));
  EXPECT_EQ(integers, (std::map<std::string, std::int64_t>{{"registers", -40}}));
  EXPECT_EQ(reals, (std::map<std::string, double>{{"share", 0.25}}));
  EXPECT_EQ(numbers, (std::map<std::string, std::uint64_t>{{"run", 3}, {"bytes", 4096}, {"flops", 1'000'000}}));
}

TEST(PerfettoTimeline, AndThePackedOneAreWrittenByTheirNames) {
  const TemporaryFolder folder;
  Trace trace;
  trace.add({.track = trace.add_track(TrackKind::thread, "thread0"),
             .site = trace.add_site({.name = "only"}),
             .start_ns = 5,
             .duration_ns = 7});
  trace.finish();
  write_timeline(trace, (folder / "t.pftrace").string());
  EXPECT_GT(std::filesystem::file_size(folder / "t.pftrace"), 20u);
  write_timeline(trace, (folder / "t.json.gz").string());
  gzFile file = gzopen((folder / "t.json.gz").c_str(), "rb");
  ASSERT_NE(file, nullptr);
  std::string text(1 << 16, '\0');
  text.resize(static_cast<std::size_t>(std::max(gzread(file, text.data(), 1 << 16), 0)));
  gzclose(file);
  EXPECT_EQ(text, timeline_json(trace));
}

}  // namespace
}  // namespace paoding::profile
