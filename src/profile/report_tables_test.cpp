// SPDX-License-Identifier: Apache-2.0
// Text, JSON and CSV say the same, to the nanosecond.
#include <fmt/format.h>
#include <gtest/gtest.h>
#include <simdjson.h>

#include <cmath>
#include <map>
#include <random>
#include <sstream>

#include "profile/report.h"

namespace paoding::profile {
namespace {

Trace random_trace(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  Trace trace;
  trace.set_window(0, 10'000'000);
  const TrackId tracks[] = {trace.add_track(TrackKind::thread, "thread0"),
                            trace.add_track(TrackKind::thread, "thread1"),
                            trace.add_track(TrackKind::stream, "stream 7", 0)};
  for (int i = 0; i < 60; ++i) {
    SiteInfo site{.name = fmt::format("name, \"{}\"", below(4)), .kind = static_cast<SpanKind>(below(kSpanKinds))};
    if (below(2) == 0) site.op = "op" + std::to_string(below(3)), site.bytes = 1000, site.flops = 5e6;
    site.copy = static_cast<Copy>(below(6));
    trace.add({.track = tracks[below(3)],
               .site = trace.add_site(site),
               .start_ns = below(9'000'000),
               .duration_ns = below(900'000),
               .run = static_cast<std::uint32_t>(below(4)),
               .correlation = static_cast<std::uint32_t>(below(10))});
  }
  trace.add_note("lost, \"some\"", 3);
  trace.finish();
  return trace;
}

// RFC 4180.
std::vector<std::vector<std::string>> read_csv(const std::string& text) {
  std::vector<std::vector<std::string>> lines(1, {""});
  bool is_quoted = false;
  for (std::size_t i = 0; i < text.size(); ++i) {
    std::string& cell = lines.back().back();
    if (is_quoted && text[i] == '"' && i + 1 < text.size() && text[i + 1] == '"') {
      cell += text[++i];
    } else if (text[i] == '"') {
      is_quoted = !is_quoted;
    } else if (!is_quoted && text[i] == ',') {
      lines.back().emplace_back();
    } else if (!is_quoted && text[i] == '\n') {
      lines.push_back({""});
    } else {
      cell += text[i];
    }
  }
  lines.pop_back();
  return lines;
}

TEST(ReportTables, SayTheSameAsTheText) {
  for (unsigned seed = 0; seed < 40; ++seed) {
    const Trace trace = random_trace(seed);
    const Measures m = measure(trace);
    simdjson::dom::parser parser;
    const simdjson::padded_string json(to_json(m));
    simdjson::dom::element all;
    ASSERT_EQ(parser.parse(json).get(all), simdjson::SUCCESS) << to_json(m);
    const auto csv = read_csv(to_csv(m));
    const std::string text = to_text(m);
    std::map<std::string, std::vector<std::string>> in_csv;  // total_ns by table/of/depth/name
    for (const auto& line : csv) {
      ASSERT_EQ(line.size(), csv[0].size());
      in_csv[fmt::format("{}/{}/{}/{}", line[0], line[1], line[2], line[3])].push_back(line[5]);
    }
    // Each row of the JSON is in the CSV and, in milliseconds, in the text.
    const auto check = [&](const char* table, std::string of, simdjson::dom::element section) {
      for (simdjson::dom::element row : section["rows"]) {
        const std::int64_t total = row["total_ns"];
        const std::string key =
            fmt::format("{}/{}/{}/{}", table, of, std::int64_t(row["depth"]), std::string_view(row["name"]));
        const auto& found = in_csv[key];
        EXPECT_NE(std::find(found.begin(), found.end(), std::to_string(total)), found.end()) << key;
        std::string ms = fmt::format("{:.6f}", static_cast<double>(total) / 1e6);
        ms.erase(ms.find_last_not_of('0') + 1);
        if (ms.ends_with('.')) ms.pop_back();
        EXPECT_NE(text.find(" " + ms + " "), text.npos) << ms << "\n" << text;
      }
    };
    for (simdjson::dom::element section : all["merged"]) check("merged", "", section);
    for (simdjson::dom::element section : all["threads"]) {
      check("thread", std::string(std::string_view(section["thread"])), section);
    }
    for (simdjson::dom::element budget : all["wall_time"]) {
      std::int64_t sum = 0;
      for (const auto& [name, ns] : simdjson::dom::object(budget["parts_ns"])) {
        sum += std::int64_t(ns);
        const std::string key = fmt::format("wall_time/{}//{}", std::string_view(budget["of"]), name);
        ASSERT_EQ(in_csv[key], std::vector<std::string>{std::to_string(std::int64_t(ns))}) << key;
      }
      ASSERT_EQ(sum, trace.wall_ns());
    }
    std::int64_t parts = 0;
    for (const auto& [name, ns] : simdjson::dom::object(all["overhead"])) {
      if (name != "total_ns") parts += std::int64_t(ns);
      const std::string key = fmt::format("overhead///{}", name.substr(0, name.size() - 3));
      ASSERT_EQ(in_csv[key], std::vector<std::string>{std::to_string(std::int64_t(ns))}) << key;
      std::string ms = fmt::format("{:.6f}", static_cast<double>(std::int64_t(ns)) / 1e6);
      ms.erase(ms.find_last_not_of('0') + 1);
      if (ms.ends_with('.')) ms.pop_back();
      const bool is_said = std::int64_t(ns) > 0;
      EXPECT_TRUE(!is_said || text.find(": " + ms) != text.npos) << name << " " << ms << "\n" << text;
    }
    ASSERT_EQ(parts, trace.wall_ns());
  }
}

TEST(ReportTables, CountInstants) {
  Trace trace;
  trace.set_window(1000, 9000);
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const auto add = [&](const char* name, std::int64_t ns) {
    trace.add({.track = host, .site = trace.add_site({.name = name, .kind = SpanKind::instant}), .start_ns = ns});
  };
  add("saved", 7000), add("epoch", 2000), add("epoch", 6500);
  trace.finish();
  const Measures m = measure(trace);
  EXPECT_NE(to_text(m).find("Instant  Calls  First at  Last at\n"
                            "epoch    2      0.001     0.0055\n"
                            "saved    1      0.006     0.006\n"),
            std::string::npos)
      << to_text(m);
  EXPECT_NE(to_csv(m).find("\ninstants,,0,epoch,2,0,0,0,1000,5500,"), std::string::npos) << to_csv(m);
  simdjson::dom::parser parser;
  const simdjson::padded_string json(to_json(m));
  simdjson::dom::element all;
  ASSERT_EQ(parser.parse(json).get(all), simdjson::SUCCESS);
  EXPECT_EQ(std::int64_t(all["instants"].at(0)["count"]), 2);
  EXPECT_EQ(std::int64_t(all["instants"].at(1)["last_ns"]), 6000);
  EXPECT_EQ(m.yours, 8000);  // they take no time
  EXPECT_EQ(m.records.received, 3u);
}

TEST(ReportTables, ShowRatesWhereTheyAreKnown) {
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const SiteId site = trace.add_site({.op = "mul", .kind = SpanKind::op, .bytes = 3000, .flops = 500});
  for (int i = 0; i < 4; ++i) trace.add({.track = host, .site = site, .start_ns = 1000 * i, .duration_ns = 1000});
  trace.finish();
  const std::string text = report(trace, {.rates = true});
  EXPECT_NE(text.find("GB/s  GFLOP/s\n"), text.npos) << text;
  EXPECT_NE(text.find("3     0.5\n"), text.npos) << text;  // 3,000 bytes and 500 operations a microsecond
}

// A kernel that moves 4,000 bytes in 2 us, where memory would have brought them in 1.
TEST(ReportTables, SetRatesOfAGpuAgainstWhatItsMemoryCanDo) {
  Trace trace;
  const TrackId stream = trace.add_track(TrackKind::stream, "stream 1", 0);
  const SiteId site = trace.add_site({.op = "mul", .kind = SpanKind::kernel, .bytes = 4000});
  for (int i = 0; i < 3; ++i) trace.add({.track = stream, .site = site, .start_ns = 2000 * i, .duration_ns = 2000});
  // One that multiplies for 1.5 us at least, and moves its bytes in 1.
  const SiteId product =
      trace.add_site({.op = "matmul", .kind = SpanKind::kernel, .bytes = 4000, .flops = 12000, .unit = Unit::tf32});
  trace.add({.track = stream, .site = product, .start_ns = 6000, .duration_ns = 2000});
  trace.add_limit({0, 4, {0, 1, 2, 8, 16}});
  trace.finish();
  const Measures m = measure(trace);
  const std::string text = to_text(m, {.rates = true}), json = to_json(m);
  EXPECT_NE(text.find("GB/s  GFLOP/s  Of limit  Lost\n"), text.npos) << text;
  EXPECT_NE(text.find("2              50%       0.003000\n"), text.npos) << text;
  EXPECT_NE(text.find("2     6        75%       0.000500\n"), text.npos) << text;
  EXPECT_NE(json.find("\"lost_ns\":3000"), json.npos) << json;
  trace.add_limit({1, 8});  // of several the rows do not say which
  EXPECT_EQ(to_text(measure(trace), {.rates = true}).find("Lost"), std::string::npos);
}

// Two replays of which the ends are known, beside one that was stamped in full.
TEST(ReportTables, ShareOutReplaysAsTheyAreInThoseThatWereStampedInFull) {
  Trace trace;
  const TrackId stream = trace.add_track(TrackKind::stream, "stream 1", 0);
  const SiteId mul = trace.add_site({.op = "mul", .kind = SpanKind::kernel, .bytes = 100});
  const SiteId sum = trace.add_site({.op = "sum", .kind = SpanKind::kernel});
  const SiteId replay = trace.add_site({.name = "graph replay", .instance = "graph0", .kind = SpanKind::replay});
  const SiteId foreign = trace.add_site({.name = "graph replay", .instance = "graph1", .kind = SpanKind::replay});
  trace.add({.track = stream, .site = mul, .start_ns = 0, .duration_ns = 30});
  trace.add({.track = stream, .site = mul, .start_ns = 30, .duration_ns = 30});
  trace.add({.track = stream, .site = sum, .start_ns = 60, .duration_ns = 40});
  trace.add({.track = stream, .site = replay, .start_ns = 100, .duration_ns = 150});
  trace.add({.track = stream, .site = replay, .start_ns = 250, .duration_ns = 50});
  trace.add({.track = stream, .site = foreign, .start_ns = 300, .duration_ns = 7});  // of which nothing is known
  trace.add_part({replay, mul, 2, 60});
  trace.add_part({replay, sum, 1, 40});
  trace.add_part({replay, kNone, 1, 108});
  trace.finish();
  for (const Detail detail : {Detail::op, Detail::phases, Detail::instances}) {
    const Measures m = measure(trace, {.detail = detail});
    EXPECT_EQ(m.computation, 307);
    EXPECT_EQ(m.replays, 4u);
    EXPECT_EQ(m.stamped_replays, 1u);
    EXPECT_DOUBLE_EQ(m.stamps_ns, 8);  // 108 instead of 100
    std::map<std::string, Row> rows;
    for (const Row& row : m.per_thread.at(0).rows) {
      if (row.depth == 0) rows[row.name] = row;
    }
    EXPECT_EQ(rows["mul"].calls, 6u);
    EXPECT_DOUBLE_EQ(rows["mul"].gpu, 60 + 0.6 * 200);
    EXPECT_DOUBLE_EQ(rows["mul"].scaled, 0.6 * 200);
    EXPECT_DOUBLE_EQ(rows["mul"].bytes, 600);
    EXPECT_DOUBLE_EQ(rows["mul"].ratio, (60 + 0.6 * 200) / 307);
    EXPECT_EQ(rows["sum"].calls, 3u);
    EXPECT_DOUBLE_EQ(rows["sum"].gpu, 40 + 0.4 * 200);
    EXPECT_EQ(rows["graph replay"].calls, 1u);
    EXPECT_EQ(rows["graph replay"].scaled, 0);
    EXPECT_NE(to_text(m).find("~6  "), std::string::npos) << to_text(m);
  }
}

}  // namespace
}  // namespace paoding::profile
