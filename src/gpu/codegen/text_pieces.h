// SPDX-License-Identifier: Apache-2.0
// Pieces of kernel sources: type names, the Sizes struct, indented lines.
#pragma once

#include <fmt/format.h>

#include <algorithm>
#include <cstdint>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/check.h"
#include "paoding/types.h"

namespace paoding::gpu {

/// The prelude's type for an element as stored, and for arithmetic on it.
std::string_view stored_type(DType dtype);
std::string_view computed_type(DType dtype);

/// The Sizes struct: fields in the source, words for the launch. A size that is used as an Index is declared as one, in
/// a word of its own: read as 64 bits and narrowed, the ptxas of CUDA 13.0 turns the minimum of two sizes into a 16-bit
/// move that leaves the upper half of the register undefined.
class SizeFields {
 public:
  std::string number(const std::string& name, std::int64_t value) {
    if (add(name, "alignas(8) Index")) words_.push_back(static_cast<std::uint64_t>(value));
    return "size." + name;
  }
  /// The source of a size that is there already.
  std::string named(const std::string& name) const {
    PD_ASSERT(has(name), "a size is used before it has a value");
    return "size." + name;
  }
  std::string wide_number(const std::string& name, std::int64_t value) {
    if (add(name + "_wide", "long long")) words_.push_back(static_cast<std::uint64_t>(value));
    return "size." + name + "_wide";
  }
  /// Source of a divisor for `count`; Hacker's Delight 10-9: with shift = ceil(log2 count), exact for n < 2^31.
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
  bool has(const std::string& name) const {
    return std::any_of(fields_.begin(), fields_.end(), [&](const auto& field) { return field.first == name; });
  }
  bool add(const std::string& name, const char* type) {
    if (has(name)) return false;
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
