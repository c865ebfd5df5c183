// SPDX-License-Identifier: Apache-2.0
// Stretches of time, and the arithmetic on them that keeps reports from counting anything twice.
#pragma once

#include <algorithm>
#include <cstdint>
#include <vector>

namespace paoding::profile {

struct Interval {
  std::int64_t start, end;  // ns
  bool operator==(const Interval&) const = default;
};

/// Adds one to those that were added in order, as a rule: what goes on where the last one is becomes part of it.
inline void append(std::vector<Interval>& intervals, Interval more) {
  if (!intervals.empty() && more.start >= intervals.back().start && more.start <= intervals.back().end) {
    intervals.back().end = std::max(intervals.back().end, more.end);
  } else {
    intervals.push_back(more);
  }
}
/// Sorts them and leaves no overlaps.
void unite(std::vector<Interval>& intervals);
/// The length of all together; united.
double length(const std::vector<Interval>& united);
double united_length(std::vector<Interval> intervals);
/// What of `whole` no interval of `covered` covers; both united.
std::vector<Interval> gaps(const std::vector<Interval>& whole, const std::vector<Interval>& covered);

}  // namespace paoding::profile
