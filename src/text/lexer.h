// SPDX-License-Identifier: Apache-2.0
// The words of graph text, shared by printing and parsing: tokens with positions, and names with their quotes.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>

namespace paoding {

enum class TokenKind : std::uint8_t {
  end,      // of the text
  newline,  // one or more line ends, with the comments before them
  word,     // x, encoder.h0, scan, .v2
  quoted,   // "encoder/h 0"; Token::text is without quotes and escapes
  percent,  // %3, %3.1
  number,   // 12, -0.5, 1e-3, -inf
  mark,     // one of = ( ) { } [ ] , : ; @ ~ * / and ..
};

struct Token {
  TokenKind kind = TokenKind::end;
  std::string text;
  std::size_t offset = 0;  // of its first byte
  int line = 1;

  bool is(char mark) const { return kind == TokenKind::mark && text[0] == mark; }
  bool is_word(std::string_view word) const { return kind == TokenKind::word && text == word; }
};

/// Reads tokens on demand. Error (file) on bytes that are no token, invalid UTF-8, control characters, an open string.
class Lexer {
 public:
  explicit Lexer(std::string_view text);

  const Token& peek() const { return next_; }
  Token take();
  /// The sign of the number that comes next, as a token of its own: `time-1` is a difference.
  Token take_sign();

  /// Error (file) "<graph text>:LINE:COLUMN: message" with the line and a caret below it.
  [[noreturn]] void fail_at(const Token& token, const std::string& message) const;

 private:
  void scan();
  void scan_quoted();
  void skip_blanks();
  std::size_t word_end(std::size_t at) const;
  std::size_t number_end(std::size_t at) const;
  bool is_range(std::size_t at) const;
  [[noreturn]] void fail_at(std::size_t offset, int line, const std::string& message) const;

  std::string_view text_;
  std::size_t at_ = 0;
  int line_ = 1;
  Token next_;
};

/// "'x'", "a number", "the end of the line": a token as errors call it.
std::string describe(const Token& token);
/// At most 60 bytes of `text`, cut at a character.
std::string shortened(std::string_view text);

/// [A-Za-z_][A-Za-z0-9_.]*: needs no quotes.
bool is_plain_name(std::string_view name);
/// `name` in quotes; quotes, backslashes, control characters and bytes that are not UTF-8 escaped.
std::string quote(std::string_view name);

/// Bytes of the UTF-8 character that starts at `at`; 0 when there is none (truncated, overlong, surrogate).
std::size_t utf8_length(std::string_view text, std::size_t at);

}  // namespace paoding
