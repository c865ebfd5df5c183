// SPDX-License-Identifier: Apache-2.0
// Text as tokens of a language model: its bytes, or pieces of words.
#pragma once

#include <cstdint>
#include <map>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "paoding/data/sentence_pieces.h"
#include "paoding/data/vocabulary.h"

namespace paoding::models {

using Tokens = std::vector<std::int64_t>;

/// Each byte is the token of its number and texts end with a line feed; or pieces of words, with an end of their own.
class TokenText {
 public:
  TokenText() = default;
  /// Bytes where `pieces` is 0, else so many pieces, trained on these texts. Errors: as SentencePieces::train.
  TokenText(std::span<const std::string> texts, std::int64_t pieces);

  /// Files by name. from_files: Error (file) when one is missing or damaged.
  std::map<std::string, std::string> files() const;
  static TokenText from_files(const std::map<std::string, std::string>& files, bool has_pieces);

  bool empty() const { return characters_.size() == 0; }
  bool is_bytes() const { return !pieces_; }
  std::int64_t size() const;  // of the vocabulary
  std::int64_t end() const;   // the token between texts
  Tokens encode(std::string_view text) const;
  /// Ends become line feeds. The tokens of a text that is cut may be no UTF-8.
  std::string decode(std::span<const std::int64_t> tokens) const;
  /// The characters of a text that those of the constructor do not have, in their order.
  std::vector<std::string> unseen(const std::string& text) const;

 private:
  std::optional<data::SentencePieces> pieces_;
  data::Vocabulary characters_;
};

}  // namespace paoding::models
