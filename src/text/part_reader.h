// SPDX-License-Identifier: Apache-2.0
// Reads the parts of statements of graph text: names, numbers, types, attributes, and the tail after a call. Errors
// (file) name the token found and the one expected, and show the line.
#pragma once

#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/check.h"
#include "paoding/extents.h"
#include "paoding/op.h"
#include "text/lexer.h"

namespace paoding {

class PartReader {
 public:
  using Ints = std::vector<std::int64_t>;

  explicit PartReader(std::string_view text) : lexer_(text) {}

  // ---- declarations ----

  /// The first line.
  void header();
  /// A declaration of an extent behind the word `extent`, to the end of its line.
  void extent_declaration(const Token& keyword);
  const std::vector<ExtentSpec>& extent_specs() const { return specs_; }
  /// The position of the extent that the token names; -1: none.
  int extent_of(const Token& token) const;
  /// Sizes of the extents in the order of their declarations.
  void set_sizes(std::vector<std::int64_t> sizes) { sizes_ = std::move(sizes); }

  // The tail that may stand after a call.
  struct Tail {
    Token at;
    std::vector<Type> types;
    bool has_types = false;
    Name scope, origin;
    Placement placement = Placement::any;
  };

  // ---- tokens ----

  const Token& peek() const { return lexer_.peek(); }
  Token take() { return lexer_.take(); }
  Token take_sign() { return lexer_.take_sign(); }
  [[noreturn]] void fail_at(const Token& token, const std::string& message) const { lexer_.fail_at(token, message); }
  [[noreturn]] void unexpected(const std::string& expected) const;
  Token expect(char mark, const char* why);
  void end_line();
  bool at_end() const { return peek().kind == TokenKind::end; }
  bool at_name() const;
  Token name(const char* what);

  // ---- values ----

  std::int64_t integer(const char* what);
  /// An integer, or an expression of integers and extents: (time + 1) // 2.
  std::int64_t expression(const char* what);
  double number(const char* what);
  Ints int_list();
  DType dtype();
  Type type();

  // ---- parts of a statement ----

  /// The op of that name, "mul" or "mul.v2".
  const OpDef& find_versioned();
  Attrs attributes(const OpDef& op);
  /// @"scope" @cpu ~origin; each may be missing. A scope named cpu stands in quotes.
  void names_tail(Tail* tail);
  /// Types and names.
  Tail read_tail();

  // Errors of ops keep their kind and get the line in front.
  template <class F>
  static auto on_line(const Token& token, F build) {
    try {
      return build();
    } catch (const Error& error) {
      throw Error(error.kind(), fmt::format("line {}: {}", token.line, error.what()));
    }
  }

 private:
  bool at_integer() const;     // whether the next number is one of 64 bits; -0 is a float
  bool at_expression() const;  // or an expression begins
  bool at_split_sign() const;  // of no number
  bool is_extent(std::string_view name) const;
  Buckets bucket_rule();
  std::int64_t sum(const char* what);
  std::int64_t product(const char* what);
  std::int64_t factor(const char* what);
  std::int64_t quotient(const Token& at, std::int64_t left, std::int64_t right, bool rounds_down) const;
  AttrValue number_list(bool keeps_integers);
  AttrValue attr_value(const AttrSpec& spec);

  Lexer lexer_;
  std::vector<ExtentSpec> specs_;
  std::vector<std::int64_t> sizes_;
  int depth_of_expression_ = 0;
};

}  // namespace paoding
