// SPDX-License-Identifier: Apache-2.0
// Reports as wide as a terminal is.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <random>
#include <sstream>

#include "profile/report.h"
#include "profile/row_names.h"

namespace paoding::profile {
namespace {

// Both sides, names of every length, all sections, and every line of words there is.
Trace long_names(unsigned seed) {
  std::mt19937 random(seed);
  const auto below = [&](int n) { return static_cast<int>(random() % static_cast<unsigned>(n)); };
  const auto name = [&] {
    std::string made = fmt::format("op{}", below(9));
    for (int more = below(4) == 0 ? below(30) : below(3); more > 0; --more)
      made += fmt::format("+\u00e9t\u00e9*{}", below(99));
    return made;
  };
  Trace trace;
  const TrackId host = trace.add_track(TrackKind::thread, "thread0");
  const TrackId gpu = trace.add_track(TrackKind::stream, "stream 7", 0);
  std::int64_t at = 0;
  for (std::uint32_t run = 1; run <= 5; ++run) {
    const std::int64_t begin = at;
    const SpanId range = trace.add({.track = host,
                                    .site = trace.add_site({.name = name(), .kind = SpanKind::range}),
                                    .start_ns = at,
                                    .duration_ns = 900});
    trace.add_argument(range, trace.add_column(name(), ArgumentType::integer), std::int64_t{1'000'000} + below(9));
    at += 1000;
    trace.add({.track = host,
               .site = trace.add_site({.name = "compile " + name(), .kind = SpanKind::compile}),
               .start_ns = at,
               .duration_ns = 100});
    trace.add({.track = host, .site = trace.add_site({.name = name(), .kind = SpanKind::instant}), .start_ns = at});
    at += 200;
    trace.add({.track = host,
               .site = trace.add_site({.name = "launch", .kind = SpanKind::launch}),
               .start_ns = at,
               .duration_ns = 10,
               .run = run,
               .correlation = run});
    for (int i = 0; i < 4; ++i) {
      trace.add({.track = gpu,
                 .site = trace.add_site({.op = name(), .scope = name(), .kind = SpanKind::kernel, .bytes = 1 << 20}),
                 .start_ns = at + 20 + 1'234'567 * i,
                 .duration_ns = 1'234'560,
                 .run = run,
                 .correlation = run});
    }
    at += 5'000'000;
    trace.add({.track = host,
               .site = trace.add_site({.name = "run", .kind = SpanKind::run}),
               .start_ns = begin,
               .duration_ns = at - begin,
               .run = run});
  }
  trace.add_memory({.device = 0, .of = name(), .what = "arena", .bytes = 1'234'567'890});
  trace.add_memory({.device = 0, .of = name(), .what = "of that " + name() + name(), .bytes = 1'234'567'891});
  trace.add_note("replays that " + name() + " and words behind it that are more than fit into one line", 12);
  trace.add_limit({0, 4.6, {}});
  trace.finish();
  return trace;
}

std::vector<std::string> lines_of(const std::string& text) {
  std::vector<std::string> lines;
  std::istringstream stream(text);
  for (std::string line; std::getline(stream, line);) lines.push_back(line);
  return lines;
}

TEST(ReportOnATerminal, HasNoLineThatIsLonger) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    const Trace trace = long_names(seed);
    for (const int width : {80, 100, 132}) {
      for (const bool has_all : {false, true}) {
        for (const Nesting nesting : {Nesting::op, Nesting::scope}) {
          ReportOptions options{.nesting = nesting, .rates = has_all, .self = has_all, .kernels = has_all};
          const auto all = lines_of(report(trace, options));
          options.line_width = width;
          const auto fitted = lines_of(report(trace, options));
          for (const std::string& line : fitted) {
            ASSERT_LE(characters(line), static_cast<std::size_t>(width)) << line << " of seed " << seed;
          }
          EXPECT_GE(fitted.size(), all.size()) << "rows are missing";
        }
      }
    }
  }
}

// Words are all there, in their order; a line that is cut goes on indented.
TEST(ReportOnATerminal, CutsLinesOfWordsAtBlanks) {
  for (unsigned seed = 0; seed < 20; ++seed) {
    const Trace trace = long_names(seed);
    const auto letters_of = [](const std::string& text) {
      const std::size_t from = text.find("\nNot seen: "), to = text.find("\n\n", from);
      std::string letters;
      for (const char c : text.substr(from, to - from)) letters += c == ' ' || c == '\n' ? "" : std::string(1, c);
      return letters;
    };
    const std::string wide = report(trace, {}), narrow = report(trace, {.line_width = 80});
    EXPECT_EQ(letters_of(narrow), letters_of(wide));
    EXPECT_NE(narrow.find("\n  "), std::string::npos);
  }
}

}  // namespace
}  // namespace paoding::profile
