// SPDX-License-Identifier: Apache-2.0
#include "models/token_text.h"

#include <algorithm>
#include <set>

#include "models/symbol_file.h"
#include "paoding/error.h"
#include "paoding/printable.h"

namespace paoding::models {
namespace {

constexpr const char *kPieces = "text.pieces", *kCharacters = "characters.txt";
constexpr std::int64_t kBytes = 256;

std::vector<std::string> characters_of(const std::string& text) {
  return data::characters(text, "text '" + printable(text, "") + "'");
}

}  // namespace

TokenText::TokenText(std::span<const std::string> texts, std::int64_t pieces) {
  std::set<std::string> seen;
  for (const std::string& text : texts) {
    for (std::string& character : characters_of(text)) seen.insert(std::move(character));
  }
  seen.erase("\n");  // the end of a line in the file
  characters_ = data::Vocabulary({seen.begin(), seen.end()});
  if (pieces > 0) pieces_ = data::SentencePieces::train(texts, {.vocabulary = pieces});
}

std::map<std::string, std::string> TokenText::files() const {
  std::map<std::string, std::string> all{{kCharacters, to_file(characters_)}};
  if (pieces_) all[kPieces] = pieces_->serialized();
  return all;
}

TokenText TokenText::from_files(const std::map<std::string, std::string>& files, bool has_pieces) {
  TokenText made;
  made.characters_ = from_file(files, kCharacters);
  if (has_pieces) made.pieces_ = data::SentencePieces::load(file_of(files, kPieces), kPieces);
  return made;
}

std::int64_t TokenText::size() const { return pieces_ ? pieces_->size() : kBytes; }
std::int64_t TokenText::end() const { return pieces_ ? data::SentencePieces::kEnd : '\n'; }

Tokens TokenText::encode(std::string_view text) const {
  if (pieces_) return pieces_->encode(text);
  Tokens tokens;
  for (const char c : text) tokens.push_back(static_cast<unsigned char>(c));
  return tokens;
}

std::string TokenText::decode(std::span<const std::int64_t> tokens) const {
  std::string text;
  if (!pieces_) {
    for (const std::int64_t token : tokens) text += static_cast<char>(token);
    return text;
  }
  for (auto from = tokens.begin(); from != tokens.end();) {
    const auto to = std::find(from, tokens.end(), end());
    text += pieces_->decode({from, to});
    if (to == tokens.end()) break;
    text += '\n';
    from = to + 1;
  }
  return text;
}

std::vector<std::string> TokenText::unseen(const std::string& text) const {
  std::vector<std::string> found;
  for (std::string& character : characters_of(text)) {
    if (characters_.find(character) < 0) found.push_back(std::move(character));
  }
  return found;
}

}  // namespace paoding::models
