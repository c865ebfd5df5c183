// SPDX-License-Identifier: Apache-2.0
// The expected scores were printed by sacrebleu 2.6.0 (tokenizer 13a, smoothing exp, one reference).
#include <gtest/gtest.h>

#include <sstream>

#include "data/test_folder.h"
#include "data/tokenize_13a.h"
#include "paoding/data/metrics.h"

namespace paoding::data {
namespace {

using Texts = std::vector<std::string>;

std::string tokens(const std::string& line) {
  std::string text;
  for (const std::string& token : tokenize_13a(line)) text += (text.empty() ? "" : " ") + token;
  return text;
}

TEST(Tokenize13a, DoesAsSacrebleuDoes) {
  const std::pair<std::string, std::string> cases[] = {
      {"Hello, world!", "Hello , world !"},
      {"It costs $3,000.50 (or 3.5 %).", "It costs $ 3,000.50 ( or 3.5 % ) ."},
      {"pages 10-20, e.g. a-b", "pages 10 - 20 , e . g . a-b"},
      {"Wait... what?!", "Wait . . . what ? !"},
      {"a.,b ,.c", "a . , b , . c"},
      {"1.2.3,4", "1.2.3,4"},
      {"&quot;A&amp;B&quot; &lt;tag&gt;", "\" A & B \" < tag >"},
      {"one<skipped>two", "onetwo"},
      {"hyphen-\nated line\nbreak", "hyphenated line break"},
      {"l'arte dell'uomo, perch\303\251.", "l'arte dell'uomo , perch\303\251 ."},
      {"\302\240no\342\200\203break\343\200\200spaces\302\205x", "no break spaces x"},
      {"[x]{y}~`^_|\\/@#:;<=>*+", "[ x ] { y } ~ ` ^ _ | \\ / @ # : ; < = > * +"},
      {"", ""},
      {"   ", ""},
      {"...", ". . ."},
      {"\346\227\245\346\234\254\343\200\202,\350\252\236", "\346\227\245\346\234\254\343\200\202 , \350\252\236"},
      {"5- 6 -7 8-9", "5 - 6 -7 8 - 9"},
      {"trailing \302\240 ", "trailing"},
      {"a\034b\037c", "a b c"},
      {"x.1 1.x ,1 1,", "x . 1 1 . x , 1 1 ,"},
  };
  for (const auto& [line, expected] : cases) EXPECT_EQ(tokens(line), expected) << line;
}

const Texts kPredicted = {"the cat sat on the mat", "there is a dog in the garden, right?",
                          "it costs 3,000.50 dollars"};
const Texts kReferences = {"the cat is sitting on the mat", "there is a dog in the garden!", "it costs 3,000.50 euros"};

TEST(Bleu, IsWhatSacrebleuSays) {
  EXPECT_NEAR(bleu(kPredicted, kReferences), 54.50176720923848, 1e-9);
  EXPECT_NEAR(bleu(kReferences, kReferences), 100, 1e-9);
}

TEST(Bleu, PunishesWhatIsTooShortAndNotWhatIsTooLong) {
  EXPECT_NEAR(bleu(Texts{"the cat sat on"}, Texts{"the cat sat on the mat"}), 60.653065971263366, 1e-9);
  EXPECT_NEAR(bleu(Texts{"the cat sat on the mat today and yesterday"}, Texts{"the cat sat on the mat"}),
              58.73949094699213, 1e-9);
  EXPECT_NEAR(bleu(Texts{"", "the cat sat on the mat"}, Texts{"a b c", "the cat sat on the mat"}), 60.653065971263366,
              1e-9);
}

TEST(Bleu, SmoothsOrdersWithoutAMatch) {
  EXPECT_NEAR(bleu(Texts{"the cat sat on the mat"}, Texts{"the cat is sitting on the mat"}), 32.159351091190125, 1e-9);
  EXPECT_NEAR(bleu(Texts{"the cat x y z a"}, Texts{"the q cat y r z a b"}), 14.626134130279034, 1e-9);
}

TEST(Bleu, OfNothingRightIsZero) {
  EXPECT_EQ(bleu(Texts{"a b c d"}, Texts{"e f g h"}), 0);
  EXPECT_EQ(bleu(Texts{"the cat"}, Texts{"the cat"}), 0);  // has no 4-gram
  EXPECT_EQ(bleu(Texts{""}, Texts{""}), 0);
}

/// Sentences of a linear congruential generator, which a line of Python makes as well.
Texts stream(std::uint64_t seed) {
  const char* const words[] = {"the", "a", "cat", "dog,", "sat", "on", "mat.", "3.5", "l'arte", "(x)"};
  Texts lines(200);
  for (std::size_t i = 0; i < lines.size(); ++i) {
    for (std::size_t k = 0; k < 3 + i % 17; ++k) {
      seed = (seed * 1103515245 + 12345) % (std::uint64_t{1} << 31);
      lines[i] += (k == 0 ? "" : " ") + std::string(words[(seed >> 16) % 10]);
    }
  }
  return lines;
}

TEST(Bleu, OfManySentencesIsWhatSacrebleuSays) {
  const Texts references = stream(1), others = stream(7);
  Texts predicted(references.size());
  for (std::size_t i = 0; i < references.size(); ++i) {
    std::istringstream from(references[i]), other(others[i]);
    std::string a, b;
    // Every fourth word is another's.
    for (std::size_t j = 0; from >> a && other >> b; ++j) predicted[i] += (j == 0 ? "" : " ") + ((i + j) % 4 ? a : b);
  }
  EXPECT_EQ(predicted[5], "sat a on sat mat. sat on l'arte");
  EXPECT_NEAR(bleu(predicted, references), 53.00146020262034, 1e-9);
}

TEST(Bleu, RefusesCountsThatDiffer) {
  EXPECT_EQ(refusal([] {
              bleu(Texts{"a", "b"}, Texts{"a"});
            }),
            "argument: bleu: 2 predicted sentences beside 1 references, there must be as many, and at least 1");
  EXPECT_EQ(refusal([] { bleu({}, {}); }),
            "argument: bleu: 0 predicted sentences beside 0 references, there must be as many, and at least 1");
}

}  // namespace
}  // namespace paoding::data
