// SPDX-License-Identifier: Apache-2.0
#include "cpu/shared_nest.h"

#include <gtest/gtest.h>

namespace paoding {
namespace {

// out = factor * in, over rows of 8.
Group scaled(std::int64_t rows, double factor) {
  Group group;
  group.extents = {rows, 8};
  group.loads = {{f32, {8, 1}}};
  const std::int32_t in = group.expr.add({.prim = Prim::input, .dtype = f32, .index = 0});
  const std::int32_t number = group.expr.add({.prim = Prim::constant, .dtype = f32, .value = factor});
  const std::int32_t made = group.expr.add({.prim = Prim::mul, .dtype = f32, .args = {in, number, -1}});
  group.outputs = {{f32, made, 0, Combine::none, {8, 1}}};
  return group;
}

TEST(SharedNest, IsOneForEqualGroupsWhileSomebodyHasIt) {
  const auto first = shared_nest(scaled(16, 3), 1, Sharing::none, {});
  EXPECT_EQ(shared_nest(scaled(16, 3), 1, Sharing::none, {}), first);
  std::weak_ptr<const Nest> gone = shared_nest(scaled(17, 5), 1, Sharing::none, {});
  EXPECT_TRUE(gone.expired());
}

TEST(SharedNest, IsAnotherWhereAnythingDiffers) {
  const auto first = shared_nest(scaled(16, 0.0), 1, Sharing::none, {});
  const std::vector<std::shared_ptr<const Nest>> others = {
      shared_nest(scaled(17, 0.0), 1, Sharing::none, {}),
      shared_nest(scaled(16, -0.0), 1, Sharing::none, {}),  // which equals 0
      shared_nest(scaled(16, 0.0), 2, Sharing::none, {}),
      shared_nest(scaled(16, 0.0), 1, Sharing::possible, {}),
      shared_nest(scaled(16, 0.0), 1, Sharing::none, {true}),
  };
  for (std::size_t i = 0; i < others.size(); ++i) {
    EXPECT_NE(others[i], first) << i;
    for (std::size_t k = 0; k < i; ++k) EXPECT_NE(others[i], others[k]) << i << " and " << k;
  }
}

}  // namespace
}  // namespace paoding
