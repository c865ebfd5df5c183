// SPDX-License-Identifier: Apache-2.0
// Pieces of kernel text: a group's Expr as a CUDA function, the Sizes struct, indented lines.
#pragma once

#include <fmt/format.h>

#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "group/group.h"

namespace paoding::gpu {

/// The prelude's type for an element as stored, and for arithmetic on it.
std::string_view stored_type(DType dtype);
std::string_view computed_type(DType dtype);

/// The prelude's type that combines two elements.
std::string_view combine_text(Combine combine);

/// Which loads, indices and own reductions some values depend on; what a reduction depends on does not count.
struct FormulaUse {
  std::vector<bool> nodes, loads, indices, reductions;
};
FormulaUse used_by(const Group& group, const std::vector<std::int32_t>& values);
/// The values of the outputs that are live.
std::vector<std::int32_t> live_values(const Group& group, const std::vector<bool>& is_live);
/// Whether the numbers of index i need 64 bits.
bool index_is_wide(const Group& group, std::size_t i);

/// A result of a formula: the name of its parameter and the node of the Expr.
struct FormulaResult {
  std::string name;
  std::int32_t value = -1;
};
/// "void name(loads, indices and reductions in use by value, results by reference)".
std::string formula_text(const Group& group, std::string_view name, const std::vector<FormulaResult>& results);

/// The Sizes struct: fields in the text, words for the launch. A size that is used as an Index is declared as one, in a
/// word of its own: read as 64 bits and narrowed, the ptxas of CUDA 13.0 turns the minimum of two sizes into a 16-bit
/// move that leaves the upper half of the register undefined.
class SizeFields {
 public:
  std::string number(const std::string& name, std::int64_t value) {
    if (add(name, "alignas(8) Index")) words_.push_back(static_cast<std::uint64_t>(value));
    return "size." + name;
  }
  std::string wide_number(const std::string& name, std::int64_t value) {
    if (add(name + "_wide", "long long")) words_.push_back(static_cast<std::uint64_t>(value));
    return "size." + name + "_wide";
  }
  /// For division by `count`; Hacker's Delight 10-9: with shift = ceil(log2 count), exact for n < 2^31.
  std::string divisor(const std::string& name, std::int64_t count) {
    if (add(name, "Divisor")) {
      std::uint64_t shift = 0, magic = 0;
      if (count < (std::int64_t{1} << 31)) {
        while ((std::int64_t{1} << shift) < count) ++shift;
        const auto d = static_cast<std::uint64_t>(count);
        magic = (((std::uint64_t{1} << shift) - d) << 32) / d + 1;
      }
      words_.push_back(static_cast<std::uint64_t>(count));
      words_.push_back((magic & 0xffffffffu) | shift << 32);
    }
    return "size." + name;
  }
  std::string text() const {
    std::string fields;
    for (const auto& [name, type] : fields_) fields += fmt::format("  {} {};\n", type, name);
    return "struct Sizes {\n" + fields + "};\n";
  }
  const std::vector<std::uint64_t>& words() const { return words_; }

 private:
  bool add(const std::string& name, const char* type) {
    for (const auto& field : fields_) {
      if (field.first == name) return false;
    }
    fields_.emplace_back(name, type);
    return true;
  }
  std::vector<std::pair<std::string, const char*>> fields_;
  std::vector<std::uint64_t> words_;
};

/// Lines with indentation that follows the braces.
class Lines {
 public:
  template <class... Args>
  void add(fmt::format_string<Args...> format, Args&&... args) {
    raw(fmt::format(format, std::forward<Args>(args)...));
  }
  void raw(const std::string& line) {
    if (line.starts_with('}')) --depth_;
    text_ += line.empty() ? line : std::string(static_cast<std::size_t>(2 * depth_), ' ') + line;
    text_ += '\n';
    if (line.ends_with('{')) ++depth_;
  }
  void indent() { ++depth_; }
  const std::string& text() const { return text_; }

 private:
  std::string text_;
  int depth_ = 0;
};

}  // namespace paoding::gpu
