// SPDX-License-Identifier: Apache-2.0
// Trace: containment, causes and runs that finish() finds.
#include "profile/trace.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <functional>
#include <map>
#include <numeric>
#include <random>
#include <set>
#include <tuple>

namespace paoding::profile {
namespace {

SpanId find(const Trace& trace, std::string_view name) {
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.name(i) == name) return i;
  }
  ADD_FAILURE() << "no span " << name;
  return 0;
}

TEST(Trace, GivesEqualTextAndEqualSitesOneId) {
  Trace trace;
  EXPECT_EQ(trace.intern("mul"), trace.intern("mul"));
  EXPECT_NE(trace.intern("mul"), trace.intern("add"));
  const SiteInfo group{.name = "g", .kind = SpanKind::op, .members = {{"mul", 4}, {"add", 8}}};
  SiteInfo other = group;
  other.members[1].bytes = 9;
  EXPECT_EQ(trace.add_site(group), trace.add_site(group));
  EXPECT_NE(trace.add_site(group), trace.add_site(other));
}

TEST(Trace, FindsTheInnermostSpanThatContainsEach) {
  Trace trace;
  const TrackId track = trace.add_track(TrackKind::thread, "thread0");
  const auto add = [&](const char* name, std::int64_t start, std::int64_t end) {
    trace.add({.track = track, .site = trace.add_site({.name = name}), .start_ns = start, .duration_ns = end - start});
  };
  add("inner", 20, 30);  // a recorder writes the one that ends first
  add("outer", 10, 50);
  add("crossing", 40, 60);  // overlaps outer, lies in nothing
  add("in crossing", 52, 55);
  add("in both", 42, 48);
  add("after", 60, 70);    // touches crossing's end
  add("instant", 70, 70);  // at after's end: still part of it
  trace.finish();
  EXPECT_EQ(trace.parent(find(trace, "inner")), find(trace, "outer"));
  EXPECT_EQ(trace.parent(find(trace, "outer")), kNone);
  EXPECT_EQ(trace.parent(find(trace, "crossing")), kNone);
  EXPECT_EQ(trace.parent(find(trace, "in crossing")), find(trace, "crossing"));
  EXPECT_EQ(trace.parent(find(trace, "in both")), find(trace, "crossing"));
  EXPECT_EQ(trace.parent(find(trace, "after")), kNone);
  EXPECT_EQ(trace.parent(find(trace, "instant")), find(trace, "after"));
  EXPECT_EQ(trace.first_ns(), 10);
  EXPECT_EQ(trace.last_ns(), 70);
}

TEST(Trace, PutsTheOuterKindOutsideWhenTimesAreEqual) {
  Trace trace;
  const TrackId track = trace.add_track(TrackKind::thread, "thread0");
  for (SpanKind kind : {SpanKind::compute, SpanKind::op, SpanKind::run}) {
    trace.add({.track = track,
               .site = trace.add_site({.name = std::string(to_string(kind)), .kind = kind}),
               .start_ns = 5,
               .duration_ns = 5});
  }
  trace.finish();
  EXPECT_EQ(trace.parent(find(trace, "compute")), find(trace, "op"));
  EXPECT_EQ(trace.parent(find(trace, "op")), find(trace, "run"));
}

TEST(Trace, LinksGpuSpansByCorrelationAndByRun) {
  Trace trace;
  const TrackId gpu = trace.add_track(TrackKind::stream, "stream 7", 0);  // before the thread: order must not matter
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const SiteId run = trace.add_site({.name = "run", .kind = SpanKind::run});
  const SiteId graph = trace.add_site({.name = "graph launch", .kind = SpanKind::launch});
  const SiteId one = trace.add_site({.name = "one", .kind = SpanKind::launch});
  trace.add({.track = host, .site = run, .start_ns = 0, .duration_ns = 10, .run = 3});
  trace.add({.track = host, .site = graph, .start_ns = 2, .duration_ns = 2});  // its run comes from the span around it
  trace.add({.track = host, .site = one, .start_ns = 20, .duration_ns = 2, .correlation = 77});
  trace.add({.track = gpu, .site = trace.add_site({.name = "a"}), .start_ns = 5, .duration_ns = 9, .run = 3});
  trace.add({.track = gpu, .site = trace.add_site({.name = "b"}), .start_ns = 25, .duration_ns = 1, .correlation = 77});
  trace.add({.track = gpu, .site = trace.add_site({.name = "c"}), .start_ns = 27, .duration_ns = 1});
  trace.finish();
  EXPECT_EQ(trace.cause(find(trace, "a")), find(trace, "graph launch"));
  EXPECT_EQ(trace.cause(find(trace, "b")), find(trace, "one"));
  EXPECT_EQ(trace.cause(find(trace, "c")), kNone);
  EXPECT_EQ(trace.run(find(trace, "graph launch")), 3u);
  EXPECT_EQ(trace.runs(), std::vector<SpanId>{find(trace, "run")});
}

