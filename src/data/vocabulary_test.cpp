// SPDX-License-Identifier: Apache-2.0
#include "paoding/data/vocabulary.h"

#include <gtest/gtest.h>

#include "data/test_folder.h"

namespace paoding::data {
namespace {

TEST(Vocabulary, NumbersSymbolsInTheOrderGiven) {
  const Vocabulary letters({"b", "a", "ß", "日本"});
  EXPECT_EQ(letters.size(), 4);
  EXPECT_EQ(letters.find("b"), 0);
  EXPECT_EQ(letters.find("ß"), 2);
  EXPECT_EQ(letters.symbol(3), "日本");
  for (std::int64_t i = 0; i < letters.size(); ++i) EXPECT_EQ(letters.find(letters.symbol(i)), i);
}

TEST(Vocabulary, FindsNothingThatIsNotThere) {
  EXPECT_EQ(Vocabulary().size(), 0);
  EXPECT_EQ(Vocabulary().find("a"), -1);
  EXPECT_EQ(Vocabulary({"ab"}).find("a"), -1);
  EXPECT_EQ(Vocabulary({"ab"}).find(""), -1);
}

TEST(Vocabulary, RefusesWhatIsNoSymbol) {
  EXPECT_EQ(refusal([] {
              Vocabulary({"a", "b", "a"});
            }),
            "argument: Vocabulary: symbols 0 and 2 are both \"a\", they must differ");
  EXPECT_EQ(refusal([] { Vocabulary({"a", ""}); }), "argument: Vocabulary: symbol 1 is empty");
  EXPECT_EQ(refusal([] { Vocabulary({"a\xff"}); }),
            "argument: Vocabulary: symbol 0 is \"a\\xff\", which is not UTF-8 text");
}

TEST(Vocabulary, RefusesNumbersItDoesNotHave) {
  const Vocabulary two({"a", "b"});
  EXPECT_EQ(refusal([&] { two.symbol(2); }), "argument: Vocabulary: symbol 2 was asked for, there are 2");
  EXPECT_EQ(refusal([&] { two.symbol(-1); }), "argument: Vocabulary: symbol -1 was asked for, there are 2");
}

TEST(Characters, AreWholeWhateverTheirBytes) {
  EXPECT_EQ(characters("aé日😀", "it"), (std::vector<std::string>{"a", "é", "日", "😀"}));
  EXPECT_TRUE(characters("", "it").empty());
}

TEST(Characters, RefuseTextOfAnotherEncoding) {
  EXPECT_EQ(refusal([] { characters("caf\xe9", "the word"); }),
            "file: the word: byte 3 of \"caf\\xe9\" is not UTF-8 text");
}

}  // namespace
}  // namespace paoding::data
