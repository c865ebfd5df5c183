// SPDX-License-Identifier: Apache-2.0
// Case-insensitive words of HTTP headers, and the media type in a Content-Type.
#pragma once

#include <algorithm>
#include <string_view>

namespace paoding::cli {

/// Whether two words of ASCII are the same but for capitals.
inline bool is_same_word(std::string_view a, std::string_view b) {
  const auto lower = [](char c) { return c >= 'A' && c <= 'Z' ? static_cast<char>(c - 'A' + 'a') : c; };
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [&](char x, char y) { return lower(x) == lower(y); });
}

/// Without blanks and tabs around it.
inline std::string_view without_blanks(std::string_view text) {
  const std::size_t from = std::min(text.find_first_not_of(" \t"), text.size());
  return text.substr(from, text.find_last_not_of(" \t") + 1 - from);
}

/// "text/plain" of "text/plain; charset=utf-8".
inline std::string_view media_type(std::string_view content_type) {
  return without_blanks(content_type.substr(0, content_type.find(';')));
}

}  // namespace paoding::cli
