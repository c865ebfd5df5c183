// SPDX-License-Identifier: Apache-2.0
#include "findings/operand_text.h"

#include <fmt/format.h>

#include <algorithm>
#include <array>
#include <utility>

namespace paoding::findings {

namespace {

std::string_view short_type(std::string_view name) {
  static constexpr auto kTypes = std::to_array<std::pair<std::string_view, std::string_view>>({
      {"float", "f32"},
      {"double", "f64"},
      {"c10::Half", "f16"},
      {"c10::BFloat16", "bf16"},
      {"long int", "i64"},
      {"long", "i64"},
      {"int", "i32"},
      {"short int", "i16"},
      {"short", "i16"},
      {"signed char", "i8"},
      {"unsigned char", "u8"},
      {"c10::Float8_e4m3fn", "f8e4m3fn"},
      {"c10::Float8_e5m2", "f8e5m2"},
      {"c10::complex<float>", "c64"},
  });
  const auto found = std::ranges::find(kTypes, name, [](const auto& one) { return one.first; });
  return found == kTypes.end() ? name : found->second;
}

// "[8192, 4096]" without blanks; "" where it is no tensor.
std::string extents_text(std::string_view shape, std::string_view type) {
  const bool is_number = type == "Scalar" || type == "ScalarList" || (type.empty() && shape == "[]");
  if (is_number || shape.empty() || shape.front() != '[') return "";
  std::string text;
  for (const char c : shape) {
    if (c != ' ' && c != '\n' && c != '\t') text += c;
  }
  return text;
}

// XLA writes how an array lies in memory behind its extents: "f32[8,4]{1,0}".
std::string without_layouts(std::string_view text) {
  std::string made;
  int depth = 0;
  for (const char c : text) {
    if (c == '{') ++depth;
    if (depth == 0) made += c;
    if (c == '}' && depth > 0) --depth;
  }
  return made;
}

}  // namespace

bool split_list(std::string_view text, std::vector<std::string_view>* elements) {
  while (!text.empty() && text.front() == ' ') text.remove_prefix(1);
  while (!text.empty() && text.back() == ' ') text.remove_suffix(1);
  if (text.size() < 2 || text.front() != '[' || text.back() != ']') return false;
  text = text.substr(1, text.size() - 2);
  int depth = 0;
  bool is_quoted = false;
  std::size_t from = 0;
  const auto take = [&](std::size_t to) {
    std::string_view one = text.substr(from, to - from);
    while (!one.empty() && (one.front() == ' ' || one.front() == '\n' || one.front() == '\t')) one.remove_prefix(1);
    while (!one.empty() && (one.back() == ' ' || one.back() == '\n' || one.back() == '\t')) one.remove_suffix(1);
    if (one.size() >= 2 && one.front() == '"' && one.back() == '"') one = one.substr(1, one.size() - 2);
    elements->push_back(one);
    from = to + 1;
  };
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '"') is_quoted = !is_quoted;
    if (is_quoted) continue;
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth < 0) return false;
    if (text[i] == ',' && depth == 0) take(i);
  }
  if (depth != 0 || is_quoted) return false;
  if (!elements->empty() || text.find_first_not_of(" \n\t") != text.npos) take(text.size());
  return true;
}

std::string operands_text(std::string_view op, std::string_view shapes, std::string_view types) {
  constexpr std::size_t kMost = 4;
  while (!shapes.empty() && shapes.front() == ' ') shapes.remove_prefix(1);
  if (shapes.empty()) return "";
  if (shapes.front() != '[') return without_layouts(shapes);
  std::vector<std::string_view> each, named;
  if (!split_list(shapes, &each)) return "";
  if (!split_list(types, &named) || named.size() != each.size()) named.assign(each.size(), "");
  std::vector<std::string> operands;
  for (std::size_t i = 0; i < each.size(); ++i) {
    std::string extents = extents_text(each[i], named[i]);
    if (extents.starts_with("[[")) {  // a list of tensors
      std::vector<std::string_view> inside;
      if (split_list(each[i], &inside)) extents = fmt::format("list of {}", inside.size());
    } else if (!extents.empty()) {
      extents = std::string(short_type(named[i])) + extents;
    }
    if (!extents.empty()) operands.push_back(std::move(extents));
  }
  // The first operand of a copy is its result.
  if (op.ends_with("::copy_") && operands.size() == 2) return operands[1] + " -> " + operands[0];
  std::string text;
  for (std::size_t i = 0; i < std::min(kMost, operands.size()); ++i) text += (i == 0 ? "" : ", ") + operands[i];
  if (operands.size() > kMost) text += fmt::format(" and {} more", operands.size() - kMost);
  return text;
}

std::string cast_text(std::string_view operands) {
  const std::size_t arrow = operands.find(" -> ");
  if (arrow == operands.npos) return "";
  const auto type_of = [](std::string_view operand) { return operand.substr(0, operand.find('[')); };
  const std::string_view from = type_of(operands.substr(0, arrow)), to = type_of(operands.substr(arrow + 4));
  if (from.empty() || to.empty() || from == to) return "";
  return fmt::format("{} to {}", from, to);
}

}  // namespace paoding::findings
