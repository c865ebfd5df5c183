// SPDX-License-Identifier: Apache-2.0
// Bytes and operations of ops beside numbers that were worked out by hand.
#include "findings/op_work.h"

#include <gtest/gtest.h>

#include "findings/product_time.h"

namespace paoding::findings {
namespace {

OpWork work_of_kineto(std::string_view op, std::string_view shapes, std::string_view types,
                      std::string_view concrete = "") {
  return op_work(op, operands_of_kineto(shapes, types), concrete);
}

TEST(OpWork, OfProducts) {
  const OpWork mm = work_of_kineto("aten::mm", "[[8, 16], [16, 4]]", R"(["float", "float"])");
  EXPECT_EQ(mm.flops, 2 * 8 * 16 * 4);
  EXPECT_EQ(mm.read, 4 * (8 * 16 + 16 * 4));
  EXPECT_EQ(mm.written, 4 * 8 * 4);
  EXPECT_EQ(mm.unit, Unit::f32);
  const OpWork addmm = work_of_kineto("aten::addmm", "[[1024], [8944, 1024], [1024, 1024], [], []]",
                                      R"(["c10::BFloat16", "c10::BFloat16", "c10::BFloat16", "Scalar", "Scalar"])");
  EXPECT_EQ(addmm.flops, 2.0 * 8944 * 1024 * 1024);
  EXPECT_EQ(addmm.bytes(), 2 * (1024 + 8944 * 1024 + 1024 * 1024 + 8944 * 1024));
  EXPECT_EQ(addmm.unit, Unit::half);
  ASSERT_TRUE(addmm.product.has_value());
  EXPECT_EQ(addmm.product->n, 1024);
  const OpWork bmm = work_of_kineto("aten::bmm", "[[3, 8, 16], [3, 16, 4]]", R"(["double", "double"])");
  EXPECT_EQ(bmm.flops, 3 * 2 * 8 * 16 * 4);
  EXPECT_EQ(bmm.unit, Unit::f64);
  const OpWork linear = work_of_kineto("aten::linear", "[[2, 5, 16], [7, 16], [7]]", R"(["float", "float", "float"])");
  EXPECT_EQ(linear.flops, 2 * 10 * 16 * 7);
  EXPECT_EQ(work_of_kineto("aten::mm", "[[8, 16], [17, 4]]", R"(["float", "float"])").flops, 0) << "they do not fit";
  EXPECT_EQ(work_of_kineto("aten::mm", "[[8, 16], [16, 4]]", "").bytes(), 0) << "types are not known";
  EXPECT_EQ(work_of_kineto("aten::mm", "[[8, 16], [16, 4]]", "").flops, 2 * 8 * 16 * 4);
  const OpWork users = work_of_kineto("mine::product", "[[8, 16], [16, 4]]", R"(["c10::Half", "c10::Half"])");
  EXPECT_EQ(users.flops, 2 * 8 * 16 * 4);
}

TEST(OpWork, OfConvolutions) {
  // 7 x 7 at a stride of 2: 64 x 64 results of 3 * 49 products each.
  const OpWork forward = work_of_kineto(
      "aten::cudnn_convolution", "[[32, 3, 128, 128], [64, 3, 7, 7], [], [], [], [], [], [], []]",
      R"(["float", "float", "ScalarList", "ScalarList", "ScalarList", "Scalar", "Scalar", "Scalar", "Scalar"])",
      R"(["", "", "[3, 3]", "[2, 2]", "[1, 1]", "1", "False", "False", "True"])");
  EXPECT_EQ(forward.flops, 2.0 * 32 * 64 * 64 * 64 * 3 * 49);
  EXPECT_EQ(forward.read, 4 * (32 * 3 * 128 * 128 + 64 * 3 * 49));
  EXPECT_EQ(forward.written, 4 * 32 * 64 * 64 * 64);
  const OpWork general = work_of_kineto(
      "aten::convolution", "[[32, 3, 128, 128], [64, 3, 7, 7], [], [], [], [], [], [], []]",
      R"(["float", "float", "", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar"])",
      R"(["", "", "", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1"])");
  EXPECT_EQ(general.flops, forward.flops);
  const OpWork backward = work_of_kineto(
      "aten::convolution_backward",
      "[[32, 64, 64, 64], [32, 3, 128, 128], [64, 3, 7, 7], [], [], [], [], [], [], [], []]",
      R"(["float", "float", "float", "ScalarList", "ScalarList", "ScalarList", "ScalarList", "Scalar", "ScalarList", "Scalar", "ScalarList"])",
      R"(["", "", "", "[0]", "[2, 2]", "[3, 3]", "[1, 1]", "False", "[0, 0]", "1", "[False, True, False]"])");
  EXPECT_EQ(backward.flops, forward.flops) << "the weight's gradient alone";
  EXPECT_EQ(backward.written, 4 * 64 * 3 * 49);
  const OpWork transposed = work_of_kineto("aten::convolution", "[[1, 4, 8, 8], [4, 4, 3, 3]]", R"(["float", "float"])",
                                           R"(["", "", "", "[2, 2]", "[1, 1]", "[1, 1]", "True", "[0, 0]", "1"])");
  EXPECT_EQ(transposed.flops, 0) << "its size is not known";
}

