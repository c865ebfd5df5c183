// SPDX-License-Identifier: Apache-2.0
#include "text/part_reader.h"

#include <algorithm>
#include <charconv>
#include <limits>

#include "base/check.h"
#include "text/suggest.h"

namespace paoding {
namespace {

const char* kind_text(const AttrValue& example) {
  constexpr const char* texts[] = {"true or false",
                                   "an integer",
                                   "a number",
                                   "a string in quotes",
                                   "a dtype",
                                   "a list of integers, as in [0,1]",
                                   "a list of numbers, as in [0,1.5]"};
  return texts[example.index()];
}

}  // namespace

void PartReader::unexpected(const std::string& expected) const {
  fail_at(peek(), fmt::format("{} where {} was expected", describe(peek()), expected));
}

Token PartReader::expect(char mark, const char* why) {
  if (!peek().is(mark)) unexpected(fmt::format("'{}' {}", mark, why));
  return take();
}

void PartReader::end_line() {
  if (peek().kind == TokenKind::newline) {
    take();
  } else if (peek().kind != TokenKind::end) {
    unexpected("the end of the line");
  }
}

bool PartReader::at_name() const {
  const Token& token = peek();
  return token.kind == TokenKind::percent || token.kind == TokenKind::quoted ||
         (token.kind == TokenKind::word && token.text[0] != '.');
}

Token PartReader::name(const char* what) {
  if (!at_name()) unexpected(what);
  return take();
}

std::int64_t PartReader::integer(const char* what) {
  const Token& token = peek();
  if (token.kind != TokenKind::number) unexpected(what);
  std::int64_t value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  if (error == std::errc::result_out_of_range) {
    fail_at(token, fmt::format("{} does not fit 64 bits", describe(token)));
  }
  if (error != std::errc() || stop != end) fail_at(token, fmt::format("{} is not an integer", describe(token)));
  take();
  return value;
}

double PartReader::number(const char* what) {
  const Token& token = peek();
  const std::string_view text = token.kind == TokenKind::quoted ? std::string_view() : token.text;
  double value = 0;
  if (text == "inf" || text == "+inf" || text == "-inf") {
    value = text[0] == '-' ? -std::numeric_limits<double>::infinity() : std::numeric_limits<double>::infinity();
  } else if (text == "nan") {
    value = std::numeric_limits<double>::quiet_NaN();
  } else if (token.kind != TokenKind::number) {
    unexpected(what);
  } else {
    const char* end = text.data() + text.size();
    const auto [stop, error] = std::from_chars(text.data() + (text[0] == '+' ? 1 : 0), end, value);
    if (error == std::errc::result_out_of_range) {
      fail_at(token, fmt::format("{} does not fit an f64; infinity is written inf", describe(token)));
    }
    const char digit = text[text[0] == '-' || text[0] == '+' ? 1 : 0];
    if (error != std::errc() || stop != end || digit < '0' || digit > '9') {
      fail_at(token, fmt::format("{} is not a number", describe(token)));
    }
  }
  take();
  return value;
}

PartReader::Ints PartReader::int_list() {
  Ints list;
  expect('[', "before the list");
  while (!peek().is(']')) {
    if (!list.empty()) expect(',', "or ']' in the list");
    list.push_back(expression("an integer"));
  }
  take();
  return list;
}

bool PartReader::at_integer() const {
  const Token& token = peek();
  if (token.kind != TokenKind::number || token.text == "-0") return false;
  std::int64_t value = 0;
  const char* end = token.text.data() + token.text.size();
  const auto [stop, error] = std::from_chars(token.text.data(), end, value);
  return error == std::errc() && stop == end;
}

AttrValue PartReader::number_list(bool keeps_integers) {
  std::vector<double> list;
  Ints integers;
  expect('[', "before the list");
  while (!peek().is(']')) {
    if (!list.empty()) expect(',', "or ']' in the list");
    if (at_expression()) {
      const bool is_exact = keeps_integers && integers.size() == list.size();
      const std::int64_t whole = expression("a number");
      if (is_exact) integers.push_back(whole);
      list.push_back(static_cast<double>(whole));
    } else {
      list.push_back(number("a number"));
    }
  }
  take();
  if (!list.empty() && integers.size() == list.size()) return exact_numbers(integers);
  return list;
}

DType PartReader::dtype() {
  const Token token = peek();
  DType result = DType::f32;
  if (token.kind != TokenKind::word || !parse_dtype(token.text, &result)) {
    unexpected("a dtype (f64, f32, f16, bf16, i64, i32, u8, bool)");
  }
  take();
  return result;
}

Type PartReader::type() {
  const Token at = peek();
  const DType element = dtype();
  if (!peek().is('[')) unexpected(fmt::format("a shape, as in {0}[2,3], or {0}[] for a scalar,", to_string(element)));
  const Ints dims = int_list();
  return on_line(at, [&] { return Type{element, Shape(std::span<const std::int64_t>(dims))}; });
}

const OpDef& PartReader::find_versioned() {
  if (peek().kind == TokenKind::percent || !at_name()) unexpected("an op, input, parameter or gradients");
  const Token token = take();
  std::string op_name = token.text;
  std::int64_t version = 1;
  Token suffix = token;
  if (token.kind == TokenKind::quoted) {  // "odd name".v2
    if (peek().kind == TokenKind::word) suffix = take();
  } else if (const std::size_t dot = op_name.rfind(".v"); dot != std::string::npos) {
    suffix.text = op_name.substr(dot);
    op_name.resize(dot);
  }
  if (suffix.text.starts_with(".v")) {
    const char *begin = suffix.text.data() + 2, *end = suffix.text.data() + suffix.text.size();
    const auto [stop, error] = std::from_chars(begin, end, version);
    if (error != std::errc() || stop != end || version < 1 || *begin == '0') {
      fail_at(suffix, fmt::format("{} is not a version, as in mul.v2", describe(suffix)));
    }
  }
  const OpDef* op = find_op(op_name);
  if (op == nullptr) {
    std::vector<std::string> known;
    for (const OpDef* other : all_ops()) known.push_back(other->name);
    fail_at(token, fmt::format("there is no op '{}'{}; `paoding ops` lists them", shortened(op_name),
                               suggestion(op_name, known)));
  }
  if (version != op->version) {
    fail_at(token, fmt::format("there is no version {} of {} in this build, which has version {}{}", version, op_name,
                               op->version, version > op->version ? ": a newer paoding wrote this text" : ""));
  }
  return *op;
}

Attrs PartReader::attributes(const OpDef& op) {
  Attrs attrs;
  if (!peek().is('{')) return attrs;
  take();
  while (!peek().is('}')) {
    if (!attrs.entries().empty()) expect(',', "or '}' after the attribute");
    const Token token = peek();
    if (token.kind != TokenKind::word && token.kind != TokenKind::quoted) unexpected("an attribute");
    take();
    const auto spec = std::find_if(op.attrs.begin(), op.attrs.end(),
                                   [&](const AttrSpec& declared) { return declared.name == token.text; });
    if (spec == op.attrs.end()) {
      std::string known;
      for (const AttrSpec& declared : op.attrs) known += (known.empty() ? "" : ", ") + declared.name;
      fail_at(token, fmt::format("{} has no attribute {}; it takes: {}", op.name, describe(token),
                                 known.empty() ? "none" : known));
    }
    if (attrs.find(token.text) != nullptr) fail_at(token, fmt::format("attribute {} stands twice", describe(token)));
    expect('=', "after the attribute's name");
    attrs.set(token.text, attr_value(*spec));
  }
  take();
  return attrs;
}

AttrValue PartReader::attr_value(const AttrSpec& spec) {
  const AttrValue& example = spec.example;
  const char* what = kind_text(example);
  if (std::holds_alternative<double>(example) && at_expression()) {
    const std::int64_t whole = expression(what);
    return spec.keeps_integers ? Number(whole).attr() : AttrValue(static_cast<double>(whole));
  }
  if (std::holds_alternative<std::int64_t>(example)) return expression(what);
  if (std::holds_alternative<double>(example)) return number(what);
  if (std::holds_alternative<DType>(example)) return dtype();
  if (std::holds_alternative<Ints>(example)) {
    if (!peek().is('[')) unexpected(what);
    return int_list();
  }
  if (std::holds_alternative<std::vector<double>>(example)) {
    if (!peek().is('[')) unexpected(what);
    return number_list(spec.keeps_integers);
  }
  if (std::holds_alternative<bool>(example)) {
    if (!peek().is_word("true") && !peek().is_word("false")) unexpected(what);
    return take().text == "true";
  }
  if (peek().kind != TokenKind::quoted) unexpected(what);
  return take().text;
}

void PartReader::names_tail(Tail* tail) {
  while (peek().is('@')) {
    take();
    if (peek().is_word("cpu")) {
      take();
      tail->placement = Placement::cpu;
      continue;
    }
    if (peek().kind != TokenKind::quoted && peek().kind != TokenKind::word) unexpected("a scope, as in @\"decoder\"");
    if (!tail->scope.empty()) fail_at(peek(), "a second scope");
    tail->scope = take().text;
  }
  if (peek().is('~')) {
    take();
    if (peek().kind != TokenKind::quoted && peek().kind != TokenKind::word) unexpected("an origin, as in ~mul_grad");
    tail->origin = take().text;
  }
}

PartReader::Tail PartReader::read_tail() {
  Tail tail;
  tail.at = peek();
  if (peek().is(':')) {
    tail.has_types = true;
    do {
      take();
      tail.types.push_back(type());
    } while (peek().is(','));
  }
  names_tail(&tail);
  return tail;
}

}  // namespace paoding
