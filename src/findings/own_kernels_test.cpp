// SPDX-License-Identifier: Apache-2.0
// Rules about kernels on recordings of our own programs made by hand: one launch of a graph with many kernels, whose
// sites have shapes and launches, half of the replays stamped at their ends only. Gains are computed by hand.
#include <gtest/gtest.h>

#include "findings/own_work.h"
#include "findings/product_time.h"
#include "tests/support/expected_gain.h"
#include "tests/support/own_runs.h"

namespace paoding::findings {
namespace {

using namespace profile;

constexpr std::int64_t kElements = 16'777'216;

OwnStep scale(double us = 40) {
  return {own_site("mul", "f32[16777216], f32[] -> f32[16777216]", static_cast<double>(kElements), Unit::f32,
                   8 * kElements + 4),
          us};
}

// 137 GFLOP, as fast as such are.
OwnStep square_product(double us = 190, Unit unit = Unit::half) {
  const bool is_half = unit == Unit::half;
  const std::string type = is_half ? "bf16[4096,4096]" : "f32[4096,4096]";
  return {own_site("matmul", type + ", " + type + " -> " + type, 2.0 * 4096 * 4096 * 4096, unit,
                   (is_half ? 6 : 12) * std::int64_t{4096} * 4096),
          us};
}

TEST(OwnKernels, InAChainReadAndWriteOnce) {
  // Three that move 134 MB each: one takes 34 us at the memory's rate, and none less than the longest.
  expect_gain(own_runs_on_gpu({square_product(), scale(), scale(), scale()}), Kind::pointwise_chain, {80, 86},
              "fuse_groups");
  expect_nothing(own_runs_on_gpu({square_product(), scale(), square_product(), scale()}), Kind::pointwise_chain);
}

// The pass has put together all that it could where it has put together anything.
TEST(OwnKernels, AreNoChainWhereThePassRan) {
  OwnStep fused = {own_site("group", "f32[64,64] -> f32[64,64]", 1e4, Unit::f32, 32'768), 3};
  fused.site.members = {{"mul", 1}, {"tanh", 1}};
  expect_nothing(own_runs_on_gpu({fused, scale(), scale(), scale()}), Kind::pointwise_chain);
  // Groups that share a launch were not fused by that.
  OwnStep together = {own_site("2 groups", "", 2, Unit::f32, 64), 3};
  together.site.members = {{"mul", 1}, {"mul", 1}};
  expect_gain(own_runs_on_gpu({together, scale(), scale(), scale()}), Kind::pointwise_chain, {80, 86});
}

TEST(OwnKernels, OfExactProductsWouldTakeTensorCores) {
  // TF32 takes 350 us at the rate of large ones; a turn of 132 tiles is lost, so 365, and half more.
  expect_gain(own_runs_on_gpu({square_product(2691, Unit::f32)}), Kind::exact_f32_product, {2690 - 547, 2690 - 350},
              "--tf32");
  expect_nothing(own_runs_on_gpu({square_product(500, Unit::tf32)}), Kind::exact_f32_product);
}

TEST(OwnKernels, OfOddProductsAreSlow) {
  const double flops = 2.0 * 8192 * 3999 * 3999;
  const auto odd = [&](const std::string& shapes) {
    return OwnStep{own_site("matmul", shapes, flops, Unit::half, 200'000'000), 1200};
  };
  const double padded =
      product_ns(limits_of_device("NVIDIA H200"), Unit::half, {.m = 8192, .n = 4000, .k = 4000, .element_bytes = 2}) /
      1e3;
  ASSERT_GT(padded, 300);
  expect_gain(own_runs_on_gpu({odd("bf16[8192,3999], bf16[3999,3999] -> bf16[8192,3999]")}), Kind::odd_dimensions,
              {1200 - padded * 1.5 - 5, 1200 - padded}, "align_products");
  // Rows that begin at multiples of 16 bytes are as good as longer ones, however long they are.
  expect_nothing(own_runs_on_gpu({odd("bf16[8192,3999:4000], bf16[3999,3999:4000] -> bf16[8192,3999:4000]")}),
                 Kind::odd_dimensions);
}

TEST(OwnKernels, ThatPadFactorsAreForOddProducts) {
  const OwnStep pad = {
      own_site("matmul_grad/pad", "bf16[4093,4093] -> bf16[4093,4093:4096]", 0, Unit::none, 67'000'000), 20};
  const OwnStep zeros = {own_site("fill", "-> bf16[4093,3:4096]", 0, Unit::none, 24'558), 2};
  expect_gain(own_runs_on_gpu({pad, zeros, square_product(190)}), Kind::odd_dimensions, {20, 22}, "multiples of 8");
  expect_nothing(own_runs_on_gpu({pad, zeros, square_product(190)}), Kind::layout_kernels);
  // A pad that aligns nothing is a copy of the user's.
  const OwnStep border = {own_site("pad", "bf16[64,64] -> bf16[64,64:66]", 0, Unit::none, 67'000'000), 20};
  expect_nothing(own_runs_on_gpu({border, square_product(190)}), Kind::odd_dimensions);
}

TEST(OwnKernels, ThatCopyViewsCouldBeLeftOut) {
  const OwnStep slice = {own_site("slice", "bf16[8192,2048:6144] -> bf16[8192,2048]", 0, Unit::none, 67'108'864), 30};
  expect_gain(own_runs_on_gpu({square_product(), slice, square_product()}), Kind::layout_kernels, {30, 30},
              "alias_views");
  // The planner makes a copy of another order where a kernel needs it.
  const OwnStep turned = {own_site("copy_transposed", "f32[64,64]{0,1} -> f32[64,64]", 0, Unit::none, 32'768), 30};
  expect_nothing(own_runs_on_gpu({square_product(), turned, square_product()}), Kind::layout_kernels);
}

TEST(OwnKernels, OfFewCtasCouldUseAllMultiprocessors) {
  // 8 CTAs of 132 for 100 us: all would take 6.1, twice as many 12.1.
  const auto sum = [](std::int64_t ctas) {
    return OwnStep{
        own_site("sum", "f32[64,64] -> f32[64]", 4096, Unit::f32, 16'640, {.grid = {ctas, 1, 1}, .threads = 128}), 100};
  };
  expect_gain(own_runs_on_gpu({square_product(), sum(8)}), Kind::small_grid, {87, 93});
  expect_nothing(own_runs_on_gpu({square_product(), sum(128)}), Kind::small_grid);
}

TEST(OwnKernels, OfProductsThatAreSlowForTheirSize) {
  const double usual =
      product_ns(limits_of_device("NVIDIA H200"), Unit::half, {.m = 4096, .n = 4096, .k = 4096, .element_bytes = 2}) /
      1e3;
  expect_gain(own_runs_on_gpu({square_product(900)}), Kind::slow_product, {900 - 1.5 * usual - 5, 900 - usual},
              "--tune");
}

TEST(OwnKernels, FarFromTheBandwidthMoveTheirBytesFaster) {
  // 134 MB in 200 us; at 3,949 bytes a ns it is 34, at half of that 68.
  expect_gain(own_runs_on_gpu({square_product(), scale(200)}), Kind::far_from_bandwidth, {132, 166});
}

// Recordings of before version 5: operations of one-operation formulas are elements, casts beside them have as many.
TEST(OwnKernels, WithoutShapesAreJudgedByBytesAndOperations) {
  OwnStep old = scale();
  old.site.shapes.clear();
  OwnStep cast = {own_site("cast", "", 0, Unit::none, 6 * kElements), 26};
  const Trace chain = own_runs_on_gpu({square_product(), old, cast, old});
  const Findings all = find(chain);
  EXPECT_EQ(std::ranges::count(all.found, Kind::pointwise_chain, &Finding::kind), 1);
  EXPECT_EQ(std::ranges::count(all.found, Kind::layout_kernels, &Finding::kind), 0) << "the cast is part of the chain";
  OwnStep product = square_product(1200);
  product.site.shapes.clear();
  const Trace odd = own_runs_on_gpu({product});
  EXPECT_NE(why_silent(odd, Kind::odd_dimensions), "");
  EXPECT_NE(why_silent(odd, Kind::slow_product).find("version 5"), std::string::npos);
}

TEST(OwnWork, IsOfTheFactorsThatAreThere) {
  Trace trace;
  const auto site = [&](const std::string& op, const std::string& shapes, double flops) {
    SiteInfo info = own_site(op, shapes, flops, Unit::half);
    info.kind = SpanKind::kernel;
    return trace.sites()[trace.add_site(info)];
  };
  // A batch that has the second factor in common is one product of more rows.
  const OpWork shared =
      own_work(trace, site("matmul", "bf16[16,128,64], bf16[64,32] -> bf16[16,128,32]", 2.0 * 16 * 128 * 64 * 32));
  ASSERT_TRUE(shared.product.has_value());
  EXPECT_EQ(shared.product->batch, 1);
  EXPECT_EQ(shared.product->m, 16 * 128);
  EXPECT_EQ(shared.product->k, 64);
  const OpWork each =
      own_work(trace, site("matmul", "bf16[16,128,64], bf16[16,64,32] -> bf16[16,128,32]", 2.0 * 16 * 128 * 64 * 32));
  EXPECT_EQ(each.product->batch, 16);
  // Factors that are read transposed lie as they are said to.
  const OpWork turned = own_work(
      trace, site("matmul_grad/matmul", "bf16[4096,100], bf16[4096,128] -> bf16[100,128]", 2.0 * 4096 * 100 * 128));
  EXPECT_EQ(turned.product->k, 4096);
  EXPECT_EQ(turned.has_aligned_rows, false) << "rows of 100 elements of 2 bytes";
  EXPECT_EQ(own_work(trace, site("group", "-> i64[7]", 0)).elements, 7);
}

TEST(OwnWork, HasAKindByItsOps) {
  Trace trace;
  const auto kind = [&](const std::string& op, const std::vector<std::string>& members = {}) {
    SiteInfo info{.op = op, .kind = SpanKind::kernel};
    for (const std::string& member : members) info.members.push_back({member, 1});
    return own_kind(trace, trace.sites()[trace.add_site(info)]);
  };
  EXPECT_EQ(kind("lstm_cell_grad/matmul"), KernelKind::product);
  EXPECT_EQ(kind("gelu"), KernelKind::pointwise);
  EXPECT_EQ(kind("store_as"), KernelKind::cast);
  EXPECT_EQ(kind("transpose"), KernelKind::layout);
  EXPECT_EQ(kind("copy_matmul"), KernelKind::layout);
  EXPECT_EQ(kind("group", {"mul", "sum"}), KernelKind::reduction);
  EXPECT_EQ(kind("group", {"cast", "relu_grad/select"}), KernelKind::pointwise);
  EXPECT_EQ(kind("2 groups", {"fill", "fill"}), KernelKind::fill);
  EXPECT_EQ(kind("somebodys_own"), KernelKind::other);
}

}  // namespace
}  // namespace paoding::findings