TEST(Trace, MatchesTheLaunchesOfAStepByStepRunInOrder) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const TrackId gpu = trace.add_track(TrackKind::stream, "stream 7", 0);
  const auto site = [&](const char* instance, SpanKind kind) {
    return trace.add_site({.op = "mul", .instance = instance, .kind = kind});
  };
  const char* order[] = {"mul0", "mul1", "mul0"};
  for (int i = 0; i < 3; ++i) {
    const SiteId launch = site(order[i], SpanKind::launch), kernel = site(order[i], SpanKind::kernel);
    trace.add({.track = host, .site = launch, .start_ns = 10 * i, .duration_ns = 2, .run = 1});
    trace.add({.track = gpu, .site = kernel, .start_ns = 10 * i + 5, .duration_ns = 2, .run = 1});
  }
  trace.finish();
  int kernels = 0;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i)) continue;
    ++kernels;
    ASSERT_NE(trace.cause(i), kNone);
    EXPECT_EQ(trace.start(trace.cause(i)), trace.start(i) - 5);
  }
  EXPECT_EQ(kernels, 3);
}

TEST(Trace, KeepsBytesOfASpanApartFromItsSites) {
  Trace trace;
  const TrackId track = trace.add_track(TrackKind::thread, "thread0");
  const SiteId site = trace.add_site({.name = "copy", .kind = SpanKind::memcpy, .bytes = 64});
  trace.add({.track = track, .site = site, .start_ns = 5, .duration_ns = 1});
  trace.add({.track = track, .site = site, .start_ns = 1, .duration_ns = 1, .bytes = 1024});
  trace.finish();
  EXPECT_EQ(trace.bytes(0), 1024);
  EXPECT_EQ(trace.bytes(1), 64);
}

// A clock of coarse ticks gives both the same times: the one that is written last is around the other.
TEST(Trace, NestsSpansOfEqualTimesInTheOrderOfTheirEnds) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  for (const char* name : {"inner", "middle", "outer"}) {
    trace.add({.track = host,
               .site = trace.add_site({.name = name, .kind = SpanKind::host}),
               .start_ns = 5,
               .duration_ns = 10});
  }
  trace.finish();
  EXPECT_EQ(trace.name(0), "outer");
  EXPECT_EQ(trace.name(2), "inner");
  EXPECT_EQ(trace.parent(2), 1u);
  EXPECT_EQ(trace.parent(1), 0u);
}

// Trees of spans as threads write them, several at once, and spans in no order at all, held against plain sorting.
TEST(Trace, OfAnyOrderIsSortedByTrackStartAndContainment) {
  std::mt19937 random(4);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 200; ++round) {
    const bool is_nested = round % 3 != 0;
    Trace trace;
    std::vector<Span> spans;
    const std::int64_t tracks = 1 + below(3);
    for (TrackId track = 0; track < tracks; ++track) trace.add_track(TrackKind::thread, "thread");
    const std::array<SiteId, 2> sites{trace.add_site({.name = "run", .kind = SpanKind::run}),
                                      trace.add_site({.name = "op", .kind = SpanKind::op})};
    std::vector<std::int64_t> now(static_cast<std::size_t>(tracks));
    const std::function<void(TrackId, int)> grow = [&](TrackId track, int depth) {
      const std::int64_t start = now[track] += below(2);
      for (std::int64_t inner = depth < 4 ? below(4) : 0; inner > 0; --inner) grow(track, depth + 1);
      const std::int64_t end = now[track] += below(3);
      spans.push_back({.track = track, .site = sites[depth > 0], .start_ns = start, .duration_ns = end - start});
    };
    for (int i = 0; i < 20; ++i) grow(static_cast<TrackId>(below(tracks)), 0);
    if (!is_nested) std::ranges::shuffle(spans, random);
    for (const Span& span : spans) trace.add(span);
    trace.finish();

    std::vector<std::size_t> order(spans.size());
    std::iota(order.begin(), order.end(), 0);
    std::ranges::sort(order, {}, [&](std::size_t i) {
      const Span& s = spans[i];
      return std::tuple(s.track, s.start_ns, -s.duration_ns, s.site, -static_cast<std::int64_t>(i));
    });
    ASSERT_EQ(trace.size(), spans.size());
    for (SpanId i = 0; i < trace.size(); ++i) {
      const Span &is = trace.span(i), &expected = spans[order[i]];
      ASSERT_EQ(std::tuple(is.track, is.start_ns, is.duration_ns, is.site),
                std::tuple(expected.track, expected.start_ns, expected.duration_ns, expected.site))
          << "round " << round << ", span " << i;
    }
  }
}

