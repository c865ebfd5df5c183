// SPDX-License-Identifier: Apache-2.0
#include "profile/event_table.h"

#include <fmt/format.h>
#include <fmt/ranges.h>

#include <algorithm>
#include <functional>
#include <numeric>

#include "profile/row_names.h"
#include "profile/text_table.h"

namespace paoding::profile {
namespace {

constexpr double kNsPerMs = 1e6;
constexpr int kLeastName = 24;  // characters, before a column goes

struct Column {
  std::string title;
  std::function<std::string(const Row&)> cell;
  int goes = 0;  // where lines are narrow, those with the highest number first; 0 stays
};

// So many a second, in units of 10^9; nothing where it is not known. A row on a GPU is set against what that took.
std::string rate(double amount, const Row& row) {
  const double ns = row.gpu > 0 ? row.gpu : row.total;
  return amount > 0 && ns > 0 ? fmt::format("{:.4g}", amount / ns) : "";
}

std::string with_share(double ns, double total) {
  return fmt::format("{:.6f} ({:.6f})", ns / kNsPerMs, share(ns, total));
}

std::vector<Column> columns_of(const ReportOptions& options, bool has_both, const Limit& limit) {
  const auto scaled = [](const Row& row) { return row.scaled > 0 ? "~" : ""; };
  std::vector<Column> columns{
      {"Calls", [=](const Row& row) { return fmt::format("{}{}", scaled(row), row.calls); }},
      {"Total", [=](const Row& row) { return scaled(row) + ms(row.total); }},
  };
  if (options.self) columns.push_back({"Self", [](const Row& row) { return ms(row.self); }, 1});
  if (has_both) {
    columns.push_back({"CPU Time (Ratio)", [](const Row& row) { return with_share(row.cpu, row.total); }, 7});
    columns.push_back({"GPU Time (Ratio)", [](const Row& row) { return with_share(row.gpu, row.total); }, 6});
  }
  columns.push_back({"Min.", [](const Row& row) { return ms(row.min); }, 9});
  columns.push_back({"Max.", [](const Row& row) { return ms(row.max); }, 8});
  columns.push_back({"Ave.", [](const Row& row) { return ms(row.average()); }, 5});
  columns.push_back({"Ratio.", [](const Row& row) { return fmt::format("{:g}", row.ratio); }});
  if (!options.rates) return columns;
  columns.push_back({"GB/s", [](const Row& row) { return rate(row.bytes, row); }, 3});
  columns.push_back({"GFLOP/s", [](const Row& row) { return rate(row.flops, row); }, 4});
  if (limit.bytes_per_ns <= 0) return columns;
  columns.push_back({"Of limit", [](const Row& row) {
                       return row.has_floor() ? fmt::format("{:.3g}%", 100 * row.floor_ns / row.gpu) : "";
                     }});
  columns.push_back(
      {"Lost", [](const Row& row) { return row.has_floor() ? fmt::format("{:.6f}", row.lost() / kNsPerMs) : ""; }});
  return columns;
}

std::vector<Cells> lines_of(const std::vector<Section>& sections, const std::vector<Column>& columns, int width) {
  std::vector<Cells> lines{{"Event"}};
  for (const Column& column : columns) lines[0].push_back(column.title);
  for (const Section& section : sections) {
    const std::vector<std::string> names = row_names(section, width);
    for (std::size_t i = 0; i < section.rows.size(); ++i) {
      Cells cells{names[i]};
      for (const Column& column : columns) cells.push_back(column.cell(section.rows[i]));
      lines.push_back(std::move(cells));
    }
  }
  return lines;
}

}  // namespace

void append_events(std::string& out, const std::vector<Section>& sections, const ReportOptions& options, bool has_both,
                   const Limit& limit) {
  std::vector<Column> columns = columns_of(options, has_both, limit);
  std::vector<Cells> lines = lines_of(sections, columns, options.width);
  std::vector<std::string> left_out;
  while (options.line_width > 0) {
    const std::vector<std::size_t> widths = widths_of(lines);
    const std::size_t all = std::accumulate(widths.begin(), widths.end(), 2 * (widths.size() - 1));
    const auto name = static_cast<int>(widths[0]), over = static_cast<int>(all) - options.line_width;
    if (over <= 0) break;
    const auto next = std::ranges::max_element(columns, {}, &Column::goes);
    if (name - over < kLeastName && next->goes > 0) {
      left_out.push_back(next->title);
      columns.erase(next);
      lines = lines_of(sections, columns, options.width);
      continue;
    }
    // Names stand behind their thread, and have a mark where they were cut: a few characters more than asked for.
    int width = std::max(name - over, kLeastName);
    for (int tries = 0; tries < 8; ++tries, --width) {
      lines = lines_of(sections, columns, width);
      if (static_cast<int>(widths_of(lines)[0]) <= std::max(name - over, kLeastName)) break;
    }
    break;
  }
  append_table(out, std::move(lines), options.line_width);
  if (!left_out.empty()) {
    append_words(out, fmt::format("(without {}; --format csv has all)", fmt::join(left_out, ", ")), options.line_width);
  }
}

}  // namespace paoding::profile
