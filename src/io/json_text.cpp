// SPDX-License-Identifier: Apache-2.0
#include "io/json_text.h"

#include <fmt/format.h>
#include <simdjson.h>

#include <cmath>

#include "text/printable.h"

namespace paoding {

std::string json_string(std::string_view text) {
  // Names may hold any bytes; those that are no UTF-8 are written as the characters of their numbers.
  const bool is_utf8 = simdjson::validate_utf8(text);
  std::string quoted = "\"";
  for (std::size_t at = 0; at < text.size(); ++at) {
    const char c = text[at];
    const auto byte = static_cast<unsigned char>(c);
    if (c == '"' || c == '\\') {
      quoted += '\\';
      quoted += c;
    } else if (c == '\n') {
      quoted += "\\n";
    } else if (byte < 0x20 || byte == 0x7f || (byte >= 0x80 && !is_utf8)) {
      quoted += fmt::format("\\u{:04x}", byte);
    } else if (is_utf8 && unreadable_length(text, at) == 2) {  // a control character of two bytes
      quoted += fmt::format("\\u{:04x}", static_cast<unsigned char>(text[++at]));
    } else {
      quoted += c;
    }
  }
  return quoted + "\"";
}

std::string json_number(double number) {
  if (number == 0 && std::signbit(number)) return "-0.0";  // "-0" would be read as a whole number, which has no sign
  return std::isfinite(number) ? fmt::format("{}", number) : "null";
}

std::string json_strings(const std::vector<std::string>& texts) {
  std::vector<std::string> items;
  for (const std::string& text : texts) items.push_back(json_string(text));
  return json_array(items);
}

JsonObject& JsonObject::add(std::string_view key, std::string_view text) { return add_json(key, json_string(text)); }
JsonObject& JsonObject::add(std::string_view key, double number) { return add_json(key, json_number(number)); }
JsonObject& JsonObject::add(std::string_view key, std::int64_t number) {
  return add_json(key, fmt::format("{}", number));
}
JsonObject& JsonObject::add(std::string_view key, bool flag) { return add_json(key, flag ? "true" : "false"); }

JsonObject& JsonObject::add_json(std::string_view key, std::string_view json) {
  if (!members_.empty()) members_ += "," + between_;
  members_ += json_string(key) + ":";
  members_ += json;
  return *this;
}

std::string json_array(const std::vector<std::string>& items) { return fmt::format("[{}]", fmt::join(items, ",")); }

}  // namespace paoding
