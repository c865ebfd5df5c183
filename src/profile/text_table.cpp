// SPDX-License-Identifier: Apache-2.0
#include "profile/text_table.h"

#include <fmt/format.h>

#include <algorithm>

#include "profile/row_names.h"

namespace paoding::profile {
namespace {

std::string six_digits(double number) {
  std::string text = fmt::format("{:.6f}", number);
  text.erase(text.find_last_not_of('0') + 1);
  if (text.ends_with('.')) text.pop_back();
  return text;
}

}  // namespace

std::string ms(double ns) { return six_digits(ns / 1e6); }
std::string place(int device, std::string_view process) {
  const std::string own = device < 0 ? "CPU" : fmt::format("GPU {}", device);
  return process.empty() ? own : fmt::format("{} {}", process, own);
}
std::string millions(std::int64_t count) { return six_digits(static_cast<double>(count) / 1e6); }

std::vector<std::size_t> widths_of(const std::vector<Cells>& lines) {
  std::vector<std::size_t> widths;
  for (const Cells& cells : lines) {
    widths.resize(std::max(widths.size(), cells.size()), 0);
    for (std::size_t c = 0; c < cells.size(); ++c) widths[c] = std::max(widths[c], characters(cells[c]));
  }
  return widths;
}

void append_table(std::string& out, const std::vector<Cells>& lines) {
  const std::vector<std::size_t> widths = widths_of(lines);
  for (const Cells& cells : lines) {
    for (std::size_t c = 0; c < cells.size(); ++c) {
      const bool is_last = c + 1 == cells.size();
      out += cells[c];
      if (!is_last) out.append(widths[c] - characters(cells[c]) + 2, ' ');
    }
    out += '\n';
  }
}

}  // namespace paoding::profile
