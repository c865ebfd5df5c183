// SPDX-License-Identifier: Apache-2.0
// Tokens of graph text. Every byte is looked at a fixed number of times, whatever the text.
#include "text/lexer.h"

#include <algorithm>

#include "base/check.h"
#include "text/printable.h"

namespace paoding {
namespace {

constexpr std::size_t kMaxNameBytes = 65536;
constexpr std::size_t kMaxNumberBytes = 512;
constexpr std::size_t kShownBytes = 100;  // of the offending line

// <cctype> depends on the locale; graph text does not.
bool is_digit(char c) { return c >= '0' && c <= '9'; }
bool is_letter(char c) { return (c >= 'a' && c <= 'z') || (c >= 'A' && c <= 'Z') || c == '_'; }
bool is_word_byte(char c) { return is_letter(c) || is_digit(c) || c == '.'; }
bool is_control(char c) { return static_cast<unsigned char>(c) < 0x20 || c == 0x7f; }
bool is_tail_byte(char c) { return (static_cast<unsigned char>(c) & 0xc0) == 0x80; }

int hex_digit(char c) {
  if (is_digit(c)) return c - '0';
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  return -1;
}

// The first byte at or before `at` that starts a character.
std::size_t character_start(std::string_view text, std::size_t at) {
  for (int i = 0; i < 3 && at > 0 && at < text.size() && is_tail_byte(text[at]); ++i) --at;
  return at;
}

}  // namespace

std::size_t utf8_length(std::string_view text, std::size_t at) {
  const auto byte = [&](std::size_t i) { return static_cast<unsigned char>(text[at + i]); };
  const unsigned first = byte(0);
  if (first < 0x80) return 1;
  const std::size_t length = first >= 0xf0 ? 4 : first >= 0xe0 ? 3 : 2;
  if (first < 0xc2 || first > 0xf4 || length > text.size() - at) return 0;
  for (std::size_t i = 1; i < length; ++i) {
    if (!is_tail_byte(text[at + i])) return 0;
  }
  const unsigned second = byte(1);
  if (first == 0xe0 && second < 0xa0) return 0;  // overlong
  if (first == 0xed && second > 0x9f) return 0;  // surrogates
  if (first == 0xf0 && second < 0x90) return 0;  // overlong
  if (first == 0xf4 && second > 0x8f) return 0;  // over U+10FFFF
  return length;
}

std::string shortened(std::string_view text) {
  constexpr std::size_t kMost = 60;
  if (text.size() <= kMost) return std::string(text);
  return std::string(text.substr(0, character_start(text, kMost - 3))) + "...";
}

std::string describe(const Token& token) {
  switch (token.kind) {
    case TokenKind::end: return "the end of the text";
    case TokenKind::newline: return "the end of the line";
    case TokenKind::quoted: return shortened(quote(token.text));
    default: return fmt::format("'{}'", shortened(token.text));
  }
}

bool is_plain_name(std::string_view name) {
  return !name.empty() && is_letter(name[0]) && std::all_of(name.begin(), name.end(), is_word_byte);
}

std::string quote(std::string_view name) {
  std::string quoted = "\"";
  for (std::size_t i = 0; i < name.size();) {
    const char c = name[i];
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (c == '\t') {
      quoted += "\\t";
    } else {
      const std::string_view one = name.substr(i, std::max<std::size_t>(1, utf8_length(name, i)));
      quoted += printable(one, "");
      i += one.size();
      continue;
    }
    ++i;
  }
  return quoted + '"';
}

Lexer::Lexer(std::string_view text) : text_(text) {
  if (text_.starts_with("\xef\xbb\xbf")) text_.remove_prefix(3);  // a byte order mark some editors leave
  int line = 1;
  for (std::size_t at = 0; at < text_.size();) {
    const std::size_t length = utf8_length(text_, at);
    const char c = text_[at];
    if (length == 0) fail_at(at, line, "this byte is not UTF-8 text");
    if (is_control(c) && c != '\n' && c != '\r' && c != '\t') {
      fail_at(at, line, fmt::format("control character 0x{:02x}; write \\x{:02x} inside quotes", c, c));
    }
    if (c == '\n') ++line;
    at += length;
  }
  scan();
}

Token Lexer::take() {
  Token token = std::move(next_);
  scan();
  return token;
}

Token Lexer::take_sign() {
  Token sign = std::move(next_);
  sign.kind = TokenKind::mark;
  sign.text.resize(1);
  at_ = sign.offset + 1;
  scan();
  return sign;
}

void Lexer::skip_blanks() {
  while (at_ < text_.size() && (text_[at_] == ' ' || text_[at_] == '\t' || text_[at_] == '\r')) ++at_;
  if (at_ < text_.size() && text_[at_] == '#') at_ = std::min(text_.find('\n', at_), text_.size());
}

std::size_t Lexer::word_end(std::size_t at) const {
  while (at < text_.size() && is_word_byte(text_[at])) ++at;
  return at;
}

bool Lexer::is_range(std::size_t at) const { return text_.substr(at, 2) == ".."; }

std::size_t Lexer::number_end(std::size_t at) const {
  const bool is_sign = !is_digit(text_[at]);
  if (is_sign && at + 1 < text_.size() && is_letter(text_[at + 1])) return word_end(at + 1);  // -inf, -time
  for (++at; at < text_.size(); ++at) {
    const bool is_exponent_sign =
        (text_[at] == '+' || text_[at] == '-') && (text_[at - 1] == 'e' || text_[at - 1] == 'E');
    if (!is_word_byte(text_[at]) && !is_exponent_sign) break;
    if (is_range(at)) break;
  }
  return at;
}

void Lexer::scan() {
  skip_blanks();
  next_ = Token{TokenKind::end, {}, at_, line_};
  if (at_ == text_.size()) return;
  const char c = text_[at_];
  if (c == '\n') {
    next_.kind = TokenKind::newline;
    while (at_ < text_.size() && text_[at_] == '\n') {
      ++at_;
      ++line_;
      skip_blanks();
    }
    return;
  }
  if (c == '"') return scan_quoted();

  std::size_t end = at_ + 1;
  if (is_range(at_)) {
    next_.kind = TokenKind::mark;
    ++end;
  } else if (is_letter(c) || c == '.') {
    next_.kind = TokenKind::word;
    end = word_end(at_);
  } else if (c == '%') {
    next_.kind = TokenKind::percent;
    while (end < text_.size() && (is_digit(text_[end]) || text_[end] == '.')) ++end;
    if (end == at_ + 1 || !is_digit(text_[at_ + 1])) fail_at(next_, "a number was expected after '%', as in %3");
  } else if (is_digit(c) || c == '-' || c == '+') {
    next_.kind = TokenKind::number;
    end = number_end(at_);
    if (end - at_ > kMaxNumberBytes) fail_at(next_, fmt::format("a number of more than {} bytes", kMaxNumberBytes));
  } else if (std::string_view("=(){}[],:;@~*/").find(c) != std::string_view::npos) {
    next_.kind = TokenKind::mark;
  } else {
    const std::string character(text_.substr(at_, utf8_length(text_, at_)));
    fail_at(next_, fmt::format("'{}' is not expected here{}", character,
                               static_cast<unsigned char>(c) < 0x80 ? "" : "; such names go in quotes"));
  }
  if (end - at_ > kMaxNameBytes) fail_at(next_, fmt::format("a name of more than {} bytes", kMaxNameBytes));
  next_.text = text_.substr(at_, end - at_);
  at_ = end;
}

void Lexer::scan_quoted() {
  next_.kind = TokenKind::quoted;
  for (++at_;; ++at_) {
    if (at_ >= text_.size() || text_[at_] == '\n') {
      fail_at(next_, "this quote is not closed before the end of the line");
    }
    if (text_[at_] == '"') break;
    if (text_[at_] != '\\') {
      next_.text += text_[at_];
    } else {
      const char c = at_ + 1 < text_.size() ? text_[at_ + 1] : '\0';
      const int high = c == 'x' && at_ + 3 < text_.size() ? hex_digit(text_[at_ + 2]) : -1;
      const int low = high >= 0 ? hex_digit(text_[at_ + 3]) : -1;
      if (c == '"' || c == '\\' || c == 'n' || c == 't') {
        next_.text += c == 'n' ? '\n' : c == 't' ? '\t' : c;
        ++at_;
      } else if (low >= 0) {
        next_.text += static_cast<char>(high * 16 + low);
        at_ += 3;
      } else {
        fail_at(at_, line_, "unknown escape; there are \\\" \\\\ \\n \\t and \\x followed by two hex digits");
      }
    }
    if (next_.text.size() > kMaxNameBytes) fail_at(next_, fmt::format("a name of more than {} bytes", kMaxNameBytes));
  }
  ++at_;
}

void Lexer::fail_at(const Token& token, const std::string& message) const {
  fail_at(token.offset, token.line, message);
}

void Lexer::fail_at(std::size_t offset, int line, const std::string& message) const {
  offset = std::min(offset, text_.size());
  std::size_t start = offset;
  while (start > 0 && text_[start - 1] != '\n') --start;
  std::size_t end = std::min(text_.find('\n', offset), text_.size());
  std::size_t column = 1;  // in characters, as editors count
  for (std::size_t i = start; i < offset; ++i) column += !is_tail_byte(text_[i]);
  // Only the part of a long line around the place is shown.
  if (offset - start > kShownBytes / 2) start = character_start(text_, offset - kShownBytes / 2);
  if (end - start > kShownBytes) end = character_start(text_, start + kShownBytes);
  std::string shown, below;
  for (std::size_t i = start; i < end; ++i) {
    // The excerpt must be one clean line even when the error is about a stray byte.
    const bool is_clean = !is_control(text_[i]) && utf8_length(text_, character_start(text_, i)) != 0;
    shown += is_clean ? text_[i] : text_[i] == '\t' || text_[i] == '\r' ? ' ' : '?';
    if (i < offset && (!is_clean || !is_tail_byte(text_[i]))) below += ' ';
  }
  fail(ErrorKind::file, "<graph text>:{}:{}: {}\n  {}\n  {}^", line, column, message, shown, below);
}

}  // namespace paoding
