// SPDX-License-Identifier: Apache-2.0
// Convolutions that go by images on the CPU, with and without a pool: against float64 for pools that end within rows
// and images, numbers of images that threads share unevenly, and images whose channels do not lie last; which are made
// and which decline.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <set>

#include "cpu/parallel.h"
#include "plan/plan.h"
#include "runtime/compile.h"
#include "tests/support/error_model.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct ImageCase {
  Shape x, w;
  std::array<std::int64_t, 2> pool = {2, 2};
  Conv2dOptions options = {};
  bool has_relu = true;
};

const std::vector<ImageCase>& image_cases() {
  static const std::vector<ImageCase> all = {
      {{32, 1, 6, 10}, {16, 1, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}},
      {{9, 4, 7, 7}, {17, 4, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}},  // rows and columns that no pool reads
      {{8, 3, 11, 9}, {7, 3, 5, 5}, {2, 2}, {.padding = {2, 2, 2, 2}}, false},
      {{16, 2, 8, 13}, {9, 2, 3, 3}, {1, 4}, {.dilation = {2, 1}}},
      {{16, 8, 5, 7}, {8, 8, 3, 1}, {3, 5}, {}, false},
      {{10, 4, 9, 13}, {12, 4, 3, 3}, {2, 2}, {.stride = {2, 3}, .padding = {1, 1, 1, 1}}},
      {{8, 8, 6, 6}, {16, 4, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}, .groups = 2}},
      {{4, 1, 64, 64}, {16, 1, 1, 1}, {2, 2}},  // one image at a time
  };
  return all;
}

std::string to_string(const ImageCase& c) {
  return fmt::format("{} with {}, pool {} x {}, stride {}", paoding::to_string(c.x), paoding::to_string(c.w), c.pool[0],
                     c.pool[1], c.options.stride[0]);
}

// The result, and the gradients of all inputs for the gradient that is given for it.
void build(Graph& g, const ImageCase& c, bool is_pooled, DType dtype = f32) {
  const Value x = g.input("x", dtype, c.x), w = g.input("w", dtype, c.w), b = g.input("b", dtype, {c.w[0]});
  Conv2dOptions options = c.options;
  options.activation = c.has_relu ? Activation::relu : Activation::none;
  const Value windows = conv2d(x, w, b, options);
  const Value y = is_pooled ? max_pool2d(windows, {.kernel = c.pool}) : windows;
  const Value dy = g.input("dy", dtype, y.shape());
  const Values made = gradients(std::array{sum(y * dy)}, std::array{x, w, b});
  g.fetch("y", y), g.fetch("dx", made[0]), g.fetch("dw", made[1]), g.fetch("db", made[2]);
}

// "op by kernel" of the steps that are a kernel's, for so many threads.
std::multiset<std::string> kernels_of(const Graph& g, int threads, const CompileOptions& options = {}) {
  Target target = named_target("avx512");
  target.threads = threads;
  std::multiset<std::string> found;
  for (const Step& step : compile_plan(g, options, std::make_shared<const Target>(target)).plan.steps) {
    if (step.kind == Step::Kind::kernel) found.insert(step.call.op->name + " by " + step.kernel->name);
  }
  return found;
}

// Partial sums over 16,384 pixels may be larger than a sum is in the end.
constexpr double kImageRoundings = 32;

void expect_right(const Graph& g, const Feeds& feeds, const std::map<std::string, Expected>& expected,
                  const char* unused) {
  CompileOptions options;
  if (*unused != 0) options.disabled_passes = {unused};
  Program program(g, options);
  const Tensors got = program.run(to_tensors(g, feeds));
  for (const auto& [name, within] : expected) EXPECT_EQ(within.problem_with(got.at(name).to_doubles()), "") << name;
  expect_same_bits(got, program.run(to_tensors(g, feeds)));
}

TEST(ConvolutionsByImages, AreRightByOneThreadAndByAll) {
  unsigned seed = 1;
  for (const ImageCase& c : image_cases()) {
    for (const bool is_pooled : {true, false}) {
      Graph g;
      build(g, c, is_pooled);
      const Feeds feeds = make_feeds(g, seed++);
      const auto expected = expected_within(g, feeds, kImageRoundings);
      for (const bool is_serial : {true, false}) {
        const SerialScope serial(is_serial);
        for (const char* unused : {"", "choose_layouts"}) {
          SCOPED_TRACE(to_string(c) + (is_pooled ? "" : ", no pool") + (is_serial ? ", one thread" : "") +
                       (*unused != 0 ? ", channels outermost" : ""));
          expect_right(g, feeds, expected, unused);
        }
      }
    }
  }
}

TEST(ConvolutionsByImages, OfBf16AreRight) {
  unsigned seed = 100;
  for (const std::size_t i : {0u, 1u, 3u, 5u}) {
    Graph g;
    build(g, image_cases()[i], true, bf16);
    const Feeds feeds = make_feeds(g, seed++);
    const auto expected = expected_within(g, feeds, kImageRoundings);
    for (const char* unused : {"", "choose_layouts"}) {
      SCOPED_TRACE(to_string(image_cases()[i]) + (*unused != 0 ? ", channels outermost" : ""));
      expect_right(g, feeds, expected, unused);
    }
  }
}

// A layer of the case, whose gradient another convolution makes, as in a network: in 16 bits.
void build_network(Graph& g, const ImageCase& c) {
  const Value x = g.input("x", f32, c.x), w = g.input("w", f32, c.w), b = g.input("b", f32, {c.w[0]});
  Conv2dOptions options = c.options;
  options.activation = c.has_relu ? Activation::relu : Activation::none;
  const Value pooled = max_pool2d(conv2d(x, w, b, options), {.kernel = c.pool});
  const Value y = conv2d(pooled, g.input("v", f32, {8, c.w[0], 1, 1}));
  const Values made = gradients(std::array{sum(y * g.input("dy", f32, y.shape()))}, std::array{x, w, b});
  g.fetch("y", y), g.fetch("dx", made[0]), g.fetch("dw", made[1]), g.fetch("db", made[2]);
}

