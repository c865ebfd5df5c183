// SPDX-License-Identifier: Apache-2.0
#include "paoding/data/sentence_pieces.h"

#include <gtest/gtest.h>

#include <thread>

#include "data/test_folder.h"
#include "paoding/data/corpora.h"

namespace paoding::data {
namespace {

using Numbers = std::vector<std::int64_t>;

/// Sentences of few words, so that words become pieces.
std::vector<std::string> some_sentences() {
  const char* const subjects[] = {"the cat", "the dog", "a bird", "perché il gatto"};
  const char* const verbs[] = {"sat on", "looked at", "jumped over"};
  const char* const objects[] = {"the mat.", "a garden!", "the kitchen table.", "l'università."};
  std::vector<std::string> sentences;
  for (const char* subject : subjects) {
    for (const char* verb : verbs) {
      for (const char* object : objects) sentences.push_back(std::string(subject) + " " + verb + " " + object);
    }
  }
  return sentences;
}

const SentencePieces& some_pieces() {
  static const SentencePieces pieces = SentencePieces::train(some_sentences(), {.vocabulary = 80});
  return pieces;
}

TEST(SentencePieces, DecodeWhatTheyEncode) {
  const SentencePieces& pieces = some_pieces();
  EXPECT_GT(pieces.size(), 30);
  EXPECT_LE(pieces.size(), 80);
  for (const std::string& sentence : some_sentences()) {
    const Numbers numbers = pieces.encode(sentence);
    EXPECT_LT(numbers.size(), sentence.size()) << "every piece is a letter";
    EXPECT_EQ(pieces.decode(numbers), sentence);
    for (const std::int64_t number : numbers) {
      EXPECT_GT(number, SentencePieces::kEnd);
      EXPECT_LT(number, pieces.size());
    }
  }
  EXPECT_EQ(pieces.encode(""), Numbers{});
  EXPECT_EQ(pieces.decode({}), "");
  EXPECT_EQ(pieces.decode(pieces.encode(" the  cat ")), "the cat");
}

TEST(SentencePieces, LeaveStartAndEndOutOfText) {
  Numbers numbers = some_pieces().encode("the cat");
  numbers.insert(numbers.begin(), SentencePieces::kStart);
  numbers.push_back(SentencePieces::kEnd);
  EXPECT_EQ(some_pieces().decode(numbers), "the cat");
}

TEST(SentencePieces, GiveZeroForWhatIsUnknown) {
  const Numbers numbers = some_pieces().encode("the \u65e5 cat");
  EXPECT_EQ(std::count(numbers.begin(), numbers.end(), SentencePieces::kUnknown), 1);
  const Numbers broken = some_pieces().encode("the \xff cat");
  EXPECT_EQ(std::count(broken.begin(), broken.end(), SentencePieces::kUnknown), 1);
}

TEST(SentencePieces, AreTheSameForTheSameSentences) {
  const SentencePieces again = SentencePieces::train(some_sentences(), {.vocabulary = 80});
  EXPECT_EQ(again.serialized(), some_pieces().serialized());
}

TEST(SentencePieces, LookAtEveryNthOfManySentences) {
  std::vector<std::string> sentences;
  for (const std::string& sentence : some_sentences()) sentences.insert(sentences.end(), {sentence, "1 2 3", "4 5 6"});
  const SentencePieces pieces = SentencePieces::train(sentences, {.vocabulary = 80, .most_sentences = 50});
  EXPECT_EQ(pieces.serialized(), some_pieces().serialized());
}

TEST(SentencePieces, PrintNothing) {
  testing::internal::CaptureStderr();
  testing::internal::CaptureStdout();
  SentencePieces::train(some_sentences(), {.vocabulary = 60});
  refusal([] { SentencePieces::train(some_sentences(), {.vocabulary = 10}); });
  refusal([] { SentencePieces::load("nonsense", "m"); });
  EXPECT_EQ(testing::internal::GetCapturedStdout(), "");
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
}

TEST(SentencePieces, ComeBackFromTheirBytes) {
  const SentencePieces loaded = SentencePieces::load(some_pieces().serialized(), "m");
  EXPECT_EQ(loaded.size(), some_pieces().size());
  EXPECT_EQ(loaded.serialized(), some_pieces().serialized());
  for (const std::string& sentence : some_sentences()) {
    EXPECT_EQ(loaded.encode(sentence), some_pieces().encode(sentence));
  }
}

TEST(SentencePieces, WorkInSeveralThreads) {
  const Numbers expected = some_pieces().encode("perché il gatto looked at the mat.");
  std::vector<std::thread> threads;
  std::vector<int> wrong(4, 0);
  for (std::size_t i = 0; i < wrong.size(); ++i) {
    threads.emplace_back([&, i] {
      for (int k = 0; k < 200; ++k) {
        wrong[i] += some_pieces().encode("perché il gatto looked at the mat.") != expected;
        wrong[i] += some_pieces().decode(expected) != "perché il gatto looked at the mat.";
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(wrong, std::vector<int>(4, 0));
}

TEST(SentencePieces, RefuseTextsThatMakeNoModel) {
  EXPECT_EQ(refusal([] { SentencePieces::train({}); }), "argument: SentencePieces: 0 sentences without any text");
  EXPECT_EQ(refusal([] {
              SentencePieces::train(std::vector<std::string>{"", " \n"});
            }),
            "argument: SentencePieces: 2 sentences without any text");
  EXPECT_EQ(
      refusal([] { SentencePieces::train(some_sentences(), {.vocabulary = 20}); }),
      "argument: SentencePieces: a vocabulary of 20 is smaller than the count of characters in the text; a larger "
      "one is needed, or less character coverage than 1");
  EXPECT_EQ(refusal([] { SentencePieces::train(some_sentences(), {.vocabulary = 0}); }),
            "argument: SentencePieces: a vocabulary of 0, must be 4 .. 1000000");
  EXPECT_EQ(refusal([] { SentencePieces::train(some_sentences(), {.character_coverage = 0}); }),
            "argument: SentencePieces: a character coverage of 0, must be over 0.9 and at most 1");
  // The least there is: one word.
  EXPECT_EQ(SentencePieces::train(std::vector<std::string>{"a"}, {.vocabulary = 10}).size(), 5);
}

TEST(SentencePieces, RefuseNumbersOfNoPiece) {
  EXPECT_EQ(refusal([] { some_pieces().decode(Numbers{-1}); }).substr(0, 46),
            "argument: SentencePieces: piece -1 was asked f");
  EXPECT_NE(refusal([] { some_pieces().decode(Numbers{some_pieces().size()}); }), "");
}

std::string pieces_refused(std::string_view serialized) {
  return refusal([&] { SentencePieces::load(std::string(serialized), "m"); });
}

TEST(SentencePieces, RefuseEveryTruncation) {
  const std::string& whole = some_pieces().serialized();
  for (std::size_t size = 0; size < whole.size(); ++size) {
    // Cut between two fields it may still be a model, of fewer pieces: then it is one.
    const std::string text = pieces_refused(whole.substr(0, size));
    EXPECT_TRUE(text.empty() || text.starts_with("file: m: is no SentencePiece model: ")) << size << " " << text;
  }
  EXPECT_EQ(pieces_refused(""), "file: m: is no SentencePiece model: it has no pieces");
  EXPECT_EQ(pieces_refused("\x0a\x05z"), "file: m: is no SentencePiece model: it is truncated");
}

TEST(SentencePieces, RefuseModelsThatTheLibraryWouldTrust) {
  // A table of replacements (field 2 of the normalizer, field 3 of the model), whose offsets the library would follow.
  EXPECT_EQ(
      pieces_refused(some_pieces().serialized() + "\x1a\x06\x12\x04"
                                                  "abcd"),
      "file: m: is no SentencePiece model: it replaces characters, only models of the normalization rule identity "
      "are read");
  EXPECT_EQ(pieces_refused(some_pieces().serialized() + std::string("\x0a\x0a\x0a\x03"
                                                                    "abc\x15\x00\x00\xc0\x7f",
                                                                    12)),
            "file: m: is no SentencePiece model: piece " + std::to_string(some_pieces().size()) + " has score nan");
  EXPECT_EQ(pieces_refused(some_pieces().serialized() + std::string("\x12\x02\x18\x02")),
            "file: m: is no SentencePiece model: its type is 2, only unigram is read");
  EXPECT_EQ(
      pieces_refused(some_pieces().serialized() + std::string("\x0a\x05\x0a\x03"
                                                              "a\0c",
                                                              7)),
      "file: m: is no SentencePiece model: piece " + std::to_string(some_pieces().size()) + " is empty or no text");
}

}  // namespace
}  // namespace paoding::data
