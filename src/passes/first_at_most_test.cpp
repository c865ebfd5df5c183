// SPDX-License-Identifier: Apache-2.0
#include "passes/first_at_most.h"

#include <gtest/gtest.h>

#include <random>

namespace paoding {
namespace {

TEST(FirstAtMost, IsTheFirstThatLookingAtEachFinds) {
  std::mt19937 random(1);
  for (std::size_t count = 1; count < 40; ++count) {
    FirstAtMost tree(count);
    std::vector<std::int64_t> numbers(count, std::numeric_limits<std::int64_t>::min());
    for (int i = 0; i < 200; ++i) {
      const std::size_t place = random() % count, from = random() % count;
      const auto number = static_cast<std::int64_t>(random() % 20), limit = static_cast<std::int64_t>(random() % 20);
      tree.set(place, number);
      numbers[place] = number;
      std::size_t expected = from;
      while (expected < count && numbers[expected] > limit) ++expected;
      if (expected < count) {
        EXPECT_EQ(tree.find(from, limit), expected);
      } else {
        EXPECT_GE(tree.find(from, limit), count);
      }
    }
  }
}

}  // namespace
}  // namespace paoding
