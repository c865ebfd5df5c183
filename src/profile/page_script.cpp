// SPDX-License-Identifier: Apache-2.0
#include "profile/page_script.h"

#include <algorithm>
#include <cctype>

namespace paoding::profile {

namespace {

bool is_in_word(char c) {
  const auto byte = static_cast<unsigned char>(c);
  return std::isalnum(byte) != 0 || c == '_' || c == '$' || byte >= 0x80;
}

bool is_quote(char c) { return c == '"' || c == '\'' || c == '`'; }

// Behind the quote that ends the text at `begin`. A template may hold code, which may hold texts.
std::size_t behind_text(std::string_view code, std::size_t begin) {
  const char quote = code[begin];
  std::size_t i = begin + 1;
  while (i < code.size() && code[i] != quote) {
    if (quote != '`' || !code.substr(i).starts_with("${")) {
      i += code[i] == '\\' ? 2 : 1;
      continue;
    }
    i += 2;
    for (int depth = 1; depth > 0 && i < code.size();) {
      if (is_quote(code[i])) {
        i = behind_text(code, i);
        continue;
      }
      depth += code[i] == '{' ? 1 : code[i] == '}' ? -1 : 0;
      ++i;
    }
  }
  return std::min(i + 1, code.size());
}

std::size_t behind_expression(std::string_view code, std::size_t begin) {
  bool in_class = false;
  std::size_t i = begin + 1;
  for (; i < code.size() && (code[i] != '/' || in_class); ++i) {
    if (code[i] == '[') in_class = true;
    if (code[i] == ']') in_class = false;
    if (code[i] == '\\') ++i;
  }
  return std::min(i + 1, code.size());
}

std::string without_comments(std::string_view script) {
  std::string code;
  for (std::size_t at = 0; at < script.size();) {
    const std::size_t end = std::min(script.find('\n', at), script.size());
    std::string_view line = script.substr(at, end - at);
    at = end + 1;
    line.remove_prefix(std::min(line.find_first_not_of(' '), line.size()));
    if (line.empty() || line.starts_with("//")) continue;
    code.append(line).append("\n");
  }
  return code;
}

}  // namespace

std::string small_script(std::string_view script) {
  const std::string code = without_comments(script);
  std::string made;
  for (std::size_t i = 0; i < code.size();) {
    const char before = made.empty() ? '\n' : made.back();
    // Behind a value a slash divides.
    const bool is_expression =
        code[i] == '/' && std::string_view("(,=>:[!&|?{};\n").find(before) != std::string_view::npos;
    if (is_quote(code[i]) || is_expression) {
      const std::size_t end = is_expression ? behind_expression(code, i) : behind_text(code, i);
      made.append(code, i, end - i);
      i = end;
      continue;
    }
    if (code[i] == ' ') {
      const char next = i + 1 < code.size() ? code[i + 1] : '\n';
      const bool is_needed =
          (is_in_word(before) && is_in_word(next)) || (before == next && (next == '+' || next == '-'));
      if (is_needed) made += ' ';
      ++i;
      continue;
    }
    made += code[i++];
  }
  return made;
}

}  // namespace paoding::profile
