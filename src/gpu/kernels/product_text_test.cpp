// SPDX-License-Identifier: Apache-2.0
// Compares the emulated kernel, and the one of a GPU, for products of few rows with float64 products of the factors,
// rounded to TF32 or as they are.
#include "gpu/kernels/product_text.h"

#include <gtest/gtest.h>
#include <sys/mman.h>
#include <unistd.h>

#include <array>
#include <bit>
#include <cmath>
#include <limits>
#include <memory>
#include <numeric>
#include <random>

#include "gpu/driver/kernel_cache.h"
#include "gpu/driver/loaded_kernel.h"
#include "gpu/driver/nvrtc.h"
#include "gpu/driver/write_memory.h"
#include "tests/gpu/cuda_emulation/emulated_kernels.h"

namespace paoding::gpu {
namespace {

constexpr float kPoison = -7.25e30f;

// Rounds as TMA does: to the nearest of 10 bits of mantissa, of two to the even one.
float to_tf32(float value) {
  const auto bits = std::bit_cast<unsigned>(value);
  return std::bit_cast<float>((bits + 0xfffu + (bits >> 13 & 1u)) & ~0x1fffu);
}

// Factors and their product, the same for all tiles.
struct Product {
  std::vector<float> a, b, want;

  explicit Product(const ProductShape& shape) {
    std::mt19937 random(static_cast<unsigned>(shape.m * 31 + shape.n * 7 + shape.k));
    std::normal_distribution<float> normal;
    a.resize(static_cast<std::size_t>(shape.m * shape.a_stride));
    b.resize(static_cast<std::size_t>((shape.is_transposed_b ? shape.n : shape.k) * shape.b_stride));
    for (float& x : a) x = normal(random);
    for (float& x : b) x = normal(random);
    const auto factor = [&](float value) { return double(shape.is_exact ? value : to_tf32(value)); };
    want.assign(static_cast<std::size_t>(shape.m * shape.out_stride), kPoison);
    std::vector<double> columns(static_cast<std::size_t>(shape.n * shape.k));  // of b, rounded, one after the other
    for (std::int64_t j = 0; j < shape.n; ++j) {
      for (std::int64_t k = 0; k < shape.k; ++k) {
        const std::int64_t at = shape.is_transposed_b ? j * shape.b_stride + k : k * shape.b_stride + j;
        columns[static_cast<std::size_t>(j * shape.k + k)] = factor(b[static_cast<std::size_t>(at)]);
      }
    }
#pragma omp parallel for
    for (std::int64_t i = 0; i < shape.m; ++i) {
      std::vector<double> row;
      for (std::int64_t k = 0; k < shape.k; ++k) {
        row.push_back(factor(a[static_cast<std::size_t>(i * shape.a_stride + k)]));
      }
      for (std::int64_t j = 0; j < shape.n; ++j) {
        const double sum = std::inner_product(row.begin(), row.end(), columns.begin() + j * shape.k, 0.0);
        want[static_cast<std::size_t>(i * shape.out_stride + j)] = static_cast<float>(sum);
      }
    }
  }
};

struct ProductCase {
  ProductShape shape;
  ProductTile tile;
  std::shared_ptr<const Product> product;
  TextLaunch launch = plan_product(shape, tile);

  ProductCase(const ProductShape& given, const ProductTile& with, std::shared_ptr<const Product> of = nullptr)
      : shape(given), tile(with), product(of ? std::move(of) : std::make_shared<const Product>(given)) {}

