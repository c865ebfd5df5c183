// SPDX-License-Identifier: Apache-2.0
// Operands as people read them, from texts of Kineto, of XLA and of ours, and from broken ones.
#include "findings/operand_text.h"

#include <gtest/gtest.h>

namespace paoding::findings {
namespace {

TEST(OperandText, HasTypesAndExtents) {
  EXPECT_EQ(operands_text("aten::mm", "[[8, 16], [16, 4]]", R"(["float", "c10::BFloat16"])"), "f32[8,16], bf16[16,4]");
  EXPECT_EQ(operands_text("aten::add", "[[8, 16], [], []]", R"(["c10::Half", "Scalar", ""])"), "f16[8,16]");
  EXPECT_EQ(operands_text("aten::sum", "[[]]", R"(["double"])"), "f64[]");  // a tensor of one element
  EXPECT_EQ(operands_text("aten::cat", "[[[8, 16], [4, 16]], []]", R"(["TensorList", "Scalar"])"), "list of 2");
  EXPECT_EQ(operands_text("mine", "[[1], [2], [3], [4], [5], [6]]", ""), "[1], [2], [3], [4] and 2 more");
  EXPECT_EQ(operands_text("mine", "[[1]]", R"(["MyType"])"), "MyType[1]");
}

TEST(OperandText, SaysWhatACopyMakesOfWhat) {
  const std::string cast =
      operands_text("aten::copy_", "[[8, 16], [8, 16], []]", R"(["float", "c10::BFloat16", "Scalar"])");
  EXPECT_EQ(cast, "bf16[8,16] -> f32[8,16]");
  EXPECT_EQ(cast_text(cast), "bf16 to f32");
  EXPECT_EQ(cast_text("f32[8] -> f32[8]"), "");
  EXPECT_EQ(cast_text("f32[8], f32[8]"), "");
  EXPECT_EQ(operands_text("convert.3", "bf16[128,32]{1,0} -> f32[128,32]{1,0}", ""), "bf16[128,32] -> f32[128,32]");
  EXPECT_EQ(operands_text("cast", "f32[4] -> bf16[4]", ""), "f32[4] -> bf16[4]");
}

TEST(OperandText, OfBrokenTextsIsNothing) {
  EXPECT_EQ(operands_text("aten::mm", "", ""), "");
  EXPECT_EQ(operands_text("aten::mm", "[[8, 16], [16", R"(["float"])"), "");
  EXPECT_EQ(operands_text("aten::mm", "[]", "[]"), "");
  EXPECT_EQ(operands_text("aten::mm", "[[8], [4]]", R"(["float"])"), "[8], [4]");  // types of others
}

}  // namespace
}  // namespace paoding::findings
