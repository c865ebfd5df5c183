// SPDX-License-Identifier: Apache-2.0
// Stretches of time, and the arithmetic on them that keeps reports from counting anything twice.
#pragma once

#include <cstdint>
#include <vector>

namespace paoding::profile {

struct Interval {
  std::int64_t start, end;  // ns
};

/// Sorts them and leaves no overlaps.
void unite(std::vector<Interval>& intervals);
/// The length of all together; united.
double length(const std::vector<Interval>& united);
double united_length(std::vector<Interval> intervals);
/// What of `whole` no interval of `covered` covers; both united.
std::vector<Interval> gaps(const std::vector<Interval>& whole, const std::vector<Interval>& covered);

}  // namespace paoding::profile
