// SPDX-License-Identifier: Apache-2.0
#include "runtime/graph_budget.h"

#include <gtest/gtest.h>

#include <string>
#include <vector>

namespace paoding {
namespace {

struct Named : GraphBudget::Graph {
  Named(char name, std::string& dropped) : name(name), dropped(dropped) {}
  void drop() override { dropped += name; }
  char name;
  std::string& dropped;
};

TEST(GraphBudget, DropsTheLeastRecentlyUsed) {
  std::string dropped;
  Named a('a', dropped), b('b', dropped), c('c', dropped), d('d', dropped);
  GraphBudget budget(30, 0);
  for (Named* graph : {&a, &b, &c, &a}) budget.use(graph, 10);
  EXPECT_EQ(dropped, "");
  budget.use(&d, 10);
  EXPECT_EQ(dropped, "b");
  budget.use(&b, 25);
  EXPECT_EQ(dropped, "bcad");
  EXPECT_EQ(budget.bytes(), 25);
}

TEST(GraphBudget, AlwaysHasRoomForTheOneThatIsLaunched) {
  std::string dropped;
  Named a('a', dropped), b('b', dropped);
  GraphBudget budget(5, 0);
  budget.use(&a, 100);
  budget.use(&a, 100);
  EXPECT_EQ(dropped, "");
  budget.use(&b, 10);
  EXPECT_EQ(dropped, "a");
  EXPECT_EQ(budget.bytes(), 10);
}

TEST(GraphBudget, ForgetsWhatIsNoMoreAndKeepsOneWhenMemoryHasRunOut) {
  std::string dropped;
  Named a('a', dropped), b('b', dropped), c('c', dropped);
  GraphBudget budget(100, 0);
  for (Named* graph : {&a, &b, &c}) budget.use(graph, 10);
  budget.forget(&b);
  budget.forget(&b);
  EXPECT_EQ(budget.bytes(), 20);
  budget.drop_others();
  EXPECT_EQ(dropped, "a");
  EXPECT_EQ(budget.bytes(), 10);
}

}  // namespace
}  // namespace paoding