// Spans are renamed by their order; their arguments and the flows between them go with them, each once.
TEST(Trace, KeepsArgumentsAndFlowsOfSpansThatItSorts) {
  std::mt19937 random(9);
  const auto below = [&](std::size_t n) { return static_cast<std::size_t>(random() % n); };
  for (int round = 0; round < 100; ++round) {
    Trace trace;
    trace.set_window(0, 900);
    const TrackId tracks[] = {trace.add_track(TrackKind::thread, "a"), trace.add_track(TrackKind::stream, "b", 0)};
    const ColumnId numbers = trace.add_column("number", ArgumentType::integer),
                   texts = trace.add_column("text", ArgumentType::text),
                   reals = trace.add_column("real", ArgumentType::real);
    EXPECT_EQ(trace.add_column("number", ArgumentType::integer), numbers);
    EXPECT_NE(trace.add_column("number", ArgumentType::real), numbers);
    // A span is known by its start, which no other has, and carries that.
    std::map<std::int64_t, std::int64_t> expected;
    std::set<std::pair<std::int64_t, std::int64_t>> flows;
    std::vector<std::int64_t> starts(1000), added;
    std::iota(starts.begin(), starts.end(), 0);
    std::ranges::shuffle(starts, random);
    std::map<std::int64_t, SpanId> ids;
    const bool is_rare = round % 2 == 0;  // few of many are put in order in another way
    for (std::size_t i = 0; i < 60; ++i) {
      const bool is_instant = below(3) == 0;
      const SpanId id =
          trace.add({.track = tracks[below(2)],
                     .site = trace.add_site({.name = "n", .kind = is_instant ? SpanKind::instant : SpanKind::host}),
                     .start_ns = starts[i],
                     .duration_ns = static_cast<std::int64_t>(below(200))});
      EXPECT_EQ(id == kNone, starts[i] > 900);
      if (id == kNone) continue;
      ids[starts[i]] = id;
      added.push_back(starts[i]);
      if (is_rare ? below(20) != 0 : below(2) == 0) continue;
      trace.add_argument(id, numbers, std::int64_t{-1});
      trace.add_argument(id, numbers, starts[i]);  // the last counts
      trace.add_argument(id, texts, std::to_string(starts[i]));
      trace.add_argument(id, reals, 0.5 * static_cast<double>(starts[i]));
      expected[starts[i]] = starts[i];
    }
    for (int i = 0; i < (is_rare ? 5 : 80); ++i) {
      const std::int64_t from = added[below(added.size())], to = added[below(added.size())];
      trace.add_flow(ids[from], ids[to]);
      flows.insert({from, to});
    }
    trace.finish();
    std::map<std::int64_t, std::int64_t> seen;
    ArgumentsInOrder arguments(trace);
    for (SpanId i = 0; i < trace.size(); ++i) {
      if (trace.kind(i) == SpanKind::instant) {
        EXPECT_EQ(trace.duration(i), 0);
      }
      int count = 0;
      arguments.for_each(i, [&](const ArgumentColumn& column, std::size_t at) {
        ++count;
        if (column.type == ArgumentType::integer) seen[trace.start(i)] = column.integer(at);
        if (column.type == ArgumentType::text) {
          EXPECT_EQ(trace.text(column.text(at)), std::to_string(trace.start(i)));
        }
        if (column.type == ArgumentType::real) {
          EXPECT_EQ(column.real(at), 0.5 * static_cast<double>(trace.start(i)));
        }
      });
      EXPECT_TRUE(count == 0 || count == 3) << count;
    }
    EXPECT_EQ(seen, expected);
    std::set<std::pair<std::int64_t, std::int64_t>> kept;
    for (const Flow& flow : trace.flows()) kept.insert({trace.start(flow.from), trace.start(flow.to)});
    EXPECT_EQ(kept, flows);
    EXPECT_EQ(trace.flows().size(), flows.size());
  }
}

// Columns of many spans are put in order by two threads.
TEST(Trace, KeepsTheColumnsOfManySpansTogether) {
  std::mt19937 random(21);
  constexpr std::size_t kSpans = 200'000, kTracks = 3;
  Trace trace;
  for (std::size_t i = 0; i < kTracks; ++i) trace.add_track(TrackKind::thread, "t" + std::to_string(i));
  std::vector<SiteId> sites;
  for (int i = 0; i < 7; ++i) sites.push_back(trace.add_site({.name = "s" + std::to_string(i)}));
  std::vector<std::size_t> order(kSpans);
  std::iota(order.begin(), order.end(), 0);
  std::ranges::shuffle(order, random);
  const auto span_of = [&](std::size_t i) {
    return Span{.track = static_cast<TrackId>(i % kTracks),
                .site = sites[i % sites.size()],
                .start_ns = static_cast<std::int64_t>(i * 10),
                .duration_ns = static_cast<std::int64_t>(i % 9),
                .run = static_cast<std::uint32_t>(i % 11 + 1),
                .bytes = static_cast<std::int64_t>(i % 13),
                .flops = static_cast<double>(i % 17)};
  };
  for (const std::size_t i : order) trace.add(span_of(i));
  trace.finish();
  ASSERT_EQ(trace.size(), kSpans);
  SpanId at = 0;
  for (std::size_t track = 0; track < kTracks; ++track) {
    for (std::size_t i = track; i < kSpans; i += kTracks, ++at) {
      const Span expected = span_of(i);
      ASSERT_EQ(std::tuple(trace.track_id(at), trace.start(at), trace.duration(at), trace.site_id(at), trace.run(at)),
                std::tuple(expected.track, expected.start_ns, expected.duration_ns, expected.site, expected.run));
      ASSERT_EQ(trace.bytes(at), expected.bytes);
      ASSERT_EQ(trace.flops(at), expected.flops);
    }
  }
}

