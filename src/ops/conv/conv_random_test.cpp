// SPDX-License-Identifier: Apache-2.0
// Convolutions and their gradients of random shapes against float64, on the GPU if there is one: 1 to 2,048 channels,
// images of 1 to 300 pixels along an axis, groups, depthwise, strides, dilation; f32 and bf16.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <numeric>
#include <random>

#include "paoding/ops/convolution.h"
#include "tests/support/error_model.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

struct RandomCase {
  Shape x, w;
  Conv2dOptions options;
};

std::string to_string(const RandomCase& c) {
  const auto& o = c.options;
  return fmt::format("{} with {}, stride {} x {}, padding {} {} {} {}, dilation {} x {}, groups {}",
                     paoding::to_string(c.x), paoding::to_string(c.w), o.stride[0], o.stride[1], o.padding[0],
                     o.padding[1], o.padding[2], o.padding[3], o.dilation[0], o.dilation[1], o.groups);
}

class RandomShapes {
 public:
  explicit RandomShapes(unsigned seed) : random_(seed) {}

  /// A case of no more than `most` products, so that many fit into a test.
  RandomCase next(double most) {
    for (;;) {
      const RandomCase c = any();
      const double products =
          std::accumulate(c.w.begin(), c.w.end(), 1.0, std::multiplies<double>()) * double(c.x[0] * c.x[2] * c.x[3]);
      if (products <= most && fits(c)) return c;
    }
  }

 private:
  std::int64_t upto(std::int64_t most) { return std::uniform_int_distribution<std::int64_t>(1, most)(random_); }
  // The number is between 1 and 10 as likely as between 10 and 100.
  std::int64_t spread(double most) {
    const double share = std::uniform_real_distribution<double>(0, 1)(random_);
    return std::clamp<std::int64_t>(std::llround(std::pow(most, share)), 1, static_cast<std::int64_t>(most));
  }
  bool fits(const RandomCase& c) const {
    for (int axis = 0; axis < 2; ++axis) {
      const auto at = static_cast<std::size_t>(axis);
      const std::int64_t reach = (c.w[2 + axis] - 1) * c.options.dilation[at] + 1;
      if (c.x[2 + axis] + c.options.padding[2 * at] + c.options.padding[2 * at + 1] < reach) return false;
    }
    return true;
  }
  RandomCase any() {
    std::int64_t channels = spread(2048), outputs = spread(2048), groups = 1;
    switch (upto(4)) {
      case 1: outputs = groups = channels; break;  // depthwise
      case 2:
        groups = upto(8), channels = (channels + groups - 1) / groups * groups;
        outputs = (outputs + groups - 1) / groups * groups;
        break;
      default: break;
    }
    RandomCase c{{upto(3), channels, spread(300), spread(300)}, {outputs, channels / groups, upto(5), upto(5)}, {}};
    c.options.groups = groups;
    for (std::size_t axis = 0; axis < 2; ++axis) {
      c.options.stride[axis] = upto(3) / 2 + 1, c.options.dilation[axis] = upto(4) / 4 + 1;
      for (const std::size_t side : {2 * axis, 2 * axis + 1}) c.options.padding[side] = upto(4) - 1;
    }
    return c;
  }
  std::mt19937 random_;
};

void build_random_case(Graph& g, const RandomCase& c, DType dtype) {
  const Value x = g.input("x", dtype, c.x), w = g.input("w", dtype, c.w);
  const Value y = conv2d(x, w, c.options), dy = g.input("dy", dtype, y.shape());
  const Values made = gradients(std::array{sum(y * dy)}, std::array{x, w});
  g.fetch("y", y), g.fetch("dx", made[0]), g.fetch("dw", made[1]);
}

// Sums of many products round off a part of their partial sums, which may be larger than they are in the end, and most
// of all where few sums run at a time: with 16, a weight's gradient over 5,928 pixels is 1.2 times too far off on
// AArch64.
constexpr double kRandomRoundings = 24;

TEST(ConvolutionOfRandomShapes, IsRight) {
  constexpr int kCases = 40;
  constexpr double kMostProducts = 1 << 20;
  RandomShapes shapes(11);
  for (int i = 0; i < kCases; ++i) {
    const RandomCase c = shapes.next(kMostProducts);
    const DType dtype = i % 3 == 2 ? bf16 : f32;
    SCOPED_TRACE(fmt::format("case {}, {}: {}", i, paoding::to_string(dtype), to_string(c)));
    Graph g;
    build_random_case(g, c, dtype);
    const Feeds feeds = make_feeds(g, static_cast<unsigned>(i));
    CompileOptions options;
    options.device = Device::best();
    const Tensors got = Program(g, options).run(to_tensors(g, feeds));
    for (const auto& [name, expected] : expected_within(g, feeds, kRandomRoundings)) {
      EXPECT_EQ(expected.problem_with(got.at(name).to_doubles()), "") << name;
    }
    if (testing::Test::HasFailure()) return;
  }
}

// Extents that no memory and no number holds, windows larger than the image with its padding, groups that do not
// divide.
TEST(ConvolutionOfRandomShapes, IsRefusedWhereItCannotBe) {
  const auto refused = [](const Shape& x, const Shape& w, const Conv2dOptions& options = {}) {
    return message_of([&] {
      Graph g;
      conv2d(g.input("x", f32, x), g.input("w", f32, w), options);
    });
  };
  constexpr std::int64_t kHuge = std::int64_t{1} << 31;
  EXPECT_TRUE(has(refused({1 << 30, 1, 1 << 15, 1 << 15}, {1 << 30, 1, 1, 1}),
                  "conv2d: the result's shape: [1073741824, 1073741824, 32768, 32768] has more than 2^62 elements"));
  EXPECT_TRUE(has(refused({1, 1, 4, 9}, {1, 1, 5, 3}), "height"));
  EXPECT_TRUE(
      has(refused({1, 1, 9, 9}, {1, 1, 3, 3}, {.padding = {kHuge, kHuge, kHuge << 31, kHuge << 31}}), "padding"));
  EXPECT_TRUE(has(refused({1, 6, 9, 9}, {4, 2, 3, 3}, {.groups = 3}), "3 groups do not divide"));
}

}  // namespace
}  // namespace paoding::testing_program
