// SPDX-License-Identifier: Apache-2.0
// Unions of stretches of time, against a plain sort.
#include "profile/intervals.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <random>
#include <utility>

namespace paoding::profile {
namespace {

// Stretches of many tracks, of each in order.
std::vector<Interval> of_tracks(std::mt19937& random, int tracks, int each, std::int64_t zero, std::int64_t most_gap) {
  std::vector<Interval> all;
  for (int track = 0; track < tracks; ++track) {
    std::int64_t at = zero;
    for (int i = 0; i < each; ++i) {
      at += static_cast<std::int64_t>(random() % static_cast<std::uint64_t>(most_gap));
      const std::int64_t end = at + static_cast<std::int64_t>(random() % 1000);
      all.push_back({at, end});
      at = end;
    }
  }
  return all;
}

std::vector<Interval> united_by_plain_sort(std::vector<Interval> all) {
  std::ranges::sort(all, {}, [](const Interval& i) { return std::pair(i.start, i.end); });
  std::vector<Interval> made;
  for (const Interval& i : all) {
    if (!made.empty() && i.start <= made.back().end) {
      made.back().end = std::max(made.back().end, i.end);
    } else {
      made.push_back(i);
    }
  }
  return made;
}

TEST(Intervals, UniteStretchesOfFewAndOfManyTracks) {
  std::mt19937 random(7);
  for (const int tracks : {1, 2, 3, 64, 65, 300}) {
    for (const std::int64_t zero : {std::int64_t{0}, std::int64_t{-5'000'000'000}, std::int64_t{1} << 60}) {
      for (const std::int64_t most_gap : {std::int64_t{10}, std::int64_t{100'000}, std::int64_t{1} << 40}) {
        std::vector<Interval> own = of_tracks(random, tracks, 100, zero, most_gap);
        const std::vector<Interval> expected = united_by_plain_sort(own);
        unite(own);
        ASSERT_EQ(own.size(), expected.size()) << tracks << " tracks from " << zero << " by " << most_gap;
        for (std::size_t i = 0; i < own.size(); ++i) {
          ASSERT_EQ(own[i].start, expected[i].start);
          ASSERT_EQ(own[i].end, expected[i].end);
        }
      }
    }
  }
}

TEST(Intervals, OfOneMomentAreOne) {
  std::vector<Interval> all(10'000, {5, 5});
  unite(all);
  ASSERT_EQ(all.size(), 1u);
  EXPECT_EQ(length(all), 0);
}

}  // namespace
}  // namespace paoding::profile