// A run reads values that two feeds have brought, one of them by a copy; a feed for the next run is not its.
TEST(Trace, LetsWhatIsFedFlowToTheLaunchOfItsRun) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const auto add = [&](const char* name, SpanKind kind, std::int64_t start, std::int64_t end, std::uint32_t run = 0) {
    trace.add({.track = host,
               .site = trace.add_site({.name = name, .kind = kind}),
               .start_ns = start,
               .duration_ns = end - start,
               .run = run});
  };
  add("small", SpanKind::feed, 0, 5, 3);
  add("large", SpanKind::feed, 6, 20, 3);
  add("copy", SpanKind::memcpy, 8, 15, 90);
  add("run", SpanKind::run, 30, 90, 3);
  add("first launch", SpanKind::launch, 40, 50);
  add("second launch", SpanKind::launch, 60, 70);
  add("next", SpanKind::feed, 71, 72, 4);
  trace.finish();
  const std::vector<Flow> expected{{find(trace, "small"), find(trace, "first launch")},
                                   {find(trace, "copy"), find(trace, "first launch")}};
  EXPECT_EQ(trace.flows(), expected);
}

TEST(Trace, NamesTracksByTheirProcessWhereThereAreSeveral) {
  Trace trace;
  EXPECT_EQ(trace.add_process(7, -1, "train"), 0u);
  const TrackId first = trace.add_track(TrackKind::thread, "thread0");
  EXPECT_EQ(trace.track_name(first), "thread0");
  const ProcessId other = trace.add_process(8, 1, "train");
  EXPECT_EQ(trace.add_process(8, 1, "train"), other);
  EXPECT_EQ(trace.track_name(first), "process 7 thread0");
  EXPECT_EQ(trace.track_name(trace.add_track(TrackKind::stream, "stream 7", 0, other)), "rank 1 stream 7");
}

// Every launch of an instance has its turn, then the last one; of runs whose numbers come in any order.
TEST(Trace, FindsTheCauseOfEveryStepOfManyRuns) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const TrackId gpu = trace.add_track(TrackKind::stream, "stream 7", 0);
  const auto site = [&](std::uint32_t instance, SpanKind kind) {
    return trace.add_site({.op = "mul", .instance = fmt::format("mul{}", instance), .kind = kind});
  };
  std::mt19937 random(6);
  std::vector<std::uint32_t> runs(40);
  std::iota(runs.begin(), runs.end(), 1u);
  std::ranges::shuffle(runs, random);
  std::int64_t now = 0;
  std::map<std::int64_t, std::int64_t> cause_of;  // start of a kernel -> of its launch
  for (const std::uint32_t run : runs) {
    std::map<std::uint32_t, std::vector<std::int64_t>> launched;
    for (int i = 0; i < 12; ++i) {
      const auto instance = static_cast<std::uint32_t>(random() % 3);
      launched[instance].push_back(now += 10);
      trace.add(
          {.track = host, .site = site(instance, SpanKind::launch), .start_ns = now, .duration_ns = 2, .run = run});
    }
    for (auto& [instance, starts] : launched) {
      for (std::size_t k = 0; k < starts.size() + 2; ++k) {  // two more than were launched
        cause_of[now += 10] = starts[std::min(k, starts.size() - 1)];
        trace.add(
            {.track = gpu, .site = site(instance, SpanKind::kernel), .start_ns = now, .duration_ns = 2, .run = run});
      }
    }
  }
  trace.finish();
  std::size_t kernels = 0;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (!trace.on_gpu(i)) continue;
    ++kernels;
    ASSERT_NE(trace.cause(i), kNone);
    EXPECT_EQ(trace.start(trace.cause(i)), cause_of.at(trace.start(i)));
    EXPECT_EQ(trace.run(i), trace.run(trace.cause(i)));
  }
  EXPECT_EQ(kernels, cause_of.size());
}

}  // namespace
}  // namespace paoding::profile
