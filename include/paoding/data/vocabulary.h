// SPDX-License-Identifier: Apache-2.0
// Symbols (letters, phonemes, words) and their ids.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace paoding::data {

/// Symbols numbered 0 .. size() - 1 in the order given. Threads may read one at once.
class Vocabulary {
 public:
  Vocabulary() = default;
  /// Error (argument) when a symbol is there twice, is empty or is not UTF-8.
  explicit Vocabulary(std::vector<std::string> symbols);

  std::int64_t size() const { return static_cast<std::int64_t>(symbols_.size()); }
  /// The number of a symbol; -1 when there is none.
  std::int64_t find(std::string_view symbol) const;
  /// Error (argument) unless 0 <= number < size().
  const std::string& symbol(std::int64_t number) const;
  const std::vector<std::string>& symbols() const { return symbols_; }

 private:
  std::vector<std::string> symbols_;
  std::map<std::string, std::int64_t, std::less<>> numbers_;
};

/// The characters of a UTF-8 text, each a string. Error (file) with `name` in it when the text is not UTF-8.
std::vector<std::string> characters(std::string_view text, std::string_view name);

}  // namespace paoding::data
