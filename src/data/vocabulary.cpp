// SPDX-License-Identifier: Apache-2.0
#include "paoding/data/vocabulary.h"

#include <algorithm>
#include <utility>

#include "base/check.h"
#include "data/whole_file.h"
#include "text/lexer.h"

namespace paoding::data {
Vocabulary::Vocabulary(std::vector<std::string> symbols) : symbols_(std::move(symbols)) {
  for (std::size_t i = 0; i < symbols_.size(); ++i) {
    const std::string& symbol = symbols_[i];
    if (symbol.empty()) fail(ErrorKind::argument, "Vocabulary: symbol {} is empty", i);
    if (first_bad_byte(symbol) != std::string_view::npos) {
      fail(ErrorKind::argument, "Vocabulary: symbol {} is {}, which is not UTF-8 text", i, quote(symbol));
    }
    const auto [at, is_new] = numbers_.emplace(symbol, static_cast<std::int64_t>(i));
    if (!is_new) {
      fail(ErrorKind::argument, "Vocabulary: symbols {} and {} are both {}, they must differ", at->second, i,
           quote(symbol));
    }
  }
}

std::int64_t Vocabulary::find(std::string_view symbol) const {
  const auto at = numbers_.find(symbol);
  return at == numbers_.end() ? -1 : at->second;
}

const std::string& Vocabulary::symbol(std::int64_t number) const {
  if (number < 0 || number >= size()) {
    fail(ErrorKind::argument, "Vocabulary: symbol {} was asked for, there are {}", number, size());
  }
  return symbols_[static_cast<std::size_t>(number)];
}

std::vector<std::string> characters(std::string_view text, std::string_view name) {
  std::vector<std::string> result;
  result.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t length = utf8_length(text, at);
    if (length == 0) {
      fail(ErrorKind::file, "{}: byte {} of {} is not UTF-8 text", name, at, quote(shortened(text)));
    }
    result.emplace_back(text.substr(at, length));
    at += length;
  }
  return result;
}

}  // namespace paoding::data
