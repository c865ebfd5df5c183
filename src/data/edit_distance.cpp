// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <numeric>

#include "paoding/data/metrics.h"

namespace paoding::data {

std::int64_t edit_distance(std::span<const std::int64_t> a, std::span<const std::int64_t> b) {
  // Common beginnings and ends cost nothing, and predictions are mostly right.
  while (!a.empty() && !b.empty() && a.front() == b.front()) a = a.subspan(1), b = b.subspan(1);
  while (!a.empty() && !b.empty() && a.back() == b.back()) a = a.first(a.size() - 1), b = b.first(b.size() - 1);
  if (a.size() < b.size()) std::swap(a, b);
  // row[j]: the distance of the first i of a and the first j of b; `diagonal` is that of i - 1 and j - 1.
  std::vector<std::int64_t> row(b.size() + 1);
  std::iota(row.begin(), row.end(), std::int64_t{0});
  for (std::size_t i = 1; i <= a.size(); ++i) {
    std::int64_t diagonal = row[0];
    row[0] = static_cast<std::int64_t>(i);
    for (std::size_t j = 1; j <= b.size(); ++j) {
      const std::int64_t replaced = diagonal + (a[i - 1] == b[j - 1] ? 0 : 1);
      diagonal = row[j];
      row[j] = std::min({replaced, row[j - 1] + 1, row[j] + 1});
    }
  }
  return row.back();
}

}  // namespace paoding::data
