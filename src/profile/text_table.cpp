// SPDX-License-Identifier: Apache-2.0
#include "profile/text_table.h"

#include <fmt/format.h>

#include <algorithm>
#include <numeric>

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

void append_words(std::string& out, std::string_view line, int width) {
  constexpr std::string_view kIndent = "  ";
  constexpr int kLeast = 16;  // whatever the terminal is
  if (width <= 0) {
    if (line.ends_with(' ')) line.remove_suffix(1);
    out.append(line);
    out += '\n';
    return;
  }
  const auto most = static_cast<std::size_t>(std::max(width, kLeast));
  std::string row;
  bool has_words = false;
  while (!line.empty()) {
    std::string_view word = line.substr(0, std::min(line.find(' '), line.size()));
    line.remove_prefix(std::min(word.size() + 1, line.size()));
    if (has_words && characters(row) + 1 + characters(word) > most) {
      out += row + '\n';
      row = kIndent;
    } else if (has_words) {
      row += ' ';
    }
    for (; characters(row) + characters(word) > most; row = kIndent) {  // longer than a line by itself
      const std::string_view fits = head(word, most - characters(row));
      out += row + std::string(fits) + '\n';
      word.remove_prefix(fits.size());
    }
    row += word;
    has_words = true;
  }
  out += row + '\n';
}

void append_table(std::string& out, std::vector<Cells> lines, int width) {
  constexpr std::size_t kLeast = 10;    // of a column that is cut
  constexpr std::size_t kWidest = 512;  // of a cell: it is what every line is padded to
  for (Cells& cells : lines) {
    for (std::string& cell : cells) cell = cut_to(cell, kWidest);
  }
  std::vector<std::size_t> widths = widths_of(lines);
  while (width > 0 && !widths.empty()) {
    const std::size_t all = std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
    const auto widest = static_cast<std::size_t>(std::ranges::max_element(widths) - widths.begin());
    if (all <= static_cast<std::size_t>(width) || widths[widest] <= kLeast) break;
    const std::size_t over = all - static_cast<std::size_t>(width);
    const std::size_t left = widths[widest] > over + kLeast ? widths[widest] - over : kLeast;
    for (Cells& cells : lines) {
      if (widest < cells.size()) cells[widest] = cut_to(cells[widest], left);
    }
    widths = widths_of(lines);
  }
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
