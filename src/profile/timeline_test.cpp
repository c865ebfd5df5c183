// SPDX-License-Identifier: Apache-2.0
// The timeline: read back with another JSON parser.
#include "profile/timeline.h"

#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>
#include <map>
#include <set>
#include <tuple>

#include "paoding/error.h"

namespace paoding::profile {
namespace {

TEST(Timeline, IsJsonWithExactTimesNamesAndArrows) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const TrackId gpu = trace.add_track(TrackKind::stream, "stream 7", 0);
  const std::string awkward = "a \"quoted\\ name\"\n\x01 \xc3\xa9 \xff\xe0\x80\x80";
  trace.add({.track = host,
             .site = trace.add_site({.name = awkward, .kind = SpanKind::launch}),
             .start_ns = 1'000'000'000'001,
             .duration_ns = 1'234'567,
             .correlation = 1});
  trace.add({.track = gpu,
             .site = trace.add_site(
                 {.name = "k", .op = "mul", .kind = SpanKind::kernel, .members = {{"mul", 1}, {"add", 2}}}),
             .start_ns = 1'000'000'005'006,
             .duration_ns = 40,
             .correlation = 1});
  trace.add_note("lost \"some\"", 3);
  const CounterId arenas = trace.add_counter(0, "arenas");
  trace.add_sample({arenas, 1'000'000'000'001, 4096});
  trace.add_sample({arenas, 1'000'000'002'003, 8192});
  trace.finish();
  const std::string text = timeline_json(trace);

  simdjson::dom::parser parser;
  simdjson::dom::element doc;
  ASSERT_EQ(parser.parse(text).get(doc), simdjson::SUCCESS) << text;
  EXPECT_NE(text.find("\"ts\":5.005,"), std::string::npos) << text;
  EXPECT_NE(text.find("\"dur\":1234.567,"), std::string::npos) << text;
  std::map<std::string, int> kinds;
  std::vector<std::tuple<std::string, double, std::int64_t>> counted;
  for (simdjson::dom::element event : doc["traceEvents"]) {
    const std::string ph{std::string_view(event["ph"])};
    kinds[ph] += 1;
    if (ph == "X" && std::string_view(event["cat"]) == "launch") {
      EXPECT_EQ(std::string_view(event["name"]),
                "a \"quoted\\ name\"\n\x01 \xc3\xa9 \xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd\xef\xbf\xbd");
    }
    if (ph == "C") {
      EXPECT_EQ(int64_t(event["pid"]), 1);
      counted.emplace_back(std::string_view(event["name"]), double(event["ts"]), int64_t(event["args"]["bytes"]));
    }
    if (ph == "s") {
      EXPECT_EQ(double(event["ts"]), 0.0);
    }
    if (ph == "f") {
      EXPECT_EQ(double(event["ts"]), 5.005);
      EXPECT_EQ(int64_t(event["pid"]), 1);
    }
  }
  EXPECT_EQ(kinds["X"], 2);
  EXPECT_EQ(kinds["s"], 1);
  EXPECT_EQ(kinds["f"], 1);
  EXPECT_EQ(kinds["M"], 4);  // two processes, two rows
  const std::vector<std::tuple<std::string, double, std::int64_t>> held{
      {"memory: arenas", 0, 4096}, {"memory: arenas", 2.002, 8192}, {"memory: arenas", 1234.567, 8192}};
  EXPECT_EQ(counted, held);  // where it changes, and at the end
  EXPECT_EQ(int64_t(doc["otherData"]["notSeen"].at(0)["count"]), 3);
}

TEST(Timeline, PutsCrossingSpansOnRowsOfTheirOwn) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const SiteId site = trace.add_site({.name = "x"});
  for (const auto& [start, end] : {std::pair{0, 10}, {2, 8}, {5, 15}, {12, 20}, {21, 22}}) {
    trace.add({.track = host, .site = site, .start_ns = start, .duration_ns = end - start});
  }
  trace.finish();
  simdjson::dom::parser parser;
  simdjson::dom::element doc;
  ASSERT_EQ(parser.parse(timeline_json(trace)).get(doc), simdjson::SUCCESS);
  std::map<int64_t, std::vector<std::pair<double, double>>> rows;
  for (simdjson::dom::element event : doc["traceEvents"]) {
    if (std::string_view(event["ph"]) != "X") continue;
    const double start = event["ts"], duration = event["dur"];
    rows[int64_t(event["tid"])].push_back({start, start + duration});
  }
  EXPECT_EQ(rows.size(), 2u);
  for (const auto& [tid, spans] : rows) {
    for (const auto& a : spans) {
      for (const auto& b : spans) {
        const bool crossing = a.first < b.first && b.first < a.second && a.second < b.second;
        EXPECT_FALSE(crossing) << tid;
      }
    }
  }
}

