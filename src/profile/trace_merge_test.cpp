// SPDX-License-Identifier: Apache-2.0
// Recordings of several ranks as one: on whose clock, under which names, and what does not go together.
#include "profile/trace_merge.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <map>
#include <random>
#include <set>

#include "paoding/error.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "profile/timeline.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

struct Rank {
  int pid = 100, rank = 0;
  const char* program = "train";
  const char* host = "boot0 alpha";
  std::int64_t window_start = 0, window_end = 100'000;  // by its own time
  std::vector<SharedClocks> clocks = {{0, 0, 0}, {100'000, 100'000, 100'000}};
};

// Three runs of 100 ns, of which each launches 50 ns on a GPU, at 1,000 times their number by the rank's own time.
Trace trace_of(const Rank& of) {
  Trace trace;
  trace.set_window(of.window_start, of.window_end);
  const ProcessId process = trace.add_process(of.pid, of.rank, of.program);
  for (const SharedClocks& at : of.clocks) trace.add_anchor(process, of.host, at);
  const TrackId host = trace.add_track(TrackKind::thread, "thread0"),
                gpu = trace.add_track(TrackKind::stream, "stream 1", 0);
  const SiteId run = trace.add_site({.name = "run", .kind = SpanKind::run}),
               launch = trace.add_site({.name = "launch", .kind = SpanKind::launch}),
               kernel = trace.add_site({.op = "mul", .kind = SpanKind::kernel});
  const ColumnId of_rank = trace.add_column("of", ArgumentType::integer);
  for (std::uint32_t i = 1; i <= 3; ++i) {
    const std::int64_t at = of.window_start + 1000 * i;
    trace.add({.track = gpu, .site = kernel, .start_ns = at + 40, .duration_ns = 50, .run = i, .correlation = i});
    trace.add({.track = host, .site = run, .start_ns = at, .duration_ns = 100, .run = i});
    const SpanId own =
        trace.add({.track = host, .site = launch, .start_ns = at + 10, .duration_ns = 20, .run = i, .correlation = i});
    trace.add_argument(own, of_rank, std::int64_t{of.rank});
  }
  trace.add_memory({0, "program of y", "arena", false, 1000 * (of.rank + 1)});
  trace.add_sample({trace.add_counter(0, "arenas"), of.window_start, 1000 * (of.rank + 1)});
  trace.add_note("something", 0);
  trace.finish();
  return trace;
}

Trace merged(const std::vector<Rank>& ranks) {
  std::vector<NamedTrace> all;
  for (const Rank& rank : ranks) {
    all.push_back({"f" + std::to_string(rank.rank) + ".paoding", trace_of(rank)});
  }
  return merge(std::move(all));
}

std::vector<std::int64_t> starts_of(const Trace& trace, ProcessId process, SpanKind kind) {
  std::vector<std::int64_t> starts;
  for (SpanId i = 0; i < trace.size(); ++i) {
    if (trace.track(i).process == process && trace.kind(i) == kind) starts.push_back(trace.start(i));
  }
  return starts;
}

using Times = std::vector<std::int64_t>;

// The system's clock is 7,000 ahead of rank 0's; of rank 1's, which runs at half its speed at first and then as fast,
// 50,000 at its beginning.
TEST(Merge, SetsProcessesOfAMachineOnItsClock) {
  const Rank zero{.pid = 7, .clocks = {{0, 7000, 1'007'000}, {100'000, 107'000, 1'107'000}}};
  const Rank one{.pid = 8, .rank = 1, .clocks = {{0, 50'000, 900'000}, {2000, 54'000, 0}, {100'000, 152'000, 5}}};
  for (const std::vector<Rank>& ranks : {std::vector{zero, one}, std::vector{one, zero}}) {
    const Trace all = merged(ranks);
    EXPECT_EQ(all.process_name(0), "rank 0");
    EXPECT_EQ(all.process_name(1), "rank 1");
    EXPECT_EQ(starts_of(all, 0, SpanKind::run), (Times{8000, 9000, 10'000}));
    EXPECT_EQ(starts_of(all, 1, SpanKind::run), (Times{52'000, 54'000, 55'000}));
    EXPECT_EQ(starts_of(all, 1, SpanKind::kernel), (Times{52'080, 54'040, 55'040}));
    EXPECT_EQ(all.window_start(), 7000);
    EXPECT_EQ(all.window_end(), 152'000);
    for (const Note& note : all.notes()) EXPECT_TRUE(note.text.ends_with(" something")) << note.text;
  }
}

TEST(Merge, SetsMachinesBesideEachOtherByTheirWallClocks) {
  const Rank zero{.pid = 7, .clocks = {{0, 1000, 1'000'000}, {100'000, 101'000, 1'100'000}}};
  // Another machine, which began at another time; somebody has set its wall clock by 2 ms meanwhile.
  const Rank one{.pid = 7,
                 .rank = 1,
                 .host = "boot1 beta",
                 .clocks = {{0, 77'000'000, 1'000'500}, {100'000, 77'100'000, 3'100'500}}};
  const Trace all = merged({zero, one});
  EXPECT_EQ(starts_of(all, 0, SpanKind::run), (Times{2000, 3000, 4000}));
  EXPECT_EQ(starts_of(all, 1, SpanKind::run), (Times{2500, 3500, 4500}));
  std::vector<std::pair<std::string, std::uint64_t>> said;
  for (const Note& note : all.notes()) said.emplace_back(note.text, note.count);
  EXPECT_EQ(said, (std::vector<std::pair<std::string, std::uint64_t>>{
                      {"rank 0 something", 0},
                      {"rank 1 something", 0},
                      {"machines, whose times are set beside each other by their wall clocks", 2},
                      {"ms by which the wall clock of beta was set meanwhile", 2}}));
}

TEST(Merge, KeepsWhatIsOfEachRankApart) {
  const Rank zero{.pid = 7}, one{.pid = 8, .rank = 1, .clocks = {{0, 50'000, 50'000}, {100'000, 150'000, 150'000}}};
  const Trace all = merged({zero, one});
  ASSERT_EQ(all.size(), 18u);
  std::set<std::uint32_t> runs;
  ArgumentsInOrder arguments(all);
  for (SpanId i = 0; i < all.size(); ++i) {
    runs.insert(all.run(i));
    const ProcessId own = all.track(i).process;
    if (all.kind(i) == SpanKind::kernel) {
      ASSERT_NE(all.cause(i), kNone);
      EXPECT_EQ(all.track(all.cause(i)).process, own);
      EXPECT_EQ(all.start(i) - all.start(all.cause(i)), 30);
      EXPECT_EQ(all.run(i), all.run(all.cause(i)));
    }
    if (all.kind(i) == SpanKind::launch) {
      EXPECT_EQ(all.kind(all.parent(i)), SpanKind::run);
    }
    int said = 0;
    arguments.for_each(i, [&](const ArgumentColumn& column, std::size_t at) {
      ++said;
      EXPECT_EQ(column.integer(at), own);
    });
    EXPECT_EQ(said, all.kind(i) == SpanKind::launch ? 1 : 0);
  }
  EXPECT_EQ(runs.size(), 6u);

  const Measures m = measure(all);
  EXPECT_EQ(m.wall, 150'000);
  EXPECT_EQ(m.runs, 6u);
  std::map<std::string, std::map<std::string, std::int64_t>> parts;
  for (const Budget& budget : m.budgets) {
    std::int64_t sum = 0;
    for (const BudgetPart& part : budget.parts) {
      sum += part.ns;
      parts[budget.of][std::string(part.name)] += part.ns;
    }
    EXPECT_EQ(sum, 150'000) << budget.of;
  }
  // Nobody knows of a rank what it did while others only were recorded.
  using Parts = std::map<std::string, std::int64_t>;
  const std::string unseen(to_string(HostUse::unseen));
  for (const char* of : {"rank 0 thread0", "rank 1 thread0"}) {
    EXPECT_EQ(parts[of], (Parts{{"run, between ops", 240}, {"launch", 60}, {"your code", 99'700}, {unseen, 50'000}}));
  }
  EXPECT_EQ(parts["rank 0 GPU 0"]["kernels"], 150);
  EXPECT_EQ(parts["rank 1 GPU 0"]["kernels"], 150);
  EXPECT_EQ(parts["rank 1 GPU 0"]["idle: not seen"], 50'000);
  std::map<std::string, std::int64_t> held;
  for (const HeldOverTime& one_of : m.held) held[one_of.process + one_of.what] = one_of.at_end;
  EXPECT_EQ(held, (Parts{{"rank 0", 1000}, {"rank 0arenas", 1000}, {"rank 1", 2000}, {"rank 1arenas", 2000}}));
  const std::string text = to_text(m);
  for (const char* part : {"rank 0 thread0::", "rank 1 thread0::", "GPU 0, rank 1 program of y", "rank 1 GPU 0"}) {
    EXPECT_NE(text.find(part), std::string::npos) << part << "\n" << text;
  }
}

TEST(Merge, IsOneTimelineAndOneFile) {
  const Rank zero{.pid = 7}, one{.pid = 8, .rank = 1, .clocks = {{0, 300, 300}, {100'000, 100'300, 100'300}}};
  const Trace all = merged({zero, one});
  simdjson::dom::parser parser;
  const simdjson::padded_string json(timeline_json(all));
  simdjson::dom::element line;
  ASSERT_EQ(parser.parse(json).get(line), simdjson::SUCCESS);
  std::map<std::int64_t, std::string> places;
  std::map<std::string, std::vector<double>> runs;
  for (const simdjson::dom::element event : simdjson::dom::array(line["traceEvents"])) {
    if (std::string_view(event["name"]) == "process_name") {
      places[std::int64_t(event["pid"])] = std::string_view(event["args"]["name"]);
    } else if (std::string_view(event["ph"]) == "X" && std::string_view(event["name"]) == "run") {
      runs[places.at(std::int64_t(event["pid"]))].push_back(double(event["ts"]));
    }
  }
  std::set<std::string> names;
  for (const auto& [pid, name] : places) names.insert(name);
  EXPECT_EQ(names, (std::set<std::string>{"rank 0 host", "rank 0 GPU 0", "rank 1 host", "rank 1 GPU 0"}));
  EXPECT_EQ(runs["rank 0 host"], (std::vector<double>{1, 2, 3}));
  EXPECT_EQ(runs["rank 1 host"], (std::vector<double>{1.3, 2.3, 3.3}));

  const TemporaryFolder folder;
  const std::string path = (folder / "all.paoding").string();
  write_recording(all, path);
  const Trace read = read_recording(path);
  EXPECT_EQ(report(read), report(all));
  EXPECT_EQ(timeline_json(read), timeline_json(all));
}

void expect_refused(const std::vector<Rank>& ranks, const std::string& problem) {
  try {
    merged(ranks);
    FAIL() << "no error with: " << problem;
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    EXPECT_EQ(std::string(error.what()), problem);
  }
}

TEST(Merge, RefusesWhatDoesNotGoTogether) {
  const Rank zero{.pid = 7}, one{.pid = 8, .rank = 1};
  Rank other = one;
  other.program = "evaluate";
  expect_refused({zero, other},
                 "f0.paoding is of the program 'train', f1.paoding of 'evaluate': only recordings of one "
                 "program go together");
  other = zero;
  other.pid = 9;
  expect_refused({zero, other},
                 "f0.paoding and f0.paoding are both of rank 0: only recordings of different ranks go "
                 "together");
  other = one;
  other.pid = 7;
  expect_refused({zero, other}, "f0.paoding and f1.paoding are both of process 7");
  Rank alone{.pid = 7, .rank = -1}, far{.pid = 7, .rank = -1, .host = "boot1 beta"};
  expect_refused({alone, far},
                 "f-1.paoding and f-1.paoding are both of process 7 of their machines and have no ranks "
                 "that tell them apart");
  other = one;
  other.clocks.clear();
  expect_refused({zero, other},
                 "f1.paoding: it does not say of which process and by which clock it is (files of before "
                 "version 3 do not), without which it cannot be set beside others");
  const std::int64_t large = (std::int64_t{1} << 61) - 1;
  for (const std::vector<SharedClocks>& clocks : {std::vector<SharedClocks>{{0, -1, 0}},
                                                  {{0, large, 0}},
                                                  {{0, 0, -1}},
                                                  {{large, 0, 0}},
                                                  {{-large, 0, 0}},
                                                  {{0, 0, 0}, {1, 3, 0}},
                                                  {{0, 5, 0}, {10, 4, 0}},
                                                  {{5, 0, 0}, {5, 1, 0}}}) {
    other = one;
    other.clocks = clocks;
    expect_refused({zero, other}, "f1.paoding: its clocks contradict each other");
  }
  std::vector<NamedTrace> again;
  again.push_back({"both.paoding", merged({zero, one})});
  again.push_back({"two.paoding", trace_of({.pid = 9, .rank = 2})});
  try {
    merge(std::move(again));
    FAIL() << "no error";
  } catch (const Error& error) {
    EXPECT_EQ(std::string(error.what()),
              "both.paoding: it is of 2 processes already, needs to be of one to be set beside others");
  }
}

// Whatever is in them: nothing is lost, and nothing comes before what it came behind.
TEST(Merge, OfAnyTracesKeepsTheirOrder) {
  std::mt19937 random(3);
  const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
  for (int round = 0; round < 100; ++round) {
    std::vector<NamedTrace> parts;
    const int ranks = 2 + static_cast<int>(below(3));
    for (int rank = 0; rank < ranks; ++rank) {
      Trace trace;
      trace.set_window(0, 10'000);
      trace.add_process(50 + rank, rank, "p");
      SharedClocks at{.ns = below(5) - 2, .system_ns = below(1000), .wall_ns = 1000 + below(1000)};
      for (std::int64_t count = below(5); count >= 0; --count) {
        trace.add_anchor(0, rank == 0 ? "a x" : "b y", at);
        const std::int64_t on = 1 + below(4000);
        at = {at.ns + on, at.system_ns + on * below(5) / 4, at.wall_ns + on};
      }
      const TrackId track = trace.add_track(TrackKind::thread, "t");
      const ColumnId column = trace.add_column("start", ArgumentType::integer);
      for (int i = 0; i < 50; ++i) {
        const std::int64_t start = below(9000), length = below(1000);
        const SpanId id =
            trace.add({.track = track,
                       .site = trace.add_site({.op = "op" + std::to_string(below(3)), .kind = SpanKind::op}),
                       .start_ns = start,
                       .duration_ns = length});
        trace.add_argument(id, column, start);
      }
      trace.finish();
      parts.push_back({"r" + std::to_string(rank), std::move(trace)});
    }
    const Trace all = merge(std::move(parts));
    ASSERT_EQ(all.size(), 50u * static_cast<unsigned>(ranks));
    std::vector<std::vector<std::pair<std::int64_t, std::int64_t>>> moved(static_cast<std::size_t>(ranks));
    ArgumentsInOrder arguments(all);
    for (SpanId i = 0; i < all.size(); ++i) {
      const ProcessId own = all.track(i).process;
      arguments.for_each(i, [&](const ArgumentColumn& column, std::size_t at) {
        moved[own].emplace_back(column.integer(at), all.start(i));
      });
      ASSERT_GE(all.duration(i), 0);
      ASSERT_GE(all.start(i), all.window_of(own).start);
      ASSERT_LE(all.end(i), all.window_of(own).end);
    }
    for (auto& of : moved) {
      ASSERT_EQ(of.size(), 50u);
      std::ranges::sort(of);
      ASSERT_TRUE(std::ranges::is_sorted(of, {}, [](const auto& pair) { return pair.second; }));
    }
    for (const Budget& budget : measure(all).budgets) {
      std::int64_t sum = 0;
      for (const BudgetPart& part : budget.parts) sum += part.ns;
      ASSERT_EQ(sum, all.wall_ns()) << budget.of;
    }
  }
}

// Files whose chunks are sound one by one: an error, or a report that adds up.
TEST(Merge, OfWhateverFilesSayIsAnErrorOrAddsUp) {
  std::mt19937_64 random(11);
  const auto any = [&]() -> std::int64_t {  // of any size, near 0 and near the largest that is read
    const auto value = static_cast<std::int64_t>(random() >> (3 + random() % 60));
    return random() % 4 == 0 ? -value : value;
  };
  int refused = 0, together = 0;
  for (int round = 0; round < 4000; ++round) {
    std::string file;
    RecordingWriter writer([&](std::string_view bytes) { file += bytes; });
    const bool is_wild = round % 2 == 0;
    const std::int64_t start = is_wild ? any() : static_cast<std::int64_t>(random() % 1000);
    writer.window(start, is_wild ? any() : start + 10'000);
    writer.process(5, 1, "train");
    SharedClocks at{start, static_cast<std::int64_t>(random() % 100'000), any()};
    for (int i = 0; i < 3; ++i) {
      writer.anchor(0, "boot0 alpha", at);
      const std::int64_t on = is_wild ? any() : 1 + static_cast<std::int64_t>(random() % 5000);
      at = {at.ns + on, at.system_ns + (is_wild ? any() : on * static_cast<std::int64_t>(random() % 3)), any()};
    }
    StoredSpan span{.site = writer.site({.op = "mul", .kind = SpanKind::op}),
                    .run = static_cast<std::uint32_t>(random()),
                    .correlation = static_cast<std::uint32_t>(random()),
                    .start = static_cast<std::uint64_t>(start + static_cast<std::int64_t>(random() % 9000))};
    span.end = span.start + random() % 1000;
    writer.spans(writer.track(TrackKind::thread, "thread0", -1), StoredClock::nanoseconds, {&span, 1});
    writer.finish();
    std::vector<NamedTrace> both;
    both.push_back({"wild.paoding", read_recording_text(file, "wild.paoding")});
    both.push_back({"sound.paoding", trace_of({})});
    try {
      const Trace all = merge(std::move(both));
      ++together;
      for (const Budget& budget : measure(all).budgets) {
        std::int64_t sum = 0;
        for (const BudgetPart& part : budget.parts) sum += part.ns;
        ASSERT_EQ(sum, all.wall_ns()) << round;
      }
    } catch (const Error& error) {
      ++refused;
      ASSERT_EQ(error.kind(), ErrorKind::argument) << error.what();
      ASSERT_EQ(std::string(error.what()).substr(0, 14), "wild.paoding: ") << error.what();
    }
  }
  EXPECT_GT(refused, 500);
  EXPECT_GT(together, 500);
}

}  // namespace
}  // namespace paoding::profile
