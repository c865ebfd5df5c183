// SPDX-License-Identifier: Apache-2.0
// Declarations of extents in graph text, and expressions of them. Every operation is checked: the text may come from
// anywhere.
#include <algorithm>

#include "text/part_reader.h"
#include "text/suggest.h"

namespace paoding {
namespace {

constexpr std::int64_t kVersion = 1;
constexpr int kMaxExpressionDepth = 64;  // of parentheses and signs
constexpr std::size_t kMaxExtents = 32;
constexpr std::size_t kMaxBuckets = 4096;

}  // namespace

void PartReader::header() {
  if (peek().kind == TokenKind::newline) take();
  const char* first_line = "the first line 'paoding graph 1'";
  if (!peek().is_word("paoding")) unexpected(first_line);
  take();
  if (!peek().is_word("graph")) unexpected(first_line);
  take();
  const Token at = peek();
  const std::int64_t version = integer(first_line);
  if (version < 1) {
    fail_at(at, fmt::format("there is no version {} of graph text; this is version {}", version, kVersion));
  }
  if (version > kVersion) {
    fail_at(at, fmt::format("this text is version {}, but this build reads up to version {}: read it with a newer "
                            "paoding, or write it again with this one",
                            version, kVersion));
  }
  end_line();
}

// ---- extents ----

int PartReader::extent_of(const Token& token) const {
  if (token.kind != TokenKind::word) return -1;
  const auto found = std::ranges::find(specs_, token.text, &ExtentSpec::name);
  return found == specs_.end() ? -1 : static_cast<int>(found - specs_.begin());
}

bool PartReader::is_extent(std::string_view name) const {
  return std::ranges::find(specs_, name, &ExtentSpec::name) != specs_.end();
}

// extent time = 1..512 multiples_of(8)
void PartReader::extent_declaration(const Token& keyword) {
  const Token label = take();
  if (label.kind != TokenKind::word || label.text == "inf" || label.text == "nan") {
    fail_at(label, fmt::format("{} is no name of an extent, needed is a word as batch or time", describe(label)));
  }
  if (extent_of(label) >= 0) fail_at(label, fmt::format("extent {} is declared twice", describe(label)));
  if (specs_.size() == kMaxExtents) fail_at(keyword, fmt::format("more than {} extents", kMaxExtents));
  const char* bounds = "the bounds of the extent, as in 1..512,";
  expect('=', "after the extent's name");
  ExtentSpec spec{label.text, integer(bounds)};
  if (!peek().is('.')) unexpected("'..' between the bounds");
  take();
  spec.maximum = integer(bounds);
  if (peek().kind == TokenKind::word) spec.buckets = bucket_rule();
  on_line(label, [&] { Extents({spec}); });  // its check
  specs_.push_back(std::move(spec));
  end_line();
}

Buckets PartReader::bucket_rule() {
  const Token rule = take();
  std::vector<std::int64_t> numbers;
  expect('(', "after the rule");
  while (!peek().is(')')) {
    if (!numbers.empty()) expect(',', "or ')' after a size");
    if (numbers.size() == kMaxBuckets) fail_at(peek(), fmt::format("more than {} buckets", kMaxBuckets));
    numbers.push_back(integer("a size"));
  }
  const Token end = take();
  if (rule.text == "multiples_of") {
    if (numbers.size() != 1) fail_at(end, "multiples_of takes one size, as in multiples_of(8)");
    return on_line(rule, [&] { return multiples_of(numbers[0]); });
  }
  if (rule.text == "powers_of_two") {
    if (!numbers.empty()) fail_at(end, "powers_of_two() takes nothing");
    return powers_of_two();
  }
  if (rule.text == "sizes") return on_line(rule, [&] { return bucket_sizes(std::move(numbers)); });
  fail_at(rule, fmt::format("there is no rule {} for buckets; there are multiples_of(n), powers_of_two() and "
                            "sizes(a, b, ..)",
                            describe(rule)));
}

// ---- expressions ----

bool PartReader::at_split_sign() const {
  const Token& token = peek();
  if (token.kind != TokenKind::number || (token.text[0] != '-' && token.text[0] != '+')) return false;
  return token.text.size() == 1 || is_extent(token.text.substr(1));
}

bool PartReader::at_expression() const {
  return at_integer() || peek().is('(') || extent_of(peek()) >= 0 || (!specs_.empty() && at_split_sign());
}

std::int64_t PartReader::expression(const char* what) { return sum(what); }

std::int64_t PartReader::sum(const char* what) {
  std::int64_t total = product(what);
  while (peek().kind == TokenKind::number && (peek().text[0] == '-' || peek().text[0] == '+')) {
    const Token sign = take_sign();
    const std::int64_t next = product("an integer or an extent");
    if (sign.is('-') ? __builtin_sub_overflow(total, next, &total) : __builtin_add_overflow(total, next, &total)) {
      fail_at(sign, "the result does not fit 64 bits");
    }
  }
  return total;
}

std::int64_t PartReader::product(const char* what) {
  std::int64_t total = factor(what);
  while (peek().is('*') || peek().is('/')) {
    const Token at = take();
    if (at.is('*')) {
      const std::int64_t next = factor("an integer or an extent");
      if (__builtin_mul_overflow(total, next, &total)) fail_at(at, "the result does not fit 64 bits");
      continue;
    }
    const bool rounds_down = peek().is('/') && peek().offset == at.offset + 1;
    if (rounds_down) take();
    total = quotient(at, total, factor("an integer or an extent"), rounds_down);
  }
  return total;
}

std::int64_t PartReader::quotient(const Token& at, std::int64_t left, std::int64_t right, bool rounds_down) const {
  if (right == 0) fail_at(at, fmt::format("{} is divided by 0", left));
  if (right == -1) {
    std::int64_t negated = 0;
    if (__builtin_sub_overflow(0, left, &negated)) fail_at(at, "the result does not fit 64 bits");
    return negated;
  }
  const std::int64_t whole = left / right, rest = left % right;
  if (rest == 0) return whole;
  if (!rounds_down) fail_at(at, fmt::format("{} / {} is no integer; // rounds down", left, right));
  return (rest < 0) != (right < 0) ? whole - 1 : whole;
}

std::int64_t PartReader::factor(const char* what) {
  const Token at = peek();
  const bool is_open = at.is('('), is_sign = at_split_sign();
  if (is_open || is_sign) {
    if (++depth_of_expression_ > kMaxExpressionDepth) {
      fail_at(at, fmt::format("an expression is nested deeper than {}", kMaxExpressionDepth));
    }
    std::int64_t value = 0;
    if (is_open) {
      take();
      value = sum("an integer or an extent");
      expect(')', "after the expression");
    } else {
      const bool is_minus = take_sign().is('-');
      value = factor("an integer or an extent");
      if (is_minus && __builtin_sub_overflow(0, value, &value)) fail_at(at, "the result does not fit 64 bits");
    }
    --depth_of_expression_;
    return value;
  }
  const int extent = extent_of(at);
  if (extent >= 0) {
    take();
    return sizes_.at(static_cast<std::size_t>(extent));
  }
  if (at.kind == TokenKind::word && !specs_.empty()) {
    std::vector<std::string> known;
    for (const ExtentSpec& spec : specs_) known.push_back(spec.name);
    fail_at(at, fmt::format("there is no extent {} above this line{}", describe(at), suggestion(at.text, known)));
  }
  return integer(what);
}

}  // namespace paoding