  /// Elements between the rows of the result have to stay as they were; sums of f32 are off by a few bits.
  void check(const std::vector<float>& got) const {
    // The tensor cores cut sums off, and do not round them.
    const float most = (shape.is_exact ? 2e-6f : 3e-5f) * std::sqrt(float(shape.k));
    const std::vector<float>& want = product->want;
    int wrong = 0;
    for (std::size_t i = 0; i < got.size() && wrong < 3; ++i) {
      const bool is_right = want[i] == kPoison ? got[i] == kPoison : std::abs(got[i] - want[i]) <= most;
      if (!is_right) ADD_FAILURE() << "element " << i << " of " << name() << ": " << got[i] << " for " << want[i];
      wrong += !is_right;
    }
    EXPECT_EQ(wrong, 0) << name();
  }
  std::string name() const {
    return fmt::format("[{}, {}] by [{}, {}]{}{}: {}", shape.m, shape.k, shape.k, shape.n,
                       shape.is_transposed_b ? " transposed" : "", shape.is_exact ? ", exact" : "", to_string(tile));
  }
};

// Extents that end within a tile, a block and a warp's part; rows with something between them; clusters with more CTAs
// than blocks.
const std::vector<ProductCase>& small_cases() {
  static const auto* cases = new std::vector<ProductCase>{
      {{.m = 5, .n = 20, .k = 44, .a_stride = 48, .b_stride = 24, .out_stride = 28}, {32, 1, 1}},
      {{.m = 70, .n = 36, .k = 100, .a_stride = 100, .b_stride = 104, .out_stride = 36, .is_transposed_b = true},
       {64, 1, 2}},
      {{.m = 128,
        .n = 128,
        .k = 640,
        .a_stride = 640,
        .b_stride = 128,
        .out_stride = 128,
        .is_b_unmodified_by_previous = true},
       {128, 2, 1}},
      {{.m = 130, .n = 68, .k = 260, .a_stride = 260, .b_stride = 260, .out_stride = 68, .is_transposed_b = true},
       {128, 2, 2}},
      {{.m = 33, .n = 72, .k = 96, .a_stride = 96, .b_stride = 72, .out_stride = 72}, {32, 2, 4}},
      {{.m = 20, .n = 132, .k = 36, .a_stride = 36, .b_stride = 132, .out_stride = 132}, {32, 1, 8}},
      {{.m = 40, .n = 68, .k = 420, .a_stride = 420, .b_stride = 68, .out_stride = 68}, {64, 1, 2, 2}},
      {{.m = 33, .n = 68, .k = 900, .a_stride = 900, .b_stride = 68, .out_stride = 68, .is_exact = true},
       {64, 1, 1, 2}},
      {{.m = 20, .n = 132, .k = 100, .a_stride = 100, .b_stride = 132, .out_stride = 132, .is_exact = true},
       {32, 1, 4, 2}},
      {{.m = 64, .n = 72, .k = 420, .a_stride = 420, .b_stride = 72, .out_stride = 72, .is_exact = true}, {64, 1, 1}},
      {{.m = 37,
        .n = 100,
        .k = 300,
        .a_stride = 304,
        .b_stride = 300,
        .out_stride = 100,
        .is_transposed_b = true,
        .is_exact = true},
       {32, 1, 2}},
  };
  return *cases;
}

TEST(ProductText, GivesProductsInTheEmulation) {
  std::vector<const TextLaunch*> launches;
  for (const ProductCase& one : small_cases()) launches.push_back(&one.launch);
  const EmulatedKernels emulated(launches);
  for (const ProductCase& one : small_cases()) {
    const Launch start = emulated.find(one.launch.entry);
    ASSERT_NE(start, nullptr) << emulated.log();
    for (const unsigned seed : {0u, 4u, 8u}) {
      std::vector<float> out(one.product->want.size(), kPoison);
      const float *a = one.product->a.data(), *b = one.product->b.data();
      float* to = out.data();
      LaunchScratch scratch;
      std::vector<std::uint64_t> sizes = one.launch.sizes;
      const float* operands[] = {a, b};
      std::array<emulation::TensorMapWords, 2> maps{};
      for (int i = 0; i < 2; ++i) {
        const TensorMap& map = one.launch.maps[static_cast<std::size_t>(i)];
        maps[static_cast<std::size_t>(i)] = emulated_map(map, operands[map.operand]);
      }
      void* arguments[] = {&a, &b, &to, &scratch, sizes.data(), &maps[0], &maps[1]};
      ASSERT_EQ(start(arguments, one.launch.grid[0], one.launch.block, &seed), 0) << one.name();
      one.check(out);
    }
  }
}

// The emulated kernel's result; it reads the factors by `maps_of`, and sums without splitting through `a` and `b`.
std::vector<float> emulated_product(const ProductCase& one, const Product& maps_of, const float* a, const float* b) {
  const EmulatedKernels emulated({&one.launch});
  const Launch start = emulated.find(one.launch.entry);
  if (start == nullptr) throw std::runtime_error(emulated.log());
  std::vector<float> out(maps_of.want.size(), kPoison);
  float* to = out.data();
  LaunchScratch scratch;
  std::vector<std::uint64_t> sizes = one.launch.sizes;
  auto a_map = emulated_map(one.launch.maps[0], maps_of.a.data());
  auto b_map = emulated_map(one.launch.maps[1], maps_of.b.data());
  void* arguments[] = {&a, &b, &to, &scratch, sizes.data(), &a_map, &b_map};
  const unsigned seed = 1;
  EXPECT_EQ(start(arguments, one.launch.grid[0], one.launch.block, &seed), 0);
  return out;
}

TEST(ProductText, GivesIeeeSumsOfNonFiniteFactorsInExactF32) {
  for (const bool is_transposed_b : {false, true}) {
    const std::int64_t b_stride = is_transposed_b ? 100 : 68;
    const ProductShape shape{.m = 20,
                             .n = 68,
                             .k = 100,
                             .a_stride = 100,
                             .b_stride = b_stride,
                             .out_stride = 68,
                             .is_transposed_b = is_transposed_b,
                             .is_exact = true};
    Product factors(shape);
    const auto of_b = [&](int k, int j) -> float& {
      return factors.b[static_cast<std::size_t>(is_transposed_b ? j * b_stride + k : k * b_stride + j)];
    };
    constexpr float kInfinite = std::numeric_limits<float>::infinity();
    factors.a[3 * 100 + 7] = kInfinite, factors.a[5 * 100 + 99] = std::nanf(""), of_b(40, 9) = -kInfinite;
    factors.a[8 * 100 + 40] = 0;                                   // times the infinite one
    for (int j = 0; j < 4; ++j) of_b(60, 20 + j) = std::nanf("");  // four columns that end their sum early
    const ProductCase one(shape, {32, 1, 2}, std::make_shared<const Product>(factors));
    const std::vector<float> out = emulated_product(one, factors, factors.a.data(), factors.b.data());
    for (int i = 0; i < 20; ++i) {
      for (int j = 0; j < 68; ++j) {
        double sum = 0;
        for (int k = 0; k < 100; ++k) sum += double(factors.a[static_cast<std::size_t>(i * 100 + k)]) * of_b(k, j);
        const float got = out[static_cast<std::size_t>(i * 68 + j)];
        if (std::isfinite(sum)) {
          EXPECT_NEAR(got, sum, 2e-5) << i << ", " << j;
        } else {
          EXPECT_EQ(std::isnan(got), std::isnan(sum)) << i << ", " << j;
          EXPECT_TRUE(std::isnan(sum) || double(got) == sum) << i << ", " << j;
        }
      }
    }
  }
}

// Factors that are NaN all over must not make a product many times as long. Only the first 16 factors of the row
// can be read through the pointer: a kernel that went on after the NaN would fault.
TEST(ProductText, StopsTheSumWithoutSplittingAtANaN) {
  const ProductShape shape{
      .m = 1, .n = 4, .k = 2048, .a_stride = 2048, .b_stride = 4, .out_stride = 4, .is_exact = true};
  Product factors(shape);
  factors.a[0] = std::nanf("");
  const auto page = static_cast<std::size_t>(sysconf(_SC_PAGESIZE));
  void* const mapped = mmap(nullptr, 2 * page, PROT_READ | PROT_WRITE, MAP_PRIVATE | MAP_ANONYMOUS, -1, 0);
  ASSERT_NE(mapped, MAP_FAILED);
  ASSERT_EQ(mprotect(static_cast<char*>(mapped) + page, page, PROT_NONE), 0);
  float* const a = reinterpret_cast<float*>(static_cast<char*>(mapped) + page) - 16;
  std::copy_n(factors.a.begin(), 16, a);
  const ProductCase one(shape, {32, 1, 1});
  for (const float got : emulated_product(one, factors, a, factors.b.data())) EXPECT_TRUE(std::isnan(got));
  munmap(mapped, 2 * page);
}

TEST(ProductText, CompilesForEveryTile) {
  if (nvrtc() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << nvrtc_problem();
  for (int way = 0; way < 4; ++way) {
    const bool is_transposed_b = way & 1, is_exact = way & 2;
    for (const ProductTile& tile : product_tiles(is_exact)) {
      const ProductShape shape{128, 512, 512, 512, 512, 512, is_transposed_b, false, is_exact};
      EXPECT_FALSE(compile(plan_product(shape, tile).source, "product.cu", "sm_90a").empty()) << to_string(tile);
    }
  }
}

TEST(ProductText, GivesProductsOnAGpu) {
  if (driver() == nullptr) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  const GpuDevice& device = GpuDevice::get(0);
  if (device.target().major < 9) GTEST_SKIP() << "NOT CHECKED: a GPU without clusters";
  const Driver& cuda = *driver();
  const Stream stream(device);
  std::vector<ProductCase> cases = small_cases();
  for (const ProductShape& shape :
       {ProductShape{.m = 128,
       .n = 1536,
       .k = 2048,
       .a_stride = 2048,
       .b_stride = 2048,
       .out_stride = 1536,
       .is_transposed_b = true},
        ProductShape{.m = 100, .n = 2000, .k = 1000, .a_stride = 1000, .b_stride = 2000, .out_stride = 2000}}) {
    for (const bool is_exact : {false, true}) {
      ProductShape one = shape;
      one.is_exact = is_exact;
      const auto product = std::make_shared<const Product>(one);
      for (const ProductTile& tile : product_tiles(is_exact)) cases.emplace_back(one, tile, product);
    }
  }
  std::vector<KernelSource> sources;  // compiled side by side
  for (const ProductCase& one : cases) sources.push_back(one.launch.source);
  KernelCache::shared().compile_all(sources, device.target().arch());
  for (const ProductCase& one : cases) {
    const DeviceMemory a(device, one.product->a.size() * 4), b(device, one.product->b.size() * 4),
        out(device, one.product->want.size() * 4);
    std::vector<float> got(one.product->want.size(), kPoison);
    write_memory(a.address(), one.product->a.data(), one.product->a.size() * 4);
    write_memory(b.address(), one.product->b.data(), one.product->b.size() * 4);
    write_memory(out.address(), got.data(), got.size() * 4);
    const LoadedKernel kernel(device, one.launch, 3);
    void* operands[] = {a.pointer(), b.pointer(), out.pointer()};
    kernel.start(stream.get(), operands, {});
    stream.wait_idle();
    PD_CUDA(cuda.cuMemcpyDtoH(got.data(), out.address(), got.size() * 4));
    one.check(got);
  }
}

}  // namespace
}  // namespace paoding::gpu
