// SPDX-License-Identifier: Apache-2.0
#include "data/pronunciations.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <ctime>
#include <set>

#include "base/check.h"
#include "data/test_folder.h"
#include "tests/support/temporary_folder.h"

namespace paoding::data {
namespace {

/// "word: W ER D / W AO D" for every word.
std::vector<std::string> lines_of(const std::vector<Pronunciations>& words) {
  std::vector<std::string> lines;
  for (const Pronunciations& word : words) {
    std::string line = word.word + ":";
    for (std::size_t i = 0; i < word.ways.size(); ++i) {
      if (i > 0) line += " /";
      for (const std::string& phoneme : word.ways[i]) line += " " + phoneme;
    }
    lines.push_back(line);
  }
  return lines;
}

std::vector<std::string> parsed(std::string_view text) { return lines_of(parse_pronunciations(text, "d.dict")); }
std::string pronunciations_refused(std::string_view text) {
  return refusal([&] { parse_pronunciations(text, "d.dict"); });
}
using Lines = std::vector<std::string>;

TEST(Pronunciations, AreReadFromCmusFormat) {
  EXPECT_EQ(parsed(";;; a remark\n"
                   "a AH\n"
                   "zoe's(2) Z OW Z\r\n"
                   "\n"
                   "a(2)  EY\n"
                   "zoe's\tZ OW IY Z   # foreign name\n"
                   "a(3) AH\n"  // said before
                   "caf\u00e9 K AE F EY"),
            (Lines{"a: AH / EY", "zoe's: Z OW Z / Z OW IY Z", "caf\u00e9: K AE F EY"}));
}

double seconds_to_read_ways(int count) {
  std::string text;
  for (int i = 0; i < 2 * count; ++i) text += fmt::format("word({}) W{} ER D\n", i + 1, i % count);  // each twice
  const auto processor_seconds = [] {
    timespec now{};
    clock_gettime(CLOCK_THREAD_CPUTIME_ID, &now);
    return static_cast<double>(now.tv_sec) + 1e-9 * static_cast<double>(now.tv_nsec);
  };
  const double start = processor_seconds();
  const auto words = parse_pronunciations(text, "d.dict");
  const double seconds = processor_seconds() - start;
  EXPECT_EQ(words.size(), 1u);
  EXPECT_EQ(words.at(0).ways.size(), static_cast<std::size_t>(count));
  for (int i = 0; i < count; ++i) {
    EXPECT_EQ(words.at(0).ways.at(static_cast<std::size_t>(i))[0], "W" + std::to_string(i));
  }
  return seconds;
}

// Eight times as many take about eight times as long, not 64 times. A disturbed measurement is taken again.
TEST(Pronunciations, OfOneWordMayBeVeryMany) {
  double few = 0, many = 0;
  for (int i = 0; i < 3 && (i == 0 || many > 24 * few); ++i) {
    few = std::max(seconds_to_read_ways(2500), 0.002);
    many = seconds_to_read_ways(20'000);
  }
  EXPECT_LE(many, 24 * few);
}

TEST(Pronunciations, KeepBracketsThatNumberNoWay) {
  EXPECT_EQ(parsed("(paren P ER EH N\n:-) S M AY L\n(2) T UW\nx() EH K S\n"),
            (Lines{"(paren: P ER EH N", ":-): S M AY L", "(2): T UW", "x(): EH K S"}));
}

TEST(Pronunciations, AreReadFromFestivalsFormat) {
  EXPECT_EQ(parsed("MNCL\n"
                   "; a remark \"\n"
                   "(\"a\" dt (((ax) 0)))\n"
                   "(\"a\" n (((ey) 1)))(\"aaron\" nil (((eh) 1) ((r ax n) 0)))\n"
                   "(\"a\" v (((ey) 0)))\n"),
            (Lines{"a: ax / ey", "aaron: eh r ax n"}));
  EXPECT_EQ(parsed("(\"b\" nil (((b iy) 1)))"), (Lines{"b: b iy"}));
}

TEST(Pronunciations, RefuseWhatIsNoDictionary) {
  EXPECT_EQ(pronunciations_refused("a AH\nab\n"),
            "file: d.dict:2: \"ab\" has a word but no phonemes, must be like \"word W ER D\"");
  EXPECT_EQ(pronunciations_refused(""), "file: d.dict: there is no word in it, must be a pronouncing dictionary");
  EXPECT_EQ(pronunciations_refused(";;; nothing\n\n"),
            "file: d.dict: there is no word in it, must be a pronouncing dictionary");
  EXPECT_EQ(pronunciations_refused(std::string_view("a AH\n\0\1 b\n", 10)),
            "file: d.dict:2: there is a control character, this is no dictionary: \"\\x00\\x01 b\"");
}

TEST(Pronunciations, OfAnotherEncodingAreNamedWithTheirLine) {
  const std::string text = pronunciations_refused("a AH\ncaf\xe9 K AE F EY\n");
  EXPECT_EQ(text.substr(0, text.find('\n')),
            "file: d.dict:2: byte 3 of the line is not UTF-8: \"caf\\xe9 K AE F EY\\n\"");
  EXPECT_NE(text.find("iconv -f latin1 -t utf-8"), std::string::npos) << text;
}

TEST(Pronunciations, RefuseFestivalsFormatWhereItIsBroken) {
  EXPECT_EQ(pronunciations_refused("MNCL\n(\"a\" nil (((ey) 1))\n"),
            "file: d.dict:3: the end of the text where ')' must be, as in (\"word\" nil (((w er d) 1)))");
  EXPECT_EQ(
      pronunciations_refused("MNCL\n(a nil (((ey) 1)))\n"),
      "file: d.dict:2: \"a nil (((ey) 1)))\" where a word in quotes must be, as in (\"word\" nil (((w er d) 1)))");
  EXPECT_EQ(pronunciations_refused("(\"a\" nil (((ey \"x\") 1)))"),
            "file: d.dict:1: \"\\\"x\\\") 1)))\" where a name must be, as in (\"word\" nil (((w er d) 1)))");
  EXPECT_EQ(pronunciations_refused("(\"a\" nil ())"), "file: d.dict:1: the word \"a\" has no phonemes");
  EXPECT_EQ(pronunciations_refused("(\"\" nil (((a) 1)))"), "file: d.dict:1: the word is empty");
  EXPECT_EQ(pronunciations_refused("(\"a\n"),
            "file: d.dict:1: \"\" where a quote to end the word must be, as in (\"word\" nil (((w er d) 1)))");
}

TEST(Pronunciations, AreReadFromFiles) {
  const TemporaryFolder folder;
  EXPECT_EQ(lines_of(read_pronunciations(folder.write("g2p/cmudict-en-us.dict", "a AH\n"))), Lines{"a: AH"});
  EXPECT_EQ(find_pronunciations(folder.path()), folder / "g2p/cmudict-en-us.dict");
  EXPECT_EQ(refusal([&] { read_pronunciations(folder / "none"); }),
            "file: " + (folder / "none").string() + ": cannot open: No such file or directory");
  EXPECT_EQ(refusal([&] { read_pronunciations(folder.path()); }),
            "file: " + folder.path().string() + ": is a folder, not a regular file");
}

TEST(Pronunciations, ThatAreNowhereAreToldHowToGet) {
  if (std::filesystem::exists("/usr/share/pocketsphinx") || std::filesystem::exists("/usr/share/festival/dicts/cmu")) {
    GTEST_SKIP() << "NOT CHECKED: needs a machine without a dictionary, and one is installed";
  }
  const TemporaryFolder folder;
  const std::string text = refusal([&] { find_pronunciations(folder.path()); });
  EXPECT_NE(text.find("file: pronouncing dictionary: not found, looked for " + folder.path().string()),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("\nGet it with: paoding fetch g2p --data " + folder.path().string() +
                      "; or: apt-get install pocketsphinx-en-us"),
            std::string::npos)
      << text;
}

TEST(Pronunciations, OfDebiansDictionaryAreAllRead) {
  FOUND_OR_SKIP(path, find_pronunciations(test_folder()));
  if (path.filename() != "cmudict-en-us.dict")
    GTEST_SKIP() << "NOT CHECKED: needs cmudict-en-us.dict, " << path << " is another dictionary";
  const std::vector<Pronunciations> words = read_pronunciations(path);
  std::size_t ways = 0;
  std::set<std::string> phonemes;
  for (const Pronunciations& word : words) {
    ways += word.ways.size();
    for (const auto& way : word.ways) phonemes.insert(way.begin(), way.end());
  }
  EXPECT_EQ(words.size(), 125'945U);
  EXPECT_EQ(ways, 134'723U);
  EXPECT_EQ(phonemes.size(), 39U);
  EXPECT_EQ(lines_of({words.front()}), Lines{"'bout: B AW T"});
  EXPECT_EQ(lines_of({words.back()}), Lines{"zywicki: Z IH W IH K IY"});
}

}  // namespace
}  // namespace paoding::data
