// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <algorithm>

#include "paoding/data/metrics.h"
#include "scalar/philox.h"

namespace paoding::data {
namespace {

std::vector<std::int64_t> letters(std::string_view text) { return {text.begin(), text.end()}; }
std::int64_t distance(std::string_view a, std::string_view b) { return edit_distance(letters(a), letters(b)); }

/// The definition, without a table.
std::int64_t by_definition(std::string_view a, std::string_view b) {
  if (a.empty() || b.empty()) return std::ssize(a) + std::ssize(b);
  if (a[0] == b[0]) return by_definition(a.substr(1), b.substr(1));
  return 1 + std::min({by_definition(a.substr(1), b), by_definition(a, b.substr(1)),
                       by_definition(a.substr(1), b.substr(1))});
}

TEST(EditDistance, IsWhatTheBooksSay) {
  EXPECT_EQ(distance("kitten", "sitting"), 3);
  EXPECT_EQ(distance("intention", "execution"), 5);
  EXPECT_EQ(distance("saturday", "sunday"), 3);
  EXPECT_EQ(distance("rosettacode", "raisethysword"), 8);
}

TEST(EditDistance, ToNothingIsTheLength) {
  EXPECT_EQ(distance("", ""), 0);
  EXPECT_EQ(distance("abc", ""), 3);
  EXPECT_EQ(distance("", "abc"), 3);
  EXPECT_EQ(distance("abc", "abc"), 0);
}

TEST(EditDistance, AgreesWithTheDefinition) {
  for (std::uint64_t i = 0; i < 400; ++i) {
    std::string a, b;
    for (std::uint64_t k = 0; k < i % 8; ++k) a += static_cast<char>('a' + random_bits(2 * k, i, 1) % 3);
    for (std::uint64_t k = 0; k < i / 8 % 8; ++k) b += static_cast<char>('a' + random_bits(2 * k + 1, i, 1) % 3);
    EXPECT_EQ(distance(a, b), by_definition(a, b)) << a << " " << b;
  }
}

}  // namespace
}  // namespace paoding::data
