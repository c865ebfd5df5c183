// SPDX-License-Identifier: Apache-2.0
// Products of few rows of 16 bits: the emulated kernel and the one of a GPU against products in float64.
#include "gpu/kernels/narrow_product.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <numeric>
#include <random>

#include "base/half.h"
#include "gpu/driver/kernel_cache.h"
#include "gpu/driver/loaded_kernel.h"
#include "gpu/driver/nvrtc.h"
#include "gpu/driver/write_memory.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"

namespace paoding::gpu {
namespace {

constexpr std::uint16_t kNarrowPoison = 0x7abc;

struct NarrowCase {
  NarrowProduct shape;
  std::vector<std::uint16_t> a, b;
  std::vector<double> want;  // NaN between the rows
  TextLaunch launch;

  explicit NarrowCase(const NarrowProduct& given) : shape(given), launch(plan_narrow_product(given)) {
    std::mt19937 random(static_cast<unsigned>(shape.m * 31 + shape.n * 7 + shape.k));
    std::normal_distribution<float> normal;
    for (auto* to : {&a, &b}) {
      to->resize(static_cast<std::size_t>(to == &a ? shape.m * shape.a_stride : shape.k * shape.b_stride));
      for (std::uint16_t& bits : *to) bits = stored(normal(random));
    }
    want.assign(static_cast<std::size_t>(shape.m * shape.out_stride), std::nan(""));
    for (std::int64_t i = 0; i < shape.m; ++i) {
      for (std::int64_t j = 0; j < shape.n; ++j) {
        double sum = 0;
        for (std::int64_t k = 0; k < shape.k; ++k)
          sum += number(a, i * shape.a_stride + k) * number(b, k * shape.b_stride + j);
        want[static_cast<std::size_t>(i * shape.out_stride + j)] = sum;
      }
    }
  }
  std::uint16_t stored(float value) const {
    return shape.dtype == DType::f16 ? float_to_f16(value) : float_to_bf16(value);
  }
  double number(const std::vector<std::uint16_t>& of, std::int64_t at) const {
    const std::uint16_t bits = of[static_cast<std::size_t>(at)];
    return shape.dtype == DType::f16 ? f16_to_float(bits) : bf16_to_float(bits);
  }
  std::string name() const {
    return fmt::format("[{}, {}] by [{}, {}] of {}", shape.m, shape.k, shape.k, shape.n, to_string(shape.dtype));
  }
  /// Allows half a unit of the last place, and the error of sums in f32.
  void check(const std::vector<std::uint16_t>& got) const {
    const double rounding = shape.dtype == DType::f16 ? 0x1p-11 : 0x1p-8;
    int wrong = 0;
    for (std::size_t i = 0; i < got.size() && wrong < 3; ++i) {
      const double off = std::abs(number(got, static_cast<std::int64_t>(i)) - want[i]);
      const bool is_right = std::isnan(want[i]) ? got[i] == kNarrowPoison : off <= std::abs(want[i]) * rounding + 1e-4;
      if (!is_right) ADD_FAILURE() << "element " << i << " of " << name() << ": off by " << off << " of " << want[i];
      wrong += !is_right;
    }
    EXPECT_EQ(wrong, 0) << name();
  }
};

// Extents that end within a tile and a step; rows with something between them; two tiles of rows.
const std::vector<NarrowCase>& narrow_cases() {
  static const auto* all = [] {
    auto* made = new std::vector<NarrowCase>;
    for (const DType dtype : {DType::bf16, DType::f16}) {
      made->emplace_back(NarrowProduct{dtype, 64, 64, 128, 128, 64, 64, true});
      made->emplace_back(NarrowProduct{dtype, 37, 40, 72, 88, 48, 56, false});
      made->emplace_back(NarrowProduct{dtype, 100, 104, 264, 264, 104, 104, true});
      made->emplace_back(NarrowProduct{dtype, 5, 8, 8, 8, 8, 8, false});
    }
    return made;
  }();
  return *all;
}

TEST(NarrowProduct, IsRightInTheEmulation) {
  std::vector<const TextLaunch*> launches;
  for (const NarrowCase& one : narrow_cases()) launches.push_back(&one.launch);
  const EmulatedKernels emulated(launches);
  for (const NarrowCase& one : narrow_cases()) {
    const Launch start = emulated.find(one.launch.entry);
    ASSERT_NE(start, nullptr) << emulated.log();
    std::vector<unsigned> order(one.launch.grid[0]);  // of CTAs
    std::iota(order.begin(), order.end(), 0u);
    for (int turn = 0; turn < 2; ++turn, std::ranges::reverse(order)) {
      std::vector<std::uint16_t> out(one.want.size(), kNarrowPoison);
      const std::uint16_t *a = one.a.data(), *b = one.b.data();
      std::uint16_t* to = out.data();
      LaunchScratch scratch;
      std::vector<std::uint64_t> sizes = one.launch.sizes;
      void* arguments[] = {&a, &b, &to, &scratch, sizes.data()};
      ASSERT_EQ(start(arguments, one.launch.grid[0], one.launch.block, order.data()), 0) << one.name();
      one.check(out);
    }
  }
}

TEST(NarrowProduct, CompilesForHopper) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  for (const NarrowCase& one : narrow_cases()) {
    EXPECT_FALSE(compile(one.launch.source, "product.cu", "sm_90a").empty()) << one.name();
  }
}

TEST(NarrowProduct, IsRightOnAGpu) {
  if (driver() == nullptr) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const GpuDevice& device = GpuDevice::get(0);
  if (device.target().major < 9) GTEST_SKIP() << "NOT CHECKED: chosen for Hopper only";
  const Driver& cuda = *driver();
  const Stream stream(device);
  std::vector<NarrowCase> all = narrow_cases();
  all.emplace_back(NarrowProduct{DType::bf16, 64, 4096, 1024, 1024, 4096, 4096, true});
  all.emplace_back(NarrowProduct{DType::bf16, 64, 2048, 512, 512, 2048, 2048, false});
  for (const NarrowCase& one : all) {
    const DeviceMemory a(device, one.a.size() * 2), b(device, one.b.size() * 2), out(device, one.want.size() * 2);
    std::vector<std::uint16_t> got(one.want.size(), kNarrowPoison);
    write_memory(a.address(), one.a.data(), one.a.size() * 2);
    write_memory(b.address(), one.b.data(), one.b.size() * 2);
    write_memory(out.address(), got.data(), got.size() * 2);
    const LoadedKernel kernel(device, one.launch, 3);
    void* operands[] = {a.pointer(), b.pointer(), out.pointer()};
    kernel.start(stream.get(), operands, {});
    stream.wait_idle();
    PD_CUDA(cuda.cuMemcpyDtoH(got.data(), out.address(), got.size() * 2));
    one.check(got);
  }
}

}  // namespace
}  // namespace paoding::gpu
