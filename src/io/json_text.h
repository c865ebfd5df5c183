// SPDX-License-Identifier: Apache-2.0
// Writing JSON: objects and arrays as text, put together by hand.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

namespace paoding {

/// `text` in quotes, everything escaped that JSON wants escaped.
std::string json_string(std::string_view text);
/// The shortest number that reads back to the same bits; null for NaN and infinities, which JSON lacks.
std::string json_number(double number);
std::string json_strings(const std::vector<std::string>& texts);

/// {"a":1,"b":"x"}: members in the order they are added.
class JsonObject {
 public:
  /// The text between members besides the comma: a line end for a text that people read.
  explicit JsonObject(std::string_view between = "") : between_(between) {}
  JsonObject& add(std::string_view key, std::string_view text);
  JsonObject& add(std::string_view key, const char* text) { return add(key, std::string_view(text)); }
  JsonObject& add(std::string_view key, const std::string& text) { return add(key, std::string_view(text)); }
  JsonObject& add(std::string_view key, double number);
  JsonObject& add(std::string_view key, std::int64_t number);
  JsonObject& add(std::string_view key, int number) { return add(key, std::int64_t{number}); }
  JsonObject& add(std::string_view key, bool flag);
  /// `json` is JSON already.
  JsonObject& add_json(std::string_view key, std::string_view json);
  std::string text() const { return "{" + between_ + members_ + between_ + "}"; }

 private:
  std::string between_;
  std::string members_;
};

/// [a,b]: every item is JSON already.
std::string json_array(const std::vector<std::string>& items);

}  // namespace paoding
