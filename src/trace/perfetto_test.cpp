// SPDX-License-Identifier: Apache-2.0
#include "trace/perfetto.h"

#include <gtest/gtest.h>
#include <zlib.h>

#include <random>
#include <tuple>
#include <vector>

#include "paoding/error.h"
#include "profile/protobuf.h"
#include "profile/report.h"
#include "profile/timeline_rows.h"

namespace paoding::trace {
namespace {

using namespace profile;
using Message = ProtobufMessage;

std::string trace_of(std::initializer_list<Message> packets) {
  Message trace;
  for (const Message& packet : packets) trace.message(1, packet);
  return trace.bytes();
}

Message descriptor(std::uint64_t uuid, std::string_view name, std::uint64_t parent = 0) {
  Message own, packet;
  own.number(1, uuid);
  own.text(2, name);
  if (parent != 0) own.number(5, parent);
  packet.message(60, own);
  return packet;
}

Message event(std::uint64_t ns, std::uint64_t type, std::uint64_t track, std::string_view name = "",
              std::string_view category = "") {
  Message own, packet;
  own.number(9, type);
  own.number(11, track);
  if (!name.empty()) own.text(23, name);
  if (!category.empty()) own.text(22, category);
  packet.number(8, ns);
  packet.number(10, 1);
  packet.message(11, own);
  return packet;
}

std::uint64_t count_of(const Trace& trace, std::string_view text) {
  for (const Note& note : trace.notes()) {
    if (note.text.find(text) != note.text.npos) return note.count;
  }
  return 0;
}

TEST(PerfettoReader, TakesTheLastDescriptionOfATrackHoweverOftenItWasSaid) {
  for (const std::string last : {"loop", "feeder"}) {
    const std::string other = last == "loop" ? "feeder" : "loop";
    constexpr std::uint64_t kTrack = 0xfedcba9876543210, kOther = 7;  // a number of ten bytes, and of one
    const Trace trace = read_perfetto_text(
        trace_of({descriptor(kTrack, last), descriptor(kOther, "beside"), event(10, 1, kTrack, "a"),
                  event(20, 2, kTrack), descriptor(kTrack, last), descriptor(kTrack, other), descriptor(kTrack, other),
                  event(30, 1, kTrack, "b"), event(40, 2, kTrack), descriptor(kTrack, last)}),
        "tracks");
    ASSERT_EQ(trace.size(), 2u);
    for (SpanId i = 0; i < trace.size(); ++i) EXPECT_EQ(trace.text(trace.track(i).name), last);
  }
}

// Recording to timeline and back: the same spans, kinds, names, ops and times.
TEST(PerfettoReader, ReadsTheTimelinesThatPaodingWrites) {
  std::mt19937 random(8);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 20; ++round) {
    Trace trace;
    const TrackId thread = trace.add_track(TrackKind::thread, "thread0");
    const TrackId stream = trace.add_track(TrackKind::stream, "stream 7", 2);
    std::int64_t at = 1'000'000;
    for (int i = 0; i < 40; ++i) {
      at += 10 + below(50);
      const auto run = static_cast<std::uint32_t>(i + 1);
      trace.add({.track = thread,
                 .site = trace.add_site({.name = "launch of " + std::to_string(i % 5), .kind = SpanKind::launch}),
                 .start_ns = at,
                 .duration_ns = 5,
                 .run = run});
      trace.add({.track = stream,
                 .site = trace.add_site({.name = "kernel" + std::to_string(i % 7),
                                         .op = "matmul",
                                         .scope = "layer" + std::to_string(i % 3),
                                         .instance = "matmul" + std::to_string(i % 4),
                                         .kind = SpanKind::kernel}),
                 .start_ns = at + 7,
                 .duration_ns = below(12),
                 .run = run,
                 .bytes = 1 + below(1000)});
    }
    trace.finish();
    std::string text;
    write_perfetto(trace, [&](std::string_view piece) { text += piece; });
    ASSERT_TRUE(is_perfetto(std::string_view(text).substr(0, 200)));
    const Trace back = read_perfetto_text(text, "own");
    ASSERT_EQ(back.size(), trace.size());
    const auto facts = [](const Trace& of) {
      std::vector<std::tuple<std::int64_t, std::int64_t, SpanKind, std::string, std::string, std::string, std::string,
                             std::int64_t, std::string, int, std::int64_t>>
          all;
      for (SpanId i = 0; i < of.size(); ++i) {
        const Site& site = of.site(i);
        all.emplace_back(of.start(i), of.duration(i), of.kind(i), of.name(i), of.text(site.op), of.text(site.scope),
                         of.text(site.instance), of.bytes(i), of.text(of.track(i).name), of.track(i).device,
                         of.cause(i) == kNone ? -1 : of.start(of.cause(i)));
      }
      std::ranges::sort(all);
      return all;
    };
    auto before = facts(trace), after = facts(back);
    for (auto& one : before) std::get<7>(one) = std::max<std::int64_t>(std::get<7>(one), 0);
    for (auto& one : after) std::get<7>(one) = std::max<std::int64_t>(std::get<7>(one), 0);
    EXPECT_EQ(before, after);
    EXPECT_TRUE(back.notes().empty());
  }
}

TEST(PerfettoReader, PairsBeginningsWithEndsAndCountsThoseThatAreAlone) {
  const Trace trace =
      read_perfetto_text(trace_of({descriptor(5, "worker"), event(50, 2, 5), event(100, 1, 5, "outer"),
                                   event(110, 1, 5, "inner"), event(120, 2, 5), event(130, 3, 5, "moment"),
                                   event(200, 2, 5), event(300, 1, 5, "left open"), event(310, 3, 5, "last")}),
                         "pairs");
  ASSERT_EQ(trace.size(), 5u);
  EXPECT_EQ(trace.name(0), "outer");
  EXPECT_EQ(trace.duration(0), 100);
  EXPECT_EQ(trace.name(1), "inner");
  EXPECT_EQ(trace.duration(1), 10);
  EXPECT_EQ(trace.parent(1), 0u);
  EXPECT_EQ(trace.kind(2), SpanKind::instant);
  EXPECT_EQ(trace.name(3), "left open");
  EXPECT_EQ(trace.end(3), 310);
  EXPECT_TRUE(trace.cut(3).at_end);
  EXPECT_EQ(count_of(trace, "did not begin"), 1u);
  EXPECT_EQ(count_of(trace, "did not end"), 1u);
  EXPECT_EQ(trace.text(trace.tracks()[trace.track_id(0)].name), "worker");
}

Message interned(std::uint32_t table, std::uint64_t id, std::string_view text) {
  Message entry, own;
  entry.number(1, id);
  entry.text(2, text);
  own.message(table, entry);
  return own;
}

Message named_event(std::uint64_t ns, std::uint64_t type, std::uint64_t sequence, std::uint64_t name,
                    std::uint64_t flags) {
  Message own, packet;
  own.number(9, type);
  own.number(10, name);
  packet.number(8, ns);
  packet.number(10, sequence);
  packet.number(13, flags);
  packet.message(11, own);
  return packet;
}

// Names are numbers, of each writer its own; after a loss they are not known until the writer begins anew.
TEST(PerfettoReader, LooksNamesUpPerWriterAndCountsThoseThatWereLost) {
  Message defaults, track, first = named_event(10, 3, 1, 1, 3), second = named_event(20, 3, 2, 1, 3);
  track.number(11, 77);
  defaults.message(11, track);
  first.message(59, defaults);
  first.message(12, interned(2, 1, "of the first"));
  second.message(12, interned(2, 1, "of the second"));
  Message lost = named_event(30, 3, 1, 9, 2);
  lost.number(42, 1);
  Message anew = named_event(50, 3, 1, 1, 3);
  anew.message(12, interned(2, 1, "anew"));
  const Trace trace = read_perfetto_text(
      trace_of({first, second, named_event(25, 3, 1, 1, 2), lost, named_event(40, 3, 1, 9, 2), anew}), "names");
  std::vector<std::string> names;
  for (SpanId i = 0; i < trace.size(); ++i) names.emplace_back(trace.name(i));
  std::ranges::sort(names);
  EXPECT_EQ(names, (std::vector<std::string>{"anew", "of the first", "of the first", "of the second"}));
  EXPECT_EQ(count_of(trace, "names were lost"), 2u);
  EXPECT_EQ(count_of(trace, "packets were lost"), 1u);
}

TEST(PerfettoReader, UnpacksPacketsThatLieCompressed) {
  const std::string inner = trace_of({descriptor(5, "worker"), event(100, 1, 5, "inside"), event(120, 2, 5)});
  std::string packed(compressBound(inner.size()), '\0');
  uLongf size = packed.size();
  ASSERT_EQ(compress2(reinterpret_cast<Bytef*>(packed.data()), &size, reinterpret_cast<const Bytef*>(inner.data()),
                      inner.size(), 9),
            Z_OK);
  packed.resize(size);
  Message whole, broken;
  whole.text(50, packed);
  broken.text(50, std::string_view(packed).substr(0, packed.size() / 2));
  const Trace trace = read_perfetto_text(trace_of({whole, broken}), "packed");
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.name(0), "inside");
  EXPECT_EQ(trace.duration(0), 20);
  EXPECT_EQ(count_of(trace, "could not be unpacked"), 1u);
}