// The gradients of weights and bias are f32 there: the sums are those of the steps that they take the place of, but for
// their order.
TEST(ConvolutionsByImages, InMixedPrecisionAreWhatIsMadeOneByOne) {
  unsigned seed = 200;
  for (const ImageCase& c : image_cases()) {
    SCOPED_TRACE(to_string(c));
    Graph g;
    build_network(g, c);
    const Feeds feeds = make_feeds(g, seed++);
    CompileOptions together, apart;
    together.precision = apart.precision = bf16;
    apart.disabled_passes = {"pool_convolutions"};
    Program program(g, together), reference(g, apart);
    const Tensors got = program.run(to_tensors(g, feeds)), wanted = reference.run(to_tensors(g, feeds));
    for (const auto& [name, tensor] : wanted) {
      const std::vector<double> a = got.at(name).to_doubles(), b = tensor.to_doubles();
      double largest = 0;
      for (const double value : b) largest = std::max(largest, std::abs(value));
      const double within = (name == "dw" || name == "db" ? 1e-5 : 1.0 / 128) * largest;
      for (std::size_t i = 0; i < b.size(); ++i) ASSERT_NEAR(a[i], b[i], within) << name << " " << i;
    }
    expect_same_bits(got, program.run(to_tensors(g, feeds)));
  }
}

using Names = std::multiset<std::string>;
const Names kByImages{"conv2d_pool by onednn by images", "conv2d_pool_grad_input by onednn by images",
                      "conv2d_pool_grad_weight by onednn by images"};

Names kernels_of(const ImageCase& c, bool is_pooled, int threads) {
  Graph g;
  build(g, c, is_pooled);
  return kernels_of(g, threads);
}

TEST(ConvolutionsByImages, AreMadeWhereThreadsShareTheImagesEvenly) {
  const ImageCase c{{48, 16, 14, 14}, {32, 16, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}};
  if (kernels_of(c, false, 1).count("conv2d_bias by onednn") == 0)
    GTEST_SKIP() << "NOT CHECKED: no oneDNN for this CPU";
  for (const int threads : {1, 2, 16, 24}) EXPECT_EQ(kernels_of(c, true, threads), kByImages) << threads;
  for (const int threads : {20, 32, 64}) {
    const Names kernels = kernels_of(c, true, threads);
    EXPECT_EQ(kernels.count("conv2d_bias by onednn"), 1u) << threads;
    EXPECT_EQ(kernels.count("conv2d_grad_weight by onednn"), 1u) << threads;
    EXPECT_EQ(kernels.size(), 5u) << "and two pools and the image's gradient of their own: " << threads;
  }
  const Names by_images = kernels_of(c, false, 16), whole = kernels_of(c, false, 1);
  for (const char* op : {"conv2d_bias", "conv2d_grad_weight"}) {
    EXPECT_EQ(by_images.count(std::string(op) + " by onednn by images"), 1u) << op;
    EXPECT_EQ(whole.count(std::string(op) + " by onednn"), 1u) << op;
  }
}

TEST(ConvolutionsByImages, AreMadeInMixedPrecisionToo) {
  Graph g;
  build_network(g, {{48, 16, 14, 14}, {32, 16, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}});
  CompileOptions mixed;
  mixed.precision = bf16;
  Names kernels = kernels_of(g, 2, mixed);
  if (kernels.count("conv2d by loops") > 0) GTEST_SKIP() << "NOT CHECKED: no oneDNN for bf16 on this CPU";
  for (const char* other : {"conv2d by onednn by images", "conv2d_grad_input by onednn by images"}) {
    EXPECT_EQ(kernels.erase(other), 1u) << other;
  }
  EXPECT_EQ(kernels, kByImages);
}

TEST(ConvolutionsByImages, DeclineWindowsThatOutgrowACoreAndSumsThatOutgrowTheImages) {
  const ImageCase large{{4, 16, 128, 128}, {32, 16, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}};
  EXPECT_EQ(kernels_of(large, true, 2).count("conv2d_pool by onednn by images"), 0u);
  const ImageCase deep{{16, 256, 4, 4}, {256, 256, 3, 3}, {2, 2}, {.padding = {1, 1, 1, 1}}};
  EXPECT_EQ(kernels_of(deep, true, 16).count("conv2d_pool_grad_weight by onednn by images"), 0u);
  EXPECT_EQ(kernels_of(deep, false, 16).count("conv2d_grad_weight by onednn by images"), 0u);
}

// The test fetches the windows' index, of a pool by itself: 255 is not for users to see.
TEST(ConvolutionsByImages, LeaveAPoolAloneWhoseIndexIsFetched) {
  Graph g;
  const Value x = g.input("x", f32, {8, 3, 9, 9}), w = g.input("w", f32, {5, 3, 3, 3}), b = g.input("b", f32, {5});
  const Values made =
      call(*find_op("max_pool2d"), std::array{relu(conv2d(x, w, b))}, {{"kernel", Ints{2, 2}}, {"stride", Ints{2, 2}}});
  g.fetch("y", made[0]), g.fetch("index", made[1]);
  const Names kernels = kernels_of(g, 1);
  EXPECT_EQ(kernels.count("conv2d_pool by onednn by images"), 0u);
  EXPECT_EQ(kernels.size(), 2u) << "a convolution and a pool";
}

}  // namespace
}  // namespace paoding::testing_program
