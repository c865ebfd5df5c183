// SPDX-License-Identifier: Apache-2.0
#include "trace/json_strings.h"

#include "text/lexer.h"

namespace paoding::trace {
namespace {

int hex_of(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// Four digits from `at` on; -1 where there are none.
int code_at(std::string_view text, std::size_t at) {
  if (at + 4 > text.size()) return -1;
  int code = 0;
  for (std::size_t i = at; i < at + 4; ++i) {
    const int digit = hex_of(text[i]);
    if (digit < 0) return -1;
    code = code * 16 + digit;
  }
  return code;
}

void append_utf8(std::string& out, std::uint32_t code) {
  const auto put = [&](std::uint32_t byte) { out += static_cast<char>(byte); };
  if (code < 0x80) {
    put(code);
  } else if (code < 0x800) {
    put(0xc0 | code >> 6), put(0x80 | (code & 0x3f));
  } else if (code < 0x10000) {
    put(0xe0 | code >> 12), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  } else {
    put(0xf0 | code >> 18), put(0x80 | (code >> 12 & 0x3f)), put(0x80 | (code >> 6 & 0x3f)), put(0x80 | (code & 0x3f));
  }
}

}  // namespace

std::string unescaped(std::string_view raw, bool* is_clean) {
  constexpr std::uint32_t kNone = 0xfffd;
  std::string out;
  out.reserve(raw.size());
  for (std::size_t i = 0; i < raw.size();) {
    if (raw[i] != '\\' || i + 1 == raw.size()) {
      const std::size_t bytes = static_cast<unsigned char>(raw[i]) < 0x80 ? 1 : utf8_length(raw, i);
      if (bytes == 0) {
        *is_clean = false;
        append_utf8(out, kNone);
        ++i;
        continue;
      }
      out.append(raw.substr(i, bytes));
      i += bytes;
      continue;
    }
    const char c = raw[i + 1];
    const char* const known = "\"\"\\\\//b\bf\fn\nr\rt\t";
    const char* found = nullptr;
    for (const char* k = known; *k != '\0'; k += 2) found = *k == c ? k + 1 : found;
    if (found != nullptr) {
      out += *found;
      i += 2;
      continue;
    }
    std::int64_t code = c == 'u' ? code_at(raw, i + 2) : -1;
    if (code < 0) {  // as it stands
      out += '\\';
      ++i;
      continue;
    }
    i += 6;
    if (code >= 0xd800 && code < 0xdc00 && i + 1 < raw.size() && raw[i] == '\\' && raw[i + 1] == 'u') {
      const int low = code_at(raw, i + 2);
      if (low >= 0xdc00 && low < 0xe000) {
        code = 0x10000 + ((code - 0xd800) << 10) + (low - 0xdc00);
        i += 6;
      }
    }
    const bool is_half = code >= 0xd800 && code < 0xe000;
    append_utf8(out, is_half ? kNone : static_cast<std::uint32_t>(code));
  }
  return out;
}

}  // namespace paoding::trace
