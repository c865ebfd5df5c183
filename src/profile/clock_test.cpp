// SPDX-License-Identifier: Apache-2.0
#include "profile/clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <cstdlib>
#include <thread>

namespace paoding::profile {
namespace {

std::int64_t now(clockid_t clock) {
  timespec at{};
  clock_gettime(clock, &at);
  return std::int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

// How far steady_ns() is ahead of another clock: of several tries the one that was disturbed least.
std::int64_t ahead_of(clockid_t clock) {
  std::int64_t best = 0, least = INT64_MAX;
  for (int i = 0; i < 50; ++i) {
    const std::int64_t before = steady_ns(), other = now(clock), after = steady_ns();
    if (after - before >= least) continue;
    least = after - before;
    best = before + (after - before) / 2 - other;
  }
  return best;
}

TEST(Clock, StartsAsTheSteadyOneAndRunsAsTheHardwares) {
  set_steady_ns();
  EXPECT_LT(std::abs(ahead_of(CLOCK_MONOTONIC)), 2000);
  const std::int64_t before = ahead_of(CLOCK_MONOTONIC_RAW);
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  EXPECT_LT(std::abs(ahead_of(CLOCK_MONOTONIC_RAW) - before), 500);
}

}  // namespace
}  // namespace paoding::profile
