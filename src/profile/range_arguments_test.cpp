// SPDX-License-Identifier: Apache-2.0
// Arguments of a user's range: from set() to trace, file, timeline and report.
#include <gtest/gtest.h>
#include <simdjson.h>

#include <algorithm>
#include <cmath>
#include <fstream>
#include <limits>
#include <map>
#include <optional>
#include <thread>

#include "paoding/profile.h"
#include "profile/recorder.h"
#include "profile/recording.h"
#include "profile/report.h"
#include "profile/timeline.h"
#include "tests/support/temporary_folder.h"

namespace paoding::profile {
namespace {

using ArgumentTexts = std::map<std::string, std::string>;

// Of every range of that name in order, as text.
std::vector<ArgumentTexts> arguments_of(const Trace& trace, std::string_view range) {
  std::vector<ArgumentTexts> all;
  ArgumentsInOrder arguments(trace);
  for (SpanId i = 0; i < trace.size(); ++i) {
    ArgumentTexts own;
    arguments.for_each(i, [&](const ArgumentColumn& column, std::size_t at) {
      const std::string name(trace.text(column.name));
      switch (column.type) {
        case ArgumentType::integer: own[name] = std::to_string(column.integer(at)); break;
        case ArgumentType::real: own[name] = std::to_string(column.real(at)); break;
        case ArgumentType::text: own[name] = trace.text(column.text(at)); break;
      }
    });
    if (trace.kind(i) == SpanKind::range && trace.name(i) == range) {
      all.push_back(std::move(own));
    } else {
      EXPECT_TRUE(own.empty() || trace.kind(i) == SpanKind::range) << trace.name(i);
    }
  }
  return all;
}

TEST(RangeArguments, AreThoseOfTheirRange) {
  Profiler seen(State::cpu);
  {
    ProfileRange outer("outer");
    outer.set("rows", 3).set("share", 0.5f).set("file", "a.txt");
    {
      ProfileRange inner("inner");
      inner.set("rows", std::uint8_t{7});
      ProfileRange("inner").set("last", true);
    }
    outer.set("rows", -4).set("share", "all of it");  // known better
  }
  { const ProfileRange none("none"); }
  seen.end();
  EXPECT_EQ(arguments_of(seen.trace(), "outer"),
            (std::vector<ArgumentTexts>{{{"rows", "-4"}, {"share", "all of it"}, {"file", "a.txt"}}}));
  EXPECT_EQ(arguments_of(seen.trace(), "inner"), (std::vector<ArgumentTexts>{{{"rows", "7"}}, {{"last", "1"}}}));
  EXPECT_EQ(arguments_of(seen.trace(), "none"), (std::vector<ArgumentTexts>{{}}));
}

TEST(RangeArguments, AreNotKeptWhileNothingIsRecorded) {
  ProfileRange before("half");
  before.set("rows", 1);
  EXPECT_FALSE(before.is_recorded());
  Profiler seen(State::cpu);
  {
    ProfileRange during("half");
    EXPECT_TRUE(during.is_recorded());
  }
  before.set("rows", 2);
  seen.end();
  EXPECT_EQ(arguments_of(seen.trace(), "half"), (std::vector<ArgumentTexts>{{}}));
}

// Which has its beginning without them: what a range is about is known at its end.
TEST(RangeArguments, AreOfTheRecordingThatTheRangeEndsIn) {
  Profiler first(State::cpu);
  std::optional<ProfileRange> range("long");
  range->set("file", "b.txt").set("rows", 5);
  first.end();
  EXPECT_EQ(arguments_of(first.trace(), "long"), (std::vector<ArgumentTexts>{{}}));  // cut: still under way
  Profiler second(State::cpu);
  range.reset();
  { ProfileRange("short").set("rows", 6); }
  second.end();
  EXPECT_EQ(arguments_of(second.trace(), "long"), (std::vector<ArgumentTexts>{{{"file", "b.txt"}, {"rows", "5"}}}));
  EXPECT_EQ(arguments_of(second.trace(), "short"), (std::vector<ArgumentTexts>{{{"rows", "6"}}}));
}

// More than a chunk has room for, by several threads, in memory and through a file.
TEST(RangeArguments, AreInTheFileThatARecordingGoesTo) {
  constexpr int kThreads = 3, kRanges = 9000;
  const TemporaryFolder folder;
  for (const bool has_file : {false, true}) {
    RecorderOptions options{.state = State::cpu};
    if (has_file) options.file = (folder.path() / "ranges.paoding").string();
    Recorder::start(options);
    std::vector<std::thread> threads;
    for (int t = 0; t < kThreads; ++t) {
      threads.emplace_back([t] {
        for (int i = 0; i < kRanges; ++i) {
          ProfileRange range("r" + std::to_string(t));
          range.set("i", i);
          if (i % 3 == 0) range.set("text", std::to_string(i % 30));
        }
      });
    }
    for (std::thread& thread : threads) thread.join();
    const Trace trace = Recorder::stop();
    for (int t = 0; t < kThreads; ++t) {
      const std::vector<ArgumentTexts> all = arguments_of(trace, "r" + std::to_string(t));
      ASSERT_EQ(all.size(), std::size_t{kRanges});
      for (int i = 0; i < kRanges; ++i) {
        ArgumentTexts wanted{{"i", std::to_string(i)}};
        if (i % 3 == 0) wanted["text"] = std::to_string(i % 30);
        ASSERT_EQ(all[static_cast<std::size_t>(i)], wanted) << t << " " << i;
      }
    }
    if (!has_file) continue;
    const Trace read = read_recording(options.file);
    EXPECT_EQ(arguments_of(read, "r1"), arguments_of(trace, "r1"));
  }
}

TEST(RangeArguments, WhoseTextIsTooMuchAreCountedAsLeftOut) {
  Profiler seen(State::cpu);
  const std::string large(std::size_t{1} << 20, 'x');
  constexpr int kRanges = 20;
  for (int i = 0; i < kRanges; ++i) ProfileRange("large").set("text", large + std::to_string(i)).set("i", i);
  seen.end();
  std::size_t kept = 0;
  for (const ArgumentTexts& own : arguments_of(seen.trace(), "large")) {
    kept += own.contains("text");
    EXPECT_TRUE(own.contains("i"));
  }
  EXPECT_EQ(kept, 15u);  // of 16 MB, with what the table takes itself
  ASSERT_EQ(seen.trace().notes().size(), 1u);
  EXPECT_EQ(seen.trace().notes()[0].count, kRanges - kept);
}

TEST(RangeArguments, AreShownInTimelines) {
  Profiler seen(State::cpu);
  ProfileRange("batch").set("rows", 32).set("run", 7).set("file", "a \"b\"").set("none", std::nan(""));
  seen.end();
  simdjson::dom::parser parser;
  const simdjson::padded_string json(timeline_json(seen.trace()));
  simdjson::dom::element all;
  ASSERT_EQ(parser.parse(json).get(all), simdjson::SUCCESS);
  int found = 0;
  for (const simdjson::dom::element event : simdjson::dom::array(all["traceEvents"])) {
    if (std::string_view(event["name"]) != "batch") continue;
    ++found;
    EXPECT_EQ(std::int64_t(event["args"]["rows"]), 32);
    EXPECT_EQ(std::int64_t(event["args"]["run"]), 0);  // every span has one
    EXPECT_EQ(std::int64_t(event["args"]["argument run"]), 7);
    EXPECT_EQ(std::string_view(event["args"]["file"]), "a \"b\"");
    EXPECT_EQ(std::string_view(event["args"]["none"]), "nan");
  }
  EXPECT_EQ(found, 1);
  const TemporaryFolder folder;
  const std::string path = (folder.path() / "line.pftrace").string();
  write_timeline(seen.trace(), path);
  std::ifstream file(path, std::ios::binary);
  const std::string bytes{std::istreambuf_iterator<char>(file), {}};
  for (const char* text : {"rows", "argument run", "a \"b\""}) EXPECT_NE(bytes.find(text), std::string::npos) << text;
}

TEST(RangeArguments, AreSummedUpInReports) {
  Profiler seen(State::cpu);
  const std::pair<int, const char*> kRead[] = {{32, "a"}, {7, "b"}, {32, "a"}};
  for (const auto& [rows, file] : kRead) ProfileRange("read").set("rows", rows).set("file", file);
  ProfileRange("step").set("loss", 0.25);
  ProfileRange("step").set("loss", std::numeric_limits<double>::infinity());
  seen.end();
  const Measures m = measure(seen.trace());
  const std::string text = to_text(m);
  EXPECT_NE(text.find("Range  Argument  Calls  Min.         Max.  Ave.              Total\n"
                      "read   file      3      2 different\n"
                      "       rows      3      7            32    23.6666666666667  71\n"
                      "step   loss      2      0.25         0.25  0.25              0.25\n"),
            std::string::npos)
      << text;
  const std::string csv = to_csv(m);
  for (const char* line : {"\nrange_arguments,read,,rows total,3,,,,,,,,,,,,,71\n",
                           "\nrange_arguments,read,,file values,3,,,,,,,,,,,,,2\n",
                           "\nrange_arguments,step,,loss values,2,,,,,,,,,,,,,1\n"}) {
    EXPECT_NE(csv.find(line), std::string::npos) << line << csv;
  }
  // Every line has the columns that the first names.
  const auto commas = [&](std::size_t from) {
    return std::count(csv.begin() + static_cast<std::ptrdiff_t>(from),
                      csv.begin() + static_cast<std::ptrdiff_t>(csv.find('\n', from)), ',');
  };
  for (std::size_t at = 0; at < csv.size(); at = csv.find('\n', at) + 1)
    EXPECT_EQ(commas(at), commas(0)) << csv.substr(at);
  simdjson::dom::parser parser;
  const simdjson::padded_string json(to_json(m));
  simdjson::dom::element all;
  ASSERT_EQ(parser.parse(json).get(all), simdjson::SUCCESS);
  const simdjson::dom::element rows = all["range_arguments"].at(1);
  EXPECT_EQ(std::string_view(rows["name"]), "rows");
  EXPECT_EQ(double(rows["least"]), 7);
  EXPECT_EQ(double(rows["total"]), 71);
}

}  // namespace
}  // namespace paoding::profile
