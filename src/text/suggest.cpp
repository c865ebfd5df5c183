// SPDX-License-Identifier: Apache-2.0
// Names near a wrong one, by edit distance. Called once, when an error is written.
#include "text/suggest.h"

#include <fmt/format.h>

#include <algorithm>

#include "base/one_line.h"

namespace paoding {
namespace {

std::size_t edit_distance(std::string_view a, std::string_view b) {
  std::vector<std::size_t> row(b.size() + 1);
  for (std::size_t j = 0; j <= b.size(); ++j) row[j] = j;
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::size_t diagonal = row[0];
    row[0] = i;
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::size_t above = row[j];
      row[j] = std::min({above + 1, row[j - 1] + 1, diagonal + (a[i - 1] != b[j - 1])});
      diagonal = above;
    }
  }
  return row[b.size()];
}

}  // namespace

std::string suggestion(std::string_view wrong, const std::vector<std::string>& names) {
  if (wrong.empty() || wrong.size() > 40) return {};
  const std::size_t furthest = wrong.size() <= 3 ? 1 : wrong.size() <= 7 ? 2 : 3;
  std::vector<std::pair<std::size_t, std::string>> near;
  for (const std::string& name : names) {
    if (name.size() > 40) continue;
    const std::size_t distance = edit_distance(wrong, name);
    if (distance <= furthest && distance < wrong.size())
      near.emplace_back(distance, fmt::format("'{}'", one_line(name)));
  }
  std::sort(near.begin(), near.end());
  std::string text;
  for (std::size_t i = 0; i < std::min<std::size_t>(near.size(), 3); ++i) text += (i ? " or " : "") + near[i].second;
  return text.empty() ? text : fmt::format(" (did you mean {}?)", text);
}

}  // namespace paoding
