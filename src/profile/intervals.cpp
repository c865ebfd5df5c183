// SPDX-License-Identifier: Apache-2.0
#include "profile/intervals.h"

#include <algorithm>
#include <bit>
#include <numeric>

#include "base/huge_pages.h"

namespace paoding::profile {

namespace {

// By digits of the time since the first of them, the lowest digit first: so many passes, however they were.
void sort_by_digits(std::vector<Interval>& intervals) {
  constexpr int kBits = 11;
  constexpr std::size_t kDigits = std::size_t{1} << kBits;
  const auto [least, most] = std::ranges::minmax(intervals, {}, &Interval::start);
  const auto key = [first = static_cast<std::uint64_t>(least.start)](const Interval& i) {
    return static_cast<std::uint64_t>(i.start) - first;
  };
  const int bits = std::bit_width(key(most));
  std::vector<Interval> sorted;
  reserve_large(sorted, intervals.size());
  sorted.resize(intervals.size());
  std::vector<std::size_t> place(kDigits);
  for (int shift = 0; shift < bits; shift += kBits) {
    const auto digit = [&](const Interval& i) { return (key(i) >> shift) & (kDigits - 1); };
    std::ranges::fill(place, 0);
    for (const Interval& i : intervals) ++place[digit(i)];
    std::exclusive_scan(place.begin(), place.end(), place.begin(), std::size_t{0});
    for (const Interval& i : intervals) sorted[place[digit(i)]++] = i;
    intervals.swap(sorted);
  }
}

// They come from a few tracks, of each in order: stretches that are in order are merged. Those of many tracks are not.
void sort_by_start(std::vector<Interval>& intervals) {
  constexpr std::size_t kManyStretches = 64, kMany = 1 << 12;
  const auto is_before = [](const Interval& a, const Interval& b) { return a.start < b.start; };
  std::vector<std::ptrdiff_t> ends{0};
  for (std::size_t i = 1; i < intervals.size(); ++i) {
    if (!is_before(intervals[i], intervals[i - 1])) continue;
    if (ends.size() >= kManyStretches && intervals.size() >= kMany) return sort_by_digits(intervals);
    ends.push_back(static_cast<std::ptrdiff_t>(i));
  }
  ends.push_back(static_cast<std::ptrdiff_t>(intervals.size()));
  const auto at = intervals.begin();
  while (ends.size() > 2) {
    std::vector<std::ptrdiff_t> merged{0};
    for (std::size_t i = 2; i < ends.size(); i += 2) {
      std::inplace_merge(at + ends[i - 2], at + ends[i - 1], at + ends[i], is_before);
      merged.push_back(ends[i]);
    }
    if (merged.back() != ends.back()) merged.push_back(ends.back());
    ends = std::move(merged);
  }
}

}  // namespace

void unite(std::vector<Interval>& intervals) {
  sort_by_start(intervals);
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
