// SPDX-License-Identifier: Apache-2.0
#include "trace/nvtx_name.h"

#include <algorithm>
#include <array>
#include <cctype>
#include <charconv>

namespace paoding::trace {
namespace {

using profile::SpanKind;

// What stands behind `key` up to one of the ends; empty where it is missing.
std::string_view value_of(std::string_view text, std::string_view key, std::string_view ends) {
  const std::size_t at = text.find(key);
  if (at == text.npos) return {};
  text = text.substr(at + key.size());
  return text.substr(0, text.find_first_of(ends));
}

// The list in brackets behind `key`, with the lists in it.
std::string_view list_of(std::string_view text, std::string_view key) {
  const std::size_t at = text.find(key);
  if (at == text.npos) return {};
  text = text.substr(at + key.size());
  int depth = 0;
  for (std::size_t i = 0; i < text.size(); ++i) {
    if (text[i] == '[') ++depth;
    if (text[i] == ']' && --depth <= 0) return text.substr(0, i + 1);
    if (depth == 0) break;
  }
  return {};
}

// "step 12", "ProfilerStep#3", "iteration_7".
bool is_step(std::string_view text) {
  constexpr std::array<std::string_view, 6> kWords = {"profilerstep", "step",  "iteration",
                                                      "iter",         "batch", "train_step"};
  std::size_t end = text.size();
  while (end > 0 && std::isdigit(static_cast<unsigned char>(text[end - 1])) != 0) --end;
  if (end == text.size()) return false;
  while (end > 0 && std::string_view(" #_:-=").find(text[end - 1]) != std::string_view::npos) --end;
  const std::string_view word = text.substr(0, end);
  return std::ranges::any_of(kWords, [&](std::string_view known) {
    return std::ranges::equal(word, known, {},
                              [](char c) { return static_cast<char>(std::tolower(static_cast<unsigned char>(c))); });
  });
}

}  // namespace

NvtxName parse_nvtx_name(std::string_view text) {
  NvtxName made{.name = text};
  if (text.starts_with("TSL:")) {
    const std::string_view op = value_of(text, "hlo_op=", ",#"), module = value_of(text, "hlo_module=", ",#");
    if (!op.empty()) {
      made.kind = SpanKind::op;
      made.instance = op;
      made.name = op.substr(0, op.rfind('.'));
    } else if (!module.empty() && text.starts_with("TSL:XlaModule")) {
      made.kind = SpanKind::run;
      made.name = module;
    } else {
      made.name = text.substr(4, text.find('#') == text.npos ? text.npos : text.find('#') - 4);
      while (made.name.ends_with(':')) made.name.remove_suffix(1);
    }
    return made;
  }
  const std::size_t comma = text.find(", ");
  const std::string_view more = comma == text.npos ? std::string_view() : text.substr(comma + 2);
  if (more.starts_with("seq = ") || more.starts_with("op_id = ") || more.starts_with("sizes = ")) {
    made.kind = SpanKind::op;
    made.name = text.substr(0, comma);
    made.shapes = list_of(more, "sizes = ");
    const std::string_view sequence = value_of(more, "seq = ", ",");
    std::from_chars(sequence.data(), sequence.data() + sequence.size(), made.sequence);
    return made;
  }
  if (is_step(text)) made.kind = SpanKind::step;
  return made;
}

}  // namespace paoding::trace
