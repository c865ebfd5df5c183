// SPDX-License-Identifier: Apache-2.0
#include "text/printable.h"

#include <fmt/format.h>

#include "text/lexer.h"

namespace paoding {

std::size_t unreadable_length(std::string_view text, std::size_t at) {
  const auto byte = static_cast<unsigned char>(text[at]);
  if (byte < 0x80) return byte < 0x20 || byte == 0x7f ? 1 : 0;
  const std::size_t length = utf8_length(text, at);
  if (length == 0) return 1;
  return byte == 0xc2 && static_cast<unsigned char>(text[at + 1]) < 0xa0 ? 2 : 0;
}

std::string printable(std::string_view text, std::string_view kept) {
  std::string made;
  made.reserve(text.size());
  for (std::size_t at = 0; at < text.size();) {
    const std::size_t unreadable = unreadable_length(text, at);
    if (unreadable == 0 || (unreadable == 1 && kept.find(text[at]) != std::string_view::npos)) {
      const std::size_t length = utf8_length(text, at);
      made += text.substr(at, length);
      at += length;
      continue;
    }
    for (const std::size_t end = at + unreadable; at < end; ++at) {
      made += fmt::format("\\x{:02x}", static_cast<unsigned char>(text[at]));
    }
  }
  return made;
}

}  // namespace paoding
