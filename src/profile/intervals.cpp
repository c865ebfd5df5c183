// SPDX-License-Identifier: Apache-2.0
#include "profile/intervals.h"

#include <algorithm>

namespace paoding::profile {

void unite(std::vector<Interval>& intervals) {
  std::sort(intervals.begin(), intervals.end(), [](auto a, auto b) { return a.start < b.start; });
  std::size_t kept = 0;
  for (const Interval& i : intervals) {
    if (kept > 0 && i.start <= intervals[kept - 1].end) {
      intervals[kept - 1].end = std::max(intervals[kept - 1].end, i.end);
    } else {
      intervals[kept++] = i;
    }
  }
  intervals.resize(kept);
}

double length(const std::vector<Interval>& united) {
  std::int64_t sum = 0;
  for (const Interval& i : united) sum += i.end - i.start;
  return static_cast<double>(sum);
}

double united_length(std::vector<Interval> intervals) {
  unite(intervals);
  return length(intervals);
}

std::vector<Interval> gaps(const std::vector<Interval>& whole, const std::vector<Interval>& covered) {
  std::vector<Interval> left;
  std::size_t c = 0;
  for (Interval w : whole) {
    while (c < covered.size() && covered[c].end <= w.start) ++c;
    for (std::size_t k = c; k < covered.size() && covered[k].start < w.end; ++k) {
      if (covered[k].start > w.start) left.push_back({w.start, covered[k].start});
      w.start = std::max(w.start, covered[k].end);
    }
    if (w.start < w.end) left.push_back(w);
  }
  return left;
}

}  // namespace paoding::profile