TEST(Timeline, ShowsInstantsArgumentsFlowsAndProcesses) {
  Trace trace;
  trace.add_process(11, 0, "train");
  const ProcessId second = trace.add_process(12, 1, "train");
  const TrackId host = trace.add_track(TrackKind::thread, "thread0"),
                other = trace.add_track(TrackKind::thread, "thread0", -1, second),
                gpu = trace.add_track(TrackKind::stream, "stream 7", 0, second);
  const SiteId work = trace.add_site({.name = "work"});
  trace.add({.track = host, .site = work, .start_ns = 1000, .duration_ns = 5000});
  trace.add({.track = other, .site = work, .start_ns = 2000, .duration_ns = 5000});
  trace.add({.track = gpu, .site = work, .start_ns = 8000, .duration_ns = 1000});
  trace.add({.track = host, .site = trace.add_site({.name = "epoch", .kind = SpanKind::instant}), .start_ns = 3000});
  for (const auto& [from, to] : {std::pair{0, 2}, {1, 2}, {0, 1}}) {
    trace.add_flow(static_cast<SpanId>(from), static_cast<SpanId>(to));
  }
  trace.add_argument(2, trace.add_column("registers", ArgumentType::integer), std::int64_t{40});
  trace.add_argument(2, trace.add_column("share", ArgumentType::real), 0.25);
  trace.add_argument(3, trace.add_column("share", ArgumentType::real), std::nan(""));
  trace.add_argument(3, trace.add_column("file", ArgumentType::text), "a \"b\"");
  trace.finish();
  simdjson::dom::parser parser;
  simdjson::dom::element doc;
  ASSERT_EQ(parser.parse(timeline_json(trace)).get(doc), simdjson::SUCCESS) << timeline_json(trace);
  std::map<std::int64_t, std::string> processes;
  std::map<std::int64_t, std::pair<double, double>> flows;  // by number: from when to when
  int instants = 0;
  for (simdjson::dom::element event : doc["traceEvents"]) {
    const std::string_view ph = event["ph"], name = event["name"];
    if (name == "process_name") {
      EXPECT_TRUE(processes.emplace(event["pid"], std::string_view(event["args"]["name"])).second);
    }
    if (ph == "s") flows[std::int64_t(event["id"])].first = double(event["ts"]);
    if (ph == "f") flows[std::int64_t(event["id"])].second = double(event["ts"]);
    if (ph == "i") {
      ++instants;
      EXPECT_EQ(name, "epoch");
      EXPECT_EQ(double(event["ts"]), 2.0);
      EXPECT_EQ(std::string_view(event["s"]), "t");
      EXPECT_EQ(std::string_view(event["args"]["file"]), "a \"b\"");
      EXPECT_EQ(std::string_view(event["args"]["share"]), "nan");
    }
    if (ph == "X" && double(event["ts"]) == 7.0) {
      EXPECT_EQ(std::int64_t(event["args"]["registers"]), 40);
      EXPECT_EQ(double(event["args"]["share"]), 0.25);
    }
  }
  EXPECT_EQ(instants, 1);
  std::vector<std::string> names;
  for (const auto& [pid, name] : processes) names.push_back(name);
  EXPECT_EQ(names, (std::vector<std::string>{"rank 0 host", "rank 1 host", "rank 1 GPU 0"}));
  std::multiset<std::pair<double, double>> between;
  for (const auto& [id, times] : flows) between.insert(times);
  EXPECT_EQ(between, (std::multiset<std::pair<double, double>>{{0, 1}, {0, 7}, {1, 7}}));
}

TEST(Timeline, OfNothingIsStillJson) {
  Trace trace;
  trace.finish();
  simdjson::dom::parser parser;
  simdjson::dom::element doc;
  EXPECT_EQ(parser.parse(timeline_json(trace)).get(doc), simdjson::SUCCESS);
}

TEST(Timeline, SaysWhichFileCannotBeWritten) {
  Trace trace;
  trace.finish();
  try {
    write_timeline(trace, "/no/such/folder/t.json");
    FAIL();
  } catch (const Error& e) {
    EXPECT_EQ(e.kind(), ErrorKind::file);
    EXPECT_NE(std::string(e.what()).find("/no/such/folder/t.json"), std::string::npos);
  }
}

}  // namespace
}  // namespace paoding::profile
