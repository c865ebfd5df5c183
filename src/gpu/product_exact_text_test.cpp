// SPDX-License-Identifier: Apache-2.0
// Products of few rows in f32 that is not rounded: the emulated kernel against float64, which products it is for, and
// that its texts compile.
#include "gpu/product_exact_text.h"

#include <gtest/gtest.h>

#include <cmath>
#include <numeric>
#include <random>

#include "gpu/nvrtc.h"
#include "tests/cuda_emulation/emulated_kernels.h"

namespace paoding::gpu {
namespace {

constexpr float kPoison = -7.25e30f;

struct Case {
  ProductShape shape;
  int cluster;
  TextLaunch launch = plan_exact_product(shape, cluster);
};

// Extents that end within a tile, a block and a CTA's part; rows with something between them.
const std::vector<Case>& small_cases() {
  static const auto* cases = new std::vector<Case>{
      {{.m = 5, .n = 20, .k = 44, .a_stride = 48, .b_stride = 24, .out_stride = 28}, 1},
      {{.m = 70, .n = 36, .k = 100, .a_stride = 100, .b_stride = 104, .out_stride = 36, .is_transposed_b = true}, 2},
      {{.m = 64, .n = 128, .k = 260, .a_stride = 260, .b_stride = 128, .out_stride = 128, .is_settled_b = true}, 4},
      {{.m = 33,
        .n = 72,
        .k = 96,
        .a_stride = 96,
        .b_stride = 96,
        .out_stride = 72,
        .is_transposed_b = true,
        .is_settled_b = true},
       8},
  };
  return *cases;
}

TEST(ExactProductText, GivesSumsOfProductsInTheEmulation) {
  std::vector<const TextLaunch*> launches;
  for (const Case& one : small_cases()) launches.push_back(&one.launch);
  const EmulatedKernels emulated(launches);
  for (const Case& one : small_cases()) {
    const ProductShape& s = one.shape;
    SCOPED_TRACE(one.launch.why);
    std::mt19937 random(static_cast<unsigned>(s.k));
    std::normal_distribution<float> normal;
    std::vector<float> a(static_cast<std::size_t>(s.m * s.a_stride));
    std::vector<float> b(static_cast<std::size_t>((s.is_transposed_b ? s.n : s.k) * s.b_stride));
    for (float& x : a) x = normal(random);
    for (float& x : b) x = normal(random);
    const Launch start = emulated.find(one.launch.entry);
    ASSERT_NE(start, nullptr) << emulated.log();
    for (const unsigned seed : {0u, 4u, 8u}) {
      std::vector<float> out(static_cast<std::size_t>(s.m * s.out_stride), kPoison);
      const float *from_a = a.data(), *from_b = b.data();
      float* to = out.data();
      Room room;
      std::vector<std::uint64_t> sizes = one.launch.sizes;
      void* arguments[] = {&from_a, &from_b, &to, &room, sizes.data()};
      std::vector<unsigned> order(one.launch.grid[0]);
      std::iota(order.begin(), order.end(), 0u);
      if (one.cluster > 1) order[0] = seed;  // the scheduler's
      ASSERT_EQ(start(arguments, one.launch.grid[0], one.launch.block, order.data()), 0);
      for (std::int64_t i = 0; i < s.m * s.out_stride; ++i) {
        const std::int64_t row = i / s.out_stride, column = i % s.out_stride;
        const float got = out[static_cast<std::size_t>(i)];
        if (column >= s.n) {
          ASSERT_EQ(got, kPoison) << "between rows";
          continue;
        }
        double want = 0;
        for (std::int64_t k = 0; k < s.k; ++k) {
          const std::int64_t at = s.is_transposed_b ? column * s.b_stride + k : k * s.b_stride + column;
          want += double(a[static_cast<std::size_t>(row * s.a_stride + k)]) * double(b[static_cast<std::size_t>(at)]);
        }
        ASSERT_NEAR(got, want, 1e-6 * std::sqrt(double(s.k)) * 4) << row << ", " << column;
      }
    }
  }
}

TEST(ExactProductText, IsForProductsOfOneWave) {
  const Target h200 = named_target("h200");
  const auto cluster = [&](std::int64_t m, std::int64_t n, std::int64_t k) {
    return exact_product_cluster({.m = m, .n = n, .k = k}, h200);
  };
  EXPECT_EQ(cluster(64, 2048, 512), 4) << "32 tiles";
  EXPECT_EQ(cluster(64, 1536, 512), 4) << "24 tiles";
  EXPECT_EQ(cluster(64, 512, 512), 8);
  EXPECT_EQ(cluster(128, 4096, 1024), 1);
  EXPECT_EQ(cluster(256, 4096, 1024), 0) << "more tiles than multiprocessors";
  EXPECT_EQ(cluster(64, 256, 512), 0) << "most of the chip would be empty";
  EXPECT_EQ(cluster(64, 2048, 32), 0) << "one block";
}

TEST(ExactProductText, Compiles) {
  if (nvrtc() == nullptr) GTEST_SKIP() << nvrtc_problem();
  for (const Case& one : small_cases()) {
    EXPECT_FALSE(compile(one.launch.source, "product_exact.cu", "sm_90a").empty()) << one.launch.why;
  }
}

}  // namespace
}  // namespace paoding::gpu
