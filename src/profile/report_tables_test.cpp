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
    }
    ASSERT_EQ(parts, trace.wall_ns());
  }
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

}  // namespace
}  // namespace paoding::profile
