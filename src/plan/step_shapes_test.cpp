// SPDX-License-Identifier: Apache-2.0
// Operands of steps as recordings name them: extents, the order in memory, broadcast axes.
#include "plan/step_shapes.h"

#include <gtest/gtest.h>

namespace paoding {
namespace {

Step kernel_of(std::vector<Layout> inputs, std::vector<Layout> results) {
  Step step;
  step.kind = Step::Kind::kernel;
  step.reads = inputs.size();
  inputs.insert(inputs.end(), results.begin(), results.end());
  for (const Layout& layout : inputs) {
    Operand operand;
    operand.layout = layout;
    step.operands.push_back(std::move(operand));
  }
  return step;
}

TEST(StepShapes, AreInputsThenResults) {
  const Step step = kernel_of({Layout::dense({bf16, {8, 64}}), Layout::dense({bf16, {64, 16}})},
                              {Layout::dense({f32, {8, 16}}), Layout::dense({i64, {}})});
  EXPECT_EQ(shapes_of(step), "bf16[8,64], bf16[64,16] -> f32[8,16], i64[]");
}

TEST(StepShapes, SayTheOrderWhereItIsNotThatOfTheAxes) {
  EXPECT_EQ(shapes_of(kernel_of({{{f32, {64, 16}}, {1, 64}}}, {channels_last({f16, {2, 3, 5, 7}})})),
            "f32[64,16]{0,1} -> f16[2,3,5,7]{1,3,2,0}");
}

// Such rows are a slice of others, or have padding behind them.
TEST(StepShapes, SayHowFarRowsAreApart) {
  EXPECT_EQ(shapes_of(kernel_of({{{bf16, {8, 60}}, {64, 1}}}, {{{bf16, {60, 8}}, {1, 64}}})),
            "bf16[8,60:64] -> bf16[60,8:64]{0,1}");
}

TEST(StepShapes, KeepAxesOfOneElementWhereTheyAre) {
  EXPECT_EQ(shapes_of(kernel_of({{{f32, {64, 1, 16}}, {1, 7, 64}}}, {})), "f32[64,1,16]{0,1,2}");
  EXPECT_EQ(shapes_of(kernel_of({{{f32, {4, 1, 16}}, {16, 1, 1}}}, {})), "f32[4,1,16]");
}

// A value that is read again and again is there once.
TEST(StepShapes, CountAxesOfABroadcastOnce) {
  EXPECT_EQ(shapes_of(kernel_of({{{f32, {8, 16}}, {0, 1}}}, {Layout::dense({f32, {8, 16}})})),
            "f32[1,16] -> f32[8,16]");
}

TEST(StepShapes, AreNotSaidOfControlFlowAndOfVeryManyOperands) {
  Step step = kernel_of({Layout::dense({f32, {2}})}, {});
  step.kind = Step::Kind::branch;
  EXPECT_EQ(shapes_of(step), "");
  EXPECT_EQ(shapes_of(kernel_of(std::vector<Layout>(65, Layout::dense({f32, {2}})), {})), "");
}

}  // namespace
}  // namespace paoding
