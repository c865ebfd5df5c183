// SPDX-License-Identifier: Apache-2.0
// Rules about kernels where these ran on the CPU: spans of the thread that steps, on recordings made by hand.
#include <gtest/gtest.h>

#include <set>

#include "tests/support/expected_gain.h"
#include "tests/support/own_runs.h"

namespace paoding::findings {
namespace {

using namespace profile;

constexpr std::int64_t kElementsOfCpu = 16'777'216;

// 134 MB at 20 bytes a ns, as fast as the memory of this CPU is, or so much slower.
OwnStep scale_of_cpu(double times = 1) {
  return {own_site("mul", "f32[16777216], f32[] -> f32[16777216]", static_cast<double>(kElementsOfCpu), Unit::f32,
                   8 * kElementsOfCpu + 4),
          6'710.9 * times};
}

// 2.1 GFLOP at 100 GFLOP/s, or so much slower.
OwnStep product_of_cpu(double times = 1, std::int64_t n = 1024) {
  const double flops = 2.0 * 1024 * 1024 * static_cast<double>(n);
  const std::string columns = std::to_string(n);
  return {own_site("matmul", "f32[1024,1024], f32[1024," + columns + "] -> f32[1024," + columns + "]", flops, Unit::f32,
                   8 * 1024 * n + 4 * 1024 * 1024),
          flops / 100e3 * times};
}

TEST(KernelsOfACpu, InAChainSaveTheBytesThatDoNotMove) {
  // Two of three reads and of three writes are for nothing: 268 MB at 20 bytes a ns. A longest one stays.
  expect_gain(own_runs_on_cpu({product_of_cpu(), scale_of_cpu(), scale_of_cpu(), scale_of_cpu()}),
              Kind::pointwise_chain, {13'421.8, 13'421.8}, "fuse_groups");
  // Arithmetic stays as it is: of kernels that take three times as long the same bytes are saved.
  OwnStep slow = scale_of_cpu(3);
  slow.site.op = slow.site.name = "tanh";
  expect_gain(own_runs_on_cpu({scale_of_cpu(), product_of_cpu(), slow, slow, slow}), Kind::pointwise_chain,
              {13'421.8, 13'421.8});
}

TEST(KernelsOfACpu, FarFromTheBandwidthAreThoseThatDoNotCompute) {
  OwnStep turned = {
      own_site("copy_transposed", "f32[4096,4096]{0,1} -> f32[4096,4096]", 0, Unit::none, 8 * kElementsOfCpu), 40'000};
  // At the rate of the fastest kernel 6,711 us, at half of it 13,422.
  expect_gain(own_runs_on_cpu({scale_of_cpu(), product_of_cpu(), turned}), Kind::far_from_bandwidth, {26'578, 33'289});
  OwnStep tanh = scale_of_cpu(6);
  tanh.site.op = tanh.site.name = "tanh";
  expect_nothing(own_runs_on_cpu({scale_of_cpu(), product_of_cpu(), tanh}), Kind::far_from_bandwidth);
}

// No rate of the CPU is known but by its kernels: small ones do not show that of its memory.
TEST(KernelsOfACpu, SayNothingOfAMemoryThatNoneOfThemShows) {
  OwnStep small = {own_site("slice", "f32[64,64]{0,1} -> f32[64,64]", 0, Unit::none, 32'768), 100};
  EXPECT_NE(why_silent(own_runs_on_cpu({small, product_of_cpu()}), Kind::far_from_bandwidth).find("large enough"),
            std::string::npos);
}

TEST(KernelsOfACpu, OfProductsFarBelowTheFastestAreSlow) {
  // Six times 21,475 us: at the fastest's rate that, at a third of it three times as much and a bit.
  expect_gain(own_runs_on_cpu({product_of_cpu(1, 2048), product_of_cpu(6)}), Kind::slow_product,
              {128'849 - 64'430, 128'849 - 21'475});
  expect_nothing(own_runs_on_cpu({product_of_cpu(1, 2048), product_of_cpu(2)}), Kind::slow_product);
}

TEST(KernelsOfACpu, HaveNoFindingsThatAreAboutAGpu) {
  const Trace trace = own_runs_on_cpu({product_of_cpu(), scale_of_cpu()});
  const Findings all = find(trace);
  EXPECT_EQ(all.abstained, "");
  EXPECT_TRUE(all.found.empty());
  std::set<Kind> silent;
  for (const Silence& one : all.silent) {
    if (one.why == "kernels ran on the CPU") silent.insert(one.kind);
  }
  for (const Kind kind : {Kind::pageable_copies, Kind::small_grid, Kind::exact_f32_product, Kind::odd_dimensions,
                          Kind::late_launches, Kind::exposed_copies, Kind::sync_in_step}) {
    EXPECT_TRUE(silent.contains(kind)) << to_string(kind);
  }
}

}  // namespace
}  // namespace paoding::findings
