// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "data/description_index.h"
#include "data/test_folder.h"
#include "tests/support/temporary_folder.h"

namespace paoding::data {
namespace {

using Texts = std::vector<std::string>;

Description of_lines(std::vector<std::string_view> lines) { return {"p", "m", "b", std::move(lines)}; }

Texts pairs(const std::string& source, const std::string& target) {
  Texts lines;
  for (const SentencePair& pair : pairs_of(parse_descriptions(source, "en"), parse_descriptions(target, "it"))) {
    lines.push_back(pair.source + " | " + pair.target);
  }
  return lines;
}

std::string entry(const std::string& language, const std::string& package, const std::string& text) {
  return "Package: " + package + "\nDescription-md5: 0123\nDescription-" + language + ": " + text + "\n\n";
}

TEST(Descriptions, AreReadFromAnIndex) {
  const std::string text =
      "Package: a\nDescription-md5: 01\nDescription-en: short\n long\n .\n  as it is\n\n\n"
      "Package: b\r\nDescription-en:  two \r\nDescription-md5: 02\r\n lost\r\n";
  const std::vector<Description> all = parse_descriptions(text, "f");
  ASSERT_EQ(all.size(), 2U);
  EXPECT_EQ(all[0].package, "a");
  EXPECT_EQ(all[0].md5, "01");
  EXPECT_EQ(all[0].brief, "short");
  EXPECT_EQ(all[0].lines, (std::vector<std::string_view>{"long", ".", " as it is"}));
  EXPECT_EQ(all[1].brief, "two");
  EXPECT_TRUE(all[1].lines.empty());
}

TEST(Descriptions, RefuseWhatIsNoIndex) {
  const auto refused = [](std::string_view text) { return refusal([&] { parse_descriptions(text, "f"); }); };
  EXPECT_EQ(refused(""), "file: f: there is no description in it");
  EXPECT_EQ(refused("Package: a\nsome text\n"),
            "file: f:2: no field \"Name: value\" but \"some text\", this is no Translation index of Debian's");
  EXPECT_EQ(refused("Package: a\nDescription-md5: 1\n\n"),
            "file: f:1: a description without Description-<language>, this is no Translation index of Debian's");
  EXPECT_EQ(refused("\n\nPackage: a\nDescription-en: b\n"),
            "file: f:3: a description without Description-md5, this is no Translation index of Debian's");
  EXPECT_EQ(refused("Description-md5: 1\nDescription-en: b\n"),
            "file: f:1: a description without Package, this is no Translation index of Debian's");
  EXPECT_EQ(refused("\x28\xb5\x2f\xfd..."),
            "file: f: is packed; unpack it with: /usr/lib/apt/apt-helper cat-file FILE > NEW");
  EXPECT_EQ(refused("Package: caf\xe9\n").substr(0, 38), "file: f:1: byte 12 of the line is not ");
}

TEST(Paragraphs, JoinTheirLines) {
  EXPECT_EQ(paragraphs_of(of_lines({"one  two", "three ", ".", "four", "."})), (Texts{"one two three", "four"}));
  EXPECT_EQ(paragraphs_of(of_lines({})), Texts{});
}

TEST(Paragraphs, TellItemsOfListsApart) {
  EXPECT_EQ(paragraphs_of(of_lines(
                {"It has:", " * one,", "   more of it", " - two", "\t+ three", " 1. four", " 12) five", "And more."})),
            (Texts{"It has:", "one, more of it", "two", "three", "four", "five", "And more."}));
  EXPECT_EQ(paragraphs_of(of_lines({"It has:", "* one,", "more", "* two"})), (Texts{"It has:", "one, more", "two"}));
  EXPECT_EQ(paragraphs_of(of_lines({"Run:", "  a --b", "  c", "then"})), (Texts{"Run:", "a --b", "c", "then"}));
  EXPECT_EQ(paragraphs_of(of_lines({"version", "2.0 of it - the", "- one", "*"})),
            (Texts{"version 2.0 of it - the", "one *"}));
}

TEST(Sentences, EndWhereACapitalFollows) {
  EXPECT_EQ(sentences_of("One. Two e.g. three! È quattro? 5 is it. (Six.)"),
            (Texts{"One.", "Two e.g. three!", "È quattro?", "5 is it.", "(Six.)"}));
  EXPECT_EQ(sentences_of("See www.debian.org."), Texts{"See www.debian.org."});
  EXPECT_EQ(sentences_of(""), Texts{});
}

TEST(Translations, PairShortAndLongDescriptions) {
  EXPECT_EQ(pairs(entry("en", "a", "the cat\n One. Two.\n .\n Three. Four."),
                  entry("it", "a", "il gatto\n Uno. Due.\n .\n Tre quattro.")),
            (Texts{"the cat | il gatto", "One. | Uno.", "Two. | Due.", "Three. Four. | Tre quattro."}));
}

TEST(Translations, MatchPackageAndChecksum) {
  EXPECT_EQ(pairs(entry("en", "b", "two") + entry("en", "a", "one") + entry("en", "c", "three"),
                  entry("it", "a", "uno") + entry("it", "b", "due")),
            (Texts{"two | due", "one | uno"}));
  std::string old = entry("it", "a", "uno");
  old.replace(old.find("0123"), 4, "9999");
  EXPECT_EQ(pairs(entry("en", "a", "one"), old), Texts{});
}

TEST(Translations, LeaveOutLongDescriptionsThatAreCutOtherwise) {
  EXPECT_EQ(pairs(entry("en", "a", "the cat\n One.\n .\n Two."), entry("it", "a", "il gatto\n Uno. Due.")),
            Texts{"the cat | il gatto"});
}

TEST(Translations, LeaveOutNonsense) {
  std::string many = "word", molte = "parola";
  for (int i = 0; i < 100; ++i) many += " word", molte += " parola";
  EXPECT_EQ(pairs(entry("en", "a", many), entry("it", "a", molte)), Texts{});
  EXPECT_EQ(pairs(entry("en", "a", "same"), entry("it", "a", "same")), Texts{});
  EXPECT_EQ(pairs(entry("en", "a", "1.2"), entry("it", "a", "1,2")), Texts{});
  EXPECT_EQ(pairs(entry("en", "a", ""), entry("it", "a", "uno")), Texts{});
  EXPECT_EQ(pairs(entry("en", "a", "a cat"), entry("it", "a", molte.substr(0, 60))), Texts{});
  EXPECT_EQ(pairs(entry("en", "a", "one") + entry("en", "b", "one") + entry("en", "c", "one"),
                  entry("it", "a", "uno") + entry("it", "b", "uno") + entry("it", "c", "un")),
            (Texts{"one | uno", "one | un"}));
}

TEST(Translations, AreReadFromFiles) {
  const TemporaryFolder folder;
  folder.write("translate/Translation-en", entry("en", "a", "one"));
  folder.write("translate/Translation-de", entry("de", "a", "eins"));
  folder.write("translate/Translation-fr", entry("fr", "b", "un"));
  const auto found = read_translations(find_translations(folder.path(), "en", "de"));
  ASSERT_EQ(found.size(), 1U);
  EXPECT_EQ(found[0].target, "eins");
  EXPECT_NE(refusal([&] {
              read_translations(find_translations(folder.path(), "en", "fr"));
            }).find("no description is translated in"),
            std::string::npos);
  EXPECT_NE(refusal([&] { find_translations(folder.path(), "en", "it"); }).find("paoding fetch translate"),
            std::string::npos);
  EXPECT_EQ(refusal([&] { find_translations(folder.path(), "../en", "it"); }),
            "argument: find_translations: language '../en' must be like en, it or pt_BR");
}

TEST(Translations, OfDebianAreManyPairs) {
  FOUND_OR_SKIP(files, find_translations(test_folder(), "en", "it"));
  const std::vector<SentencePair> all = read_translations(files);
  EXPECT_GT(all.size(), 100'000U);
  std::set<std::pair<std::string_view, std::string_view>> different;
  std::size_t words = 0, most_words = 0;
  for (const SentencePair& pair : all) {
    EXPECT_TRUE(different.emplace(pair.source, pair.target).second) << pair.source;
    EXPECT_NE(pair.source, pair.target);
    const auto count = static_cast<std::size_t>(1 + std::count(pair.source.begin(), pair.source.end(), ' '));
    words += count;
    most_words = std::max(most_words, count);
  }
  EXPECT_LE(most_words, 100U);
  EXPECT_NEAR(static_cast<double>(words) / static_cast<double>(all.size()), 12, 4);
}

}  // namespace
}  // namespace paoding::data
