// SPDX-License-Identifier: Apache-2.0
#include "graph/equal_attrs.h"

#include <algorithm>
#include <bit>

namespace paoding {

void mix(std::size_t* hash, std::size_t value) {
  *hash = (*hash ^ value) * 0x9E3779B97F4A7C15ull;
  *hash ^= *hash >> 29;
}

std::size_t hash_of(const AttrValue& value) {
  std::size_t hash = value.index();
  if (const auto* flag = std::get_if<bool>(&value)) mix(&hash, *flag);
  if (const auto* number = std::get_if<std::int64_t>(&value)) mix(&hash, static_cast<std::size_t>(*number));
  if (const auto* number = std::get_if<double>(&value)) mix(&hash, std::bit_cast<std::uint64_t>(*number));
  if (const auto* text = std::get_if<std::string>(&value)) mix(&hash, std::hash<std::string>()(*text));
  if (const auto* dtype = std::get_if<DType>(&value)) mix(&hash, static_cast<std::size_t>(*dtype));
  if (const auto* ints = std::get_if<std::vector<std::int64_t>>(&value)) {
    for (std::int64_t number : *ints) mix(&hash, static_cast<std::size_t>(number));
  }
  if (const auto* floats = std::get_if<std::vector<double>>(&value)) {
    for (double number : *floats) mix(&hash, std::bit_cast<std::uint64_t>(number));
  }
  return hash;
}

std::size_t hash_of(const Attrs& attrs) {
  std::size_t hash = attrs.entries().size();
  for (const auto& [name, value] : attrs.entries()) mix(&hash, hash_of(value));
  return hash;
}

bool equal_values(const AttrValue& a, const AttrValue& b) {
  const auto same_bits = [](double x, double y) {
    return std::bit_cast<std::uint64_t>(x) == std::bit_cast<std::uint64_t>(y);
  };
  if (a.index() != b.index()) return false;
  if (const auto* number = std::get_if<double>(&a)) return same_bits(*number, std::get<double>(b));
  if (const auto* list = std::get_if<std::vector<double>>(&a)) {
    return std::ranges::equal(*list, std::get<std::vector<double>>(b), same_bits);
  }
  return a == b;
}

bool equal_attrs(const Attrs& a, const Attrs& b) {
  if (a.entries().size() != b.entries().size()) return false;
  for (std::size_t i = 0; i < a.entries().size(); ++i) {
    if (a.entries()[i].first != b.entries()[i].first) return false;
    if (!equal_values(a.entries()[i].second, b.entries()[i].second)) return false;
  }
  return true;
}

}  // namespace paoding
