// SPDX-License-Identifier: Apache-2.0
#include "plan/free_offsets.h"

#include <gtest/gtest.h>

#include <random>

namespace paoding {
namespace {

struct Taken {
  std::vector<PositionRange> times;
  std::int64_t offset, bytes;
};

bool overlap(const Taken& taken, const std::vector<PositionRange>& times) {
  for (const auto& [first, last] : taken.times) {
    for (const auto& [begin, end] : times) {
      if (first <= end && begin <= last) return true;
    }
  }
  return false;
}

// Every offset is tried.
std::int64_t lowest_of(const std::vector<Taken>& all, const std::vector<PositionRange>& times, std::int64_t bytes) {
  for (std::int64_t offset = 0;; ++offset) {
    bool is_free = true;
    for (const Taken& taken : all) {
      const bool meets = taken.offset < offset + bytes && offset < taken.offset + taken.bytes;
      is_free = is_free && !(meets && overlap(taken, times));
    }
    if (is_free) return offset;
  }
}

TEST(FreeOffsets, AreTheLowestThatTryingEachFinds) {
  for (unsigned seed = 0; seed < 60; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](int bound) { return static_cast<int>(random() % static_cast<unsigned>(bound)); };
    const int positions = 1 + below(40);
    FreeOffsets free(positions);
    std::vector<Taken> all;
    for (int i = 0; i < 80; ++i) {
      std::vector<PositionRange> times;
      for (int from = below(positions); from < positions && times.size() < 3;
           from = times.back().second + 2 + below(5)) {
        times.emplace_back(from, std::min(positions - 1, from + below(seed % 2 == 0 ? 4 : positions)));
      }
      const std::int64_t bytes = 1 + below(9), offset = free.lowest(times, bytes);
      ASSERT_EQ(offset, lowest_of(all, times, bytes)) << "seed " << seed << ", number " << i;
      free.take(times, offset, bytes);
      all.push_back({times, offset, bytes});
    }
  }
}

TEST(FreeOffsets, JoinWhatLiesSideBySide) {
  OffsetRanges ranges;
  for (const std::int64_t begin : {10, 30, 20, 0}) ranges.add(begin, begin + 10);
  EXPECT_EQ(ranges.free_from(0, 1), 40);
  ranges.add(50, 60);
  EXPECT_EQ(ranges.free_from(0, 10), 40);
  EXPECT_EQ(ranges.free_from(0, 11), 60);
}

}  // namespace
}  // namespace paoding