TEST(OpWork, OfAttention) {
  const OpWork flash =
      work_of_kineto("aten::_flash_attention_forward", "[[2, 512, 16, 64], [2, 512, 16, 64], [2, 512, 16, 64]]",
                     R"(["c10::Half", "c10::Half", "c10::Half"])", R"(["", "", "", "True"])");
  EXPECT_EQ(flash.flops, 0.5 * 4 * 2 * 16 * 512.0 * 512.0 * 64) << "two products, half of each below the diagonal";
  const OpWork whole = work_of_kineto("aten::_scaled_dot_product_flash_attention",
                                      "[[2, 16, 512, 64], [2, 16, 512, 64], [2, 16, 512, 64]]",
                                      R"(["c10::Half", "c10::Half", "c10::Half"])", R"(["", "", "", "0.", "False"])");
  EXPECT_EQ(whole.flops, 2 * flash.flops);
}

TEST(OpWork, OfBytesThatAreMoved) {
  const OpWork add =
      work_of_kineto("aten::add", "[[16, 559, 1024], [1024], []]", R"(["c10::BFloat16", "c10::BFloat16", "Scalar"])");
  EXPECT_EQ(add.bytes(), 2 * (2 * 16 * 559 * 1024 + 1024)) << "a row is read once";
  EXPECT_EQ(add.elements, 16 * 559 * 1024);
  const OpWork cast = work_of_kineto("aten::copy_", "[[8, 8], [8, 8], []]", R"(["float", "c10::BFloat16", "Scalar"])");
  EXPECT_EQ(cast.bytes(), 64 * (4 + 2));
  const OpWork sum =
      work_of_kineto("aten::sum", "[[32, 1000], [], [], []]", R"(["float", "ScalarList", "Scalar", ""])");
  EXPECT_EQ(sum.bytes(), 4 * 32 * 1000);
  const OpWork norm = work_of_kineto("aten::native_layer_norm", "[[8, 64], [], [64], [64], []]",
                                     R"(["float", "ScalarList", "float", "float", "Scalar"])");
  EXPECT_EQ(norm.bytes(), 4 * (8 * 64 + 64 + 64 + 8 * 64));
  const OpWork softmax = work_of_kineto("aten::_softmax", "[[8, 64], [], []]", R"(["float", "Scalar", "Scalar"])");
  EXPECT_EQ(softmax.bytes(), 2 * 4 * 8 * 64);
  const OpWork rows = work_of_kineto("aten::_softmax", "[[2, 131072], [], []]", R"(["float", "Scalar", "Scalar"])");
  EXPECT_EQ(rows.bytes(), 3 * 4 * 2 * 131072) << "such rows are read twice";
  const OpWork embedding = work_of_kineto("aten::embedding", "[[50000, 64], [8, 16], [], [], []]",
                                          R"(["float", "long int", "Scalar", "Scalar", "Scalar"])");
  EXPECT_EQ(embedding.bytes(), 2 * 4 * 8 * 16 * 64 + 8 * 8 * 16);
  const OpWork cat = work_of_kineto("aten::cat", "[[[16, 32], [16, 32]], []]", R"(["TensorList", "Scalar"])");
  EXPECT_EQ(cat.bytes(), 0) << "types of lists are not known";
  const OpWork less = work_of_kineto("aten::lt", "[[8], [8]]", R"(["float", "float"])");
  EXPECT_EQ(less.written, 0) << "an op that is not known moves nothing that is known";
}