Message clocks(std::initializer_list<std::pair<std::uint64_t, std::uint64_t>> all) {
  Message own, packet;
  for (const auto& [clock, ticks] : all) {
    Message one;
    one.number(1, clock);
    one.number(2, ticks);
    own.message(1, one);
  }
  packet.message(6, own);
  return packet;
}

TEST(PerfettoReader, SetsClocksBesideEachOther) {
  constexpr std::uint64_t kMonotonic = 3, kBoot = 6, kOther = 40;
  Message by_monotonic = event(1'100, 3, 5, "by the steady clock"), by_other = event(7, 3, 5, "by none");
  by_monotonic.number(58, kMonotonic);
  by_other.number(58, kOther);
  const Trace trace = read_perfetto_text(trace_of({clocks({{kBoot, 5'000}, {kMonotonic, 1'000}}), by_monotonic,
                                                   event(5'050, 3, 5, "by the time since boot"), by_other}),
                                         "clocks");
  ASSERT_EQ(trace.size(), 2u);
  EXPECT_EQ(trace.start(0), 5'050);
  EXPECT_EQ(trace.start(1), 5'100);
  EXPECT_EQ(count_of(trace, "a clock that nothing sets beside"), 1u);
}

// As rocprofv3 writes them: the launch and the kernel have one number.
TEST(PerfettoReader, JoinsAKernelWithItsLaunchByTheirNumber) {
  const auto with_number = [](Message packet, Message own, std::uint64_t number) {
    Message argument;
    argument.text(10, "corr_id");
    argument.number(3, number);
    own.message(4, argument);
    packet.message(11, own);
    return packet;
  };
  const auto begin = [](std::uint64_t track, std::string_view name, std::string_view category) {
    Message own;
    own.number(9, 1);
    own.number(11, track);
    own.text(23, name);
    own.text(22, category);
    return own;
  };
  const auto at = [](std::uint64_t ns) {
    Message packet;
    packet.number(8, ns);
    return packet;
  };
  const Trace trace =
      read_perfetto_text(trace_of({descriptor(1, "THREAD 7"), descriptor(2, "STREAM [3]"),
                                   with_number(at(10), begin(1, "hipLaunchKernel", "hip_api"), 12), event(15, 2, 1),
                                   with_number(at(30), begin(2, "gemm", "kernel_dispatch"), 12), event(90, 2, 2)}),
                         "rocprofv3");
  ASSERT_EQ(trace.size(), 2u);
  const SpanId kernel = trace.on_gpu(0) ? 0 : 1, launch = 1 - kernel;
  EXPECT_EQ(trace.kind(kernel), SpanKind::kernel);
  EXPECT_EQ(trace.kind(launch), SpanKind::launch);
  EXPECT_EQ(trace.cause(kernel), launch);
  EXPECT_EQ(measure(trace).records.gpu_ns, 60);
}

TEST(PerfettoReader, ReadsStagesOfWorkOnGpus) {
  Message stage, packet, names, size, launch;
  stage.number(2, 250);
  stage.number(11, 1);
  stage.number(13, 4);
  stage.text(17, "saxpy");
  size.number(1, 64);
  launch.message(1, size);
  stage.message(21, launch);
  packet.number(8, 1'000);
  packet.number(10, 3);
  packet.message(12, interned(24, 4, "compute"));
  packet.message(53, stage);
  const Trace trace = read_perfetto_text(trace_of({packet}), "stages");
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.kind(0), SpanKind::kernel);
  EXPECT_EQ(trace.name(0), "saxpy");
  EXPECT_EQ(trace.duration(0), 250);
  EXPECT_EQ(trace.track(0).device, 1);
  EXPECT_EQ(trace.text(trace.track(0).name), "compute");
  ASSERT_EQ(trace.columns().size(), 1u);
  EXPECT_EQ(trace.text(trace.columns()[0].text(0)), "64x1x1");
}

TEST(PerfettoReader, KeepsWholeNumbersOfCountersAndAddsUpThoseThatCountOn) {
  const auto counter = [](std::uint64_t uuid, bool is_incremental) {
    Message kind, own, packet;
    if (is_incremental) kind.number(5, 1);
    own.number(1, uuid);
    own.text(2, is_incremental ? "more" : "now");
    own.message(8, kind);
    packet.message(60, own);
    return packet;
  };
  const auto value = [](std::uint64_t ns, std::uint64_t track, std::int64_t number) {
    Message own, packet;
    own.number(9, 4);
    own.number(11, track);
    own.number(30, static_cast<std::uint64_t>(number));
    packet.number(8, ns);
    packet.message(11, own);
    return packet;
  };
  constexpr std::int64_t kLarge = 9'007'199'254'740'993;  // one more than a double can tell
  const Trace trace = read_perfetto_text(trace_of({counter(1, false), counter(2, true), value(1, 1, kLarge),
                                                   value(2, 2, 5), value(3, 2, 6), value(4, 1, -1)}),
                                         "counters");
  std::vector<std::int64_t> values;
  for (const Sample& sample : trace.samples()) values.push_back(sample.value);
  EXPECT_EQ(values, (std::vector<std::int64_t>{kLarge, -1, 5, 11}));
}

using SpanFacts = std::tuple<std::int64_t, std::int64_t, SpanKind, std::string, std::string, bool, std::string>;

std::vector<SpanFacts> facts_of(const Trace& trace) {
  std::vector<SpanFacts> all;
  for (SpanId i = 0; i < trace.size(); ++i) {
    std::string arguments;
    for (const ArgumentColumn& column : trace.columns()) {
      for (std::size_t at = 0; at < column.of.size(); ++at) {
        if (column.of[at] == i) arguments += trace.text(column.text(at));
      }
    }
    all.emplace_back(trace.start(i), trace.duration(i), trace.kind(i), trace.name(i), trace.text(trace.track(i).name),
                     trace.on_gpu(i), arguments);
  }
  std::ranges::sort(all);
  return all;
}

// Descriptions behind events, events in any order, a stream whose first event is no work of a GPU, a category of ours
// in front of others'.
TEST(PerfettoReader, FindsTheSameWhereNothingIsInTheUsualOrder) {
  std::mt19937 random(9);
  for (int round = 0; round < 40; ++round) {
    std::vector<Message> descriptors = {descriptor(1, "main"), descriptor(2, "STREAM [3]", 9), descriptor(9, "GPU 1"),
                                        descriptor(3, "STREAM [4]", 9)};
    std::vector<Message> events;
    std::uint64_t at = 1000;
    const auto add = [&](std::uint64_t track, std::string_view name, std::string_view category) {
      Message own, packet, argument;
      argument.text(10, "of");
      argument.text(6, std::string(name) + std::to_string(at));
      own.number(9, 1);
      own.number(11, track);
      own.text(23, name);
      own.text(22, category);
      own.message(4, argument);
      packet.number(8, at += 1 + random() % 50);
      packet.message(11, own);
      events.push_back(packet);
    };
    for (int i = 0; i < 30; ++i) {
      const std::uint64_t track = 1 + random() % 3;
      add(track, "outer", track == 1 ? "kernel" : "mark");
      if (random() % 2 == 0) {
        add(track, track == 1 ? "hipLaunchKernel" : "gemm", track == 1 ? "hip_api" : "kernel_dispatch");
        events.push_back(event(at += 3, 2, track));
      }
      events.push_back(event(at += 1 + random() % 9, 2, track));
    }
    const auto read = [&](const std::vector<Message>& first, const std::vector<Message>& then) {
      Message all;
      for (const Message& packet : first) all.message(1, packet);
      for (const Message& packet : then) all.message(1, packet);
      return facts_of(read_perfetto_text(all.bytes(), "orders"));
    };
    const std::vector<SpanFacts> usual = read(descriptors, events);
    ASSERT_GE(usual.size(), 30u);
    EXPECT_EQ(read(events, descriptors), usual);
    std::ranges::shuffle(events, random);
    EXPECT_EQ(read(descriptors, events), usual);
    EXPECT_EQ(read(events, descriptors), usual);
  }
}

TEST(PerfettoReader, TakesNumbersWhereTextsShouldBeForEmptyTexts) {
  Message own, packet, track, described;
  own.number(9, 1);
  own.number(11, 5);
  own.number(22, 80);
  own.number(23, 4);
  packet.number(8, 100);
  packet.message(11, own);
  track.number(1, 5);
  track.number(2, 7);
  described.message(60, track);
  const Trace trace = read_perfetto_text(trace_of({described, packet, event(120, 2, 5)}), "numbers");
  ASSERT_EQ(trace.size(), 1u);
  EXPECT_EQ(trace.name(0), "");
  EXPECT_EQ(trace.duration(0), 20);
}

TEST(PerfettoReader, ReadsPacketsLongerThanWhatIsReadAtOnce) {
  Message all;
  all.message(1, descriptor(5, "worker"));
  std::uint64_t at = 0;
  for (int i = 0; i < 12; ++i) {
    const std::string name(i % 4 == 0 ? 3'000'000 : 200'000 + i, static_cast<char>('a' + i));
    all.message(1, event(at += 10, 1, 5, name));
    all.message(1, event(at += 5, 2, 5));
  }
  const Trace trace = read_perfetto_text(all.bytes(), "long");
  ASSERT_EQ(trace.size(), 12u);
  for (SpanId i = 0; i < 12; ++i) {
    EXPECT_EQ(trace.name(i), std::string(i % 4 == 0 ? 3'000'000 : 200'000 + i, static_cast<char>('a' + i)));
    EXPECT_EQ(trace.duration(i), 5);
  }
  EXPECT_TRUE(trace.notes().empty());
  std::string cut = all.bytes();
  cut.resize(cut.size() - 20);
  EXPECT_EQ(count_of(read_perfetto_text(cut, "cut"), "packets that are broken"), 1u);
}

TEST(PerfettoReader, RefusesWhatHasNoTrackEvents) {
  EXPECT_THROW(read_perfetto_text("", "empty"), Error);
  Message other;
  other.text(1, "of ftrace");
  EXPECT_THROW(read_perfetto_text(trace_of({other}), "ftrace"), Error);
}

}  // namespace
}  // namespace paoding::trace
