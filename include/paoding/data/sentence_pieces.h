// SPDX-License-Identifier: Apache-2.0
// Text as ids of word pieces, by the SentencePiece library (Kudo, Richardson 2018).
#pragma once

#include <cstdint>
#include <memory>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paoding::data {

struct SentencePieceOptions {
  std::int64_t vocabulary = 8000;   // pieces, the special ones among them; an upper limit for small texts
  double character_coverage = 1.0;  // share of the text's characters that get a piece of their own
  // A larger text is sampled, every n-th sentence, so that training takes seconds: with 250,000 it is 40.
  std::int64_t most_sentences = 100'000;
};

/// A trained set of pieces: text to numbers and back. 0 stands for unknown text, 1 for the start, 2 for the end. Copies
/// share the model; encoding and decoding may run in several threads at once.
class SentencePieces {
 public:
  static constexpr std::int64_t kUnknown = 0, kStart = 1, kEnd = 2;

  /// A unigram model of `sentences` (Kudo 2018); the same sentences give the same model. Text is taken as it is, but
  /// for blanks, of which one is kept between words: decode(encode(text)) is text. A sentence of more than 4192 bytes
  /// is left out. Error (argument) when there is no text, or more characters in it than pieces are allowed.
  static SentencePieces train(std::span<const std::string> sentences, const SentencePieceOptions& options = {});
  /// A model from the bytes of serialized(). Error (file), with `name` in it, when it is not a model, or one that
  /// train() would not make.
  static SentencePieces load(std::string_view serialized, std::string_view name);

  const std::string& serialized() const;
  std::int64_t size() const;
  /// The most likely pieces; neither start nor end among them. Bytes that are not UTF-8 are unknown.
  std::vector<std::int64_t> encode(std::string_view text) const;
  /// Start and end are left out. Error (argument) when a number is none of a piece.
  std::string decode(std::span<const std::int64_t> pieces) const;

 private:
  struct Model;
  std::shared_ptr<const Model> model_;
};

}  // namespace paoding::data