TEST(OpWork, DoesNotTrustItsText) {
  EXPECT_TRUE(operands_of_kineto("[[8, 16]", "").empty());
  EXPECT_TRUE(operands_of_kineto("[[8, -16]]", "").empty());
  EXPECT_TRUE(operands_of_kineto("nothing", "").empty());
  const auto huge = operands_of_kineto("[[999999999999999999, 999999999999999999], [999999999999999999, 2]]",
                                       R"(["float", "float"])");
  ASSERT_EQ(huge.size(), 2u);
  EXPECT_GT(huge[0].elements(), 0) << "no overflow";
  EXPECT_GE(op_work("aten::mm", huge).read, 0);
  EXPECT_TRUE(operands_of_hlo("f32[8,4 -> f32[").inputs.empty());
}

TEST(OpWork, ReadsShapesOfXla) {
  const HloShapes all = operands_of_hlo("f32[128,32]{1,0}, bf16[32,64] -> f32[128,64]");
  ASSERT_EQ(all.inputs.size(), 2u);
  EXPECT_EQ(all.inputs[0].bytes(), 4 * 128 * 32);
  EXPECT_EQ(all.inputs[1].bytes(), 2 * 32 * 64);
  ASSERT_EQ(all.results.size(), 1u);
  EXPECT_EQ(all.results[0].elements(), 128 * 64);
}

TEST(ProductTime, IsNearToMeasuredOnes) {
  const DeviceLimits h100 = limits_of_device("NVIDIA H100 80GB HBM3");
  // benchmarks/results/2026-11-26-products.txt, us.
  EXPECT_NEAR(product_ns(h100, Unit::tf32, {1, 6400, 2048, 512, 4}), 54'200, 0.25 * 54'200);
  EXPECT_NEAR(product_ns(h100, Unit::tf32, {1, 6400, 512, 2048, 4}), 49'000, 0.25 * 49'000);
  EXPECT_NEAR(product_ns(h100, Unit::half, {1, 6400, 2048, 512, 2}), 21'900, 0.25 * 21'900);
  EXPECT_NEAR(product_ns(h100, Unit::half, {1, 6400, 512, 2048, 2}), 23'700, 0.25 * 23'700);
  EXPECT_EQ(product_ns(limits_of_device("NVIDIA A100"), Unit::half, {1, 64, 64, 64, 2}), 0) << "it was not measured";
  EXPECT_FALSE(is_aligned({1, 6400, 7709, 512, 2}));
  EXPECT_TRUE(is_aligned({1, 6400, 7712, 512, 2}));
  EXPECT_EQ(aligned({1, 6400, 7709, 512, 2}).n, 7712);
}

TEST(DeviceLimits, FollowFromNames) {
  const DeviceLimits h200 = limits_of_device("NVIDIA H200");
  EXPECT_TRUE(h200.is_measured);
  EXPECT_EQ(h200.sms, 132);
  EXPECT_NEAR(h200.bytes_per_ns, 3950, 10) << "a copy's rate";
  EXPECT_EQ(h200.rate(Unit::half), 790e3);
  const DeviceLimits h100 = limits_of_device("NVIDIA H100 80GB HBM3");
  EXPECT_FALSE(h100.is_measured);
  EXPECT_NEAR(h100.bytes_per_ns / h200.bytes_per_ns, 3.35 / 4.8, 1e-6);
  EXPECT_EQ(limits_of_device("Tesla V100-SXM2-32GB").rate(Unit::tf32), 0) << "it has none";
  EXPECT_GT(limits_of_device("Tesla V100-SXM2-32GB").rate(Unit::half), 0);
  EXPECT_EQ(limits_of_device("NVIDIA L4").sms, 58) << "no L40S";
  EXPECT_EQ(limits_of_device("AMD Instinct MI300X VF").sms, 304);
  EXPECT_FALSE(limits_of_device("a GPU of tomorrow").is_known());
}

}  // namespace
}  // namespace paoding::findings
