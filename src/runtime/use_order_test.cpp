// SPDX-License-Identifier: Apache-2.0
#include "runtime/use_order.h"

#include <gtest/gtest.h>

#include <random>
#include <set>

namespace paoding {
namespace {

struct User {
  int number = 0;
};

std::vector<int> followed(UseOrder<User>& order, User& next, bool writes) {
  std::vector<int> numbers;
  order.use(&next, writes, [&](User& other) { numbers.push_back(other.number); });
  std::sort(numbers.begin(), numbers.end());
  return numbers;
}

TEST(UseOrder, AWriterComesAfterReadersAndReadersAfterTheLastWriter) {
  UseOrder<User> order;
  User a{1}, b{2}, c{3};
  using Numbers = std::vector<int>;
  EXPECT_EQ(followed(order, a, true), Numbers{});
  EXPECT_EQ(followed(order, a, true), Numbers{});  // its own runs are in order
  EXPECT_EQ(followed(order, b, false), Numbers{1});
  EXPECT_EQ(followed(order, b, false), Numbers{});
  EXPECT_EQ(followed(order, c, false), Numbers{1});
  EXPECT_EQ(followed(order, a, true), (Numbers{2, 3}));
  EXPECT_EQ(followed(order, b, true), Numbers{1});
  EXPECT_EQ(followed(order, c, true), Numbers{2});
}

TEST(UseOrder, WhoIsForgottenIsNotFollowed) {
  UseOrder<User> order;
  User a{1}, b{2};
  followed(order, a, true);
  order.forget(&a);
  EXPECT_EQ(followed(order, b, true), std::vector<int>{});
  EXPECT_EQ(order.before(false), std::vector<User*>{&b});
}

// Compared with the whole history: a use that conflicts with a later one comes before it by a chain of followed uses.
TEST(UseOrder, OrdersAllThatConflict) {
  for (unsigned seed = 0; seed < 200; ++seed) {
    std::mt19937 random(seed);
    UseOrder<User> order;
    User users[4] = {{0}, {1}, {2}, {3}};
    struct Use {
      int user;
      bool writes;
      std::set<std::size_t> behind;  // uses that it comes after
    };
    std::vector<Use> uses;
    const auto last_of = [&](int user) {
      for (std::size_t i = uses.size(); i-- > 0;) {
        if (uses[i].user == user) return i;
      }
      return uses.size();
    };
    for (int turn = 0; turn < 40; ++turn) {
      Use next{static_cast<int>(random() % 4), random() % 3 == 0, {}};
      const auto come_behind = [&](std::size_t other) {
        if (other == uses.size()) return;
        next.behind.insert(other);
        next.behind.insert(uses[other].behind.begin(), uses[other].behind.end());
      };
      come_behind(last_of(next.user));
      order.use(&users[next.user], next.writes, [&](User& other) { come_behind(last_of(other.number)); });
      for (std::size_t i = 0; i < uses.size(); ++i) {
        if (uses[i].writes || next.writes) {
          ASSERT_TRUE(next.behind.contains(i)) << "seed " << seed;
        }
      }
      uses.push_back(next);
    }
  }
}

}  // namespace
}  // namespace paoding
