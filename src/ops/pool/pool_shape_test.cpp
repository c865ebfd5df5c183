// SPDX-License-Identifier: Apache-2.0
#include "ops/pool/pool_shape.h"

#include <gtest/gtest.h>

#include <random>

#include "base/check.h"
#include "paoding/paoding.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

using testing_program::has;
using testing_program::message_of;
using Pairs = std::vector<std::pair<std::int64_t, std::int64_t>>;

WindowAxis window_of(std::int64_t size, std::int64_t kernel, std::int64_t stride, std::int64_t dilation,
                     std::int64_t before, std::int64_t after) {
  WindowAxis window{size, kernel, stride, dilation, before, after, 0};
  const std::int64_t free = size + before + after - dilation * (kernel - 1) - 1;
  window.outputs = free < 0 ? 0 : free / stride + 1;
  return window;
}

Pairs pairs_of(const PoolTaps& taps) {
  Pairs pairs;
  for (const PoolTap& tap : taps) pairs.emplace_back(tap.other, tap.tap);
  return pairs;
}

void expect_as_defined(const WindowAxis& window) {
  std::vector<Pairs> of_windows(static_cast<std::size_t>(window.outputs));
  std::vector<Pairs> of_elements(static_cast<std::size_t>(window.size));
  for (std::int64_t o = 0; o < window.outputs; ++o) {
    for (std::int64_t tap = 0; tap < window.kernel; ++tap) {
      const std::int64_t element = window.input(o, tap);
      if (element < 0 || element >= window.size) continue;
      of_windows[static_cast<std::size_t>(o)].emplace_back(element, tap);
      of_elements[static_cast<std::size_t>(element)].emplace_back(o, tap);
    }
  }
  const PoolAxis forward(window, false, false), backward(window, true, true);
  for (std::int64_t o = 0; o < window.outputs; ++o) {
    const Pairs& pairs = of_windows[static_cast<std::size_t>(o)];
    ASSERT_EQ(pairs_of(forward.of(o)), pairs) << "window " << o;
    ASSERT_EQ(forward.count(o), static_cast<std::int64_t>(pairs.size())) << "window " << o;
    ASSERT_EQ(backward.count(o), window.kernel) << "window " << o;
  }
  for (std::int64_t element = 0; element < window.size; ++element) {
    ASSERT_EQ(pairs_of(backward.of(element)), of_elements[static_cast<std::size_t>(element)]) << "element " << element;
  }
}

TEST(PoolAxis, HasTheTapsThatReadTheImage) {
  std::mt19937 random(1);
  const auto from = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  for (int i = 0; i < 3000; ++i) {
    const WindowAxis window = window_of(from(1, 30), from(1, 8), from(1, 12), from(1, 12), from(0, 30), from(0, 30));
    SCOPED_TRACE(fmt::format("size {} kernel {} stride {} dilation {} padding {} {}", window.size, window.kernel,
                             window.stride, window.dilation, window.before, window.after));
    expect_as_defined(window);
    if (testing::Test::HasFatalFailure()) return;
  }
}

TEST(PoolAxis, HasThemAfterThoseThatAreLookedUp) {
  expect_as_defined(window_of(20000, 3, 1, 1, 1, 1));
  expect_as_defined(window_of(20000, 5, 2, 3, 7, 2));
  expect_as_defined(window_of(20000, 4, 6, 4, 0, 5));
}

// A billion windows, each of a billion taps. Their common elements with the image are found without a search.
TEST(PoolAxis, TakesNeitherMemoryNorTimeForWindowsThatNobodyAsksFor) {
  constexpr std::int64_t kBillion = std::int64_t{1} << 30;
  const PoolAxis forward(window_of(1, kBillion, 1, 1, kBillion - 1, kBillion - 1), false, false);
  EXPECT_EQ(pairs_of(forward.of(kBillion - 1)), (Pairs{{0, 0}}));
  EXPECT_EQ(forward.count(kBillion / 2), 1);
  const PoolAxis backward(window_of(kBillion, 2, 2, kBillion - 1, kBillion - 2, 0), true, false);
  EXPECT_EQ(pairs_of(backward.of(0)), (Pairs{{kBillion / 2 - 1, 0}}));
  EXPECT_EQ(pairs_of(backward.of(3)), (Pairs{{1, 1}}));
  EXPECT_EQ(pairs_of(backward.of(kBillion - 2)), Pairs{});
}

// Against all windows, one after the other.
TEST(Pool, NamesTheFirstWindowThatHoldsPaddingOnly) {
  std::mt19937 random(2);
  const auto from = [&](std::int64_t least, std::int64_t most) {
    return std::uniform_int_distribution<std::int64_t>(least, most)(random);
  };
  int refused = 0;
  for (int i = 0; i < 4000; ++i) {
    const WindowAxis window = window_of(from(1, 9), from(1, 7), from(1, 40), from(1, 40), from(0, 90), from(0, 90));
    if (window.outputs == 0) continue;
    const PoolAxis axis(window, false, false);
    std::int64_t empty = 0;
    while (empty < window.outputs && axis.of(empty).count != 0) ++empty;
    Graph g;
    const Value x = g.input("x", f32, {1, 1, window.size, 1});
    const std::string message = message_of([&] {
      avg_pool2d(x, {.kernel = {window.kernel, 1},
                     .stride = {window.stride, 1},
                     .padding = {window.before, window.after, 0, 0},
                     .dilation = {window.dilation, 1}});
    });
    const std::string expected =
        empty == window.outputs ? "no error" : fmt::format("window {} along the height holds padding only", empty);
    ASSERT_TRUE(has(message, expected)) << message << "\n" << expected;
    refused += empty < window.outputs ? 1 : 0;
  }
  EXPECT_GT(refused, 1000);
}

}  // namespace
}  // namespace paoding
