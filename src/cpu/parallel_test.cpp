// SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"

#include <gtest/gtest.h>

#include <array>
#include <atomic>

namespace paoding {
namespace {

using Calls = std::array<std::atomic<int>, 8>;

TEST(Parallel, CallsEveryThreadOnce) {
  for (const int threads : {1, 2, 8}) {
    Calls calls{};
    parallel(
        threads, [](int thread, void* state) { ++(*static_cast<Calls*>(state))[thread]; }, &calls);
    for (int i = 0; i < 8; ++i) EXPECT_EQ(calls[i], i < threads) << "call " << i << " of " << threads;
  }
}

TEST(Parallel, StillMakesEveryCallInsideAnotherRegion) {
  Calls calls{};
  parallel(
      2,
      [](int, void* state) {
        parallel(
            4, [](int thread, void* inner) { ++(*static_cast<Calls*>(inner))[thread]; }, state);
      },
      &calls);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(calls[i], 2);
}

TEST(Parallel, OffersAtLeastOneThread) { EXPECT_GE(max_threads(), 1); }

}  // namespace
}  // namespace paoding
