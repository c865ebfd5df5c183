// SPDX-License-Identifier: Apache-2.0
#include "passes/axis_runs.h"

#include <gtest/gtest.h>

namespace paoding {
namespace {

std::string text_of(const Shape& from, const Shape& to) {
  std::string text;
  for (const AxisRun& run : axis_runs(from, to)) {
    for (const int axis : run.from) text += std::to_string(axis);
    text += ">";
    for (const int axis : run.to) text += std::to_string(axis);
    text += " ";
  }
  return text;
}

TEST(AxisRuns, AreAsShortAsTheShapesAllow) {
  EXPECT_EQ(text_of({6400, 7709}, {50, 128, 7709}), "0>01 1>2 ");
  EXPECT_EQ(text_of({50, 128, 7}, {6400, 7}), "01>0 2>1 ");
  EXPECT_EQ(text_of({4, 6, 5}, {8, 3, 5}), "01>01 2>2 ");
  EXPECT_EQ(text_of({2, 1, 3}, {1, 2, 1, 3, 1}), "0>1 2>3 ");
  EXPECT_EQ(text_of({1, 1}, {}), "");
  EXPECT_EQ(text_of({12}, {2, 1, 6}), "0>02 ");
}

TEST(AxisRuns, AnOperandBroadcastsToTheReshapedAsItDid) {
  const Shape from{6400, 7709}, to{50, 128, 7709};
  EXPECT_EQ(reshaped_operand({7709}, from, to), (Shape{7709}));
  EXPECT_EQ(reshaped_operand({1, 7709}, from, to), (Shape{7709}));
  EXPECT_EQ(reshaped_operand({6400, 1}, from, to), (Shape{50, 128, 1}));
  EXPECT_EQ(reshaped_operand(from, from, to), to);
  EXPECT_EQ(reshaped_operand({}, from, to), Shape{});
  EXPECT_EQ(reshaped_operand({3, 1, 1}, {2, 3, 4, 4}, {2, 48}), std::nullopt);
}

}  // namespace
}  // namespace paoding
