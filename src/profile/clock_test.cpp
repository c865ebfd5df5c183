// SPDX-License-Identifier: Apache-2.0
#include "profile/clock.h"

#include <gtest/gtest.h>
#include <time.h>

#include <chrono>
#include <cstdlib>
#include <thread>

#include "profile/recorder_state.h"

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
  EXPECT_LT(std::abs(ahead_of(CLOCK_MONOTONIC_RAW) - before), 25'000);  // 500 ppm: a time server's say
}

// Between two settings it is a line over the counter: nothing that happens to the system's clocks bends it.
TEST(Clock, IsALineOverTheCounter) {
  if (!counter_is_steady()) GTEST_SKIP() << "NOT CHECKED: needs a counter that is steady";
  set_steady_ns();
  const ClockPair first = read_clocks();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const ClockPair middle = read_clocks();
  std::this_thread::sleep_for(std::chrono::milliseconds(20));
  const ClockPair last = read_clocks();
  const double rate = static_cast<double>(last.ns - first.ns) / static_cast<double>(last.ticks - first.ticks);
  const double there = static_cast<double>(first.ns) + rate * static_cast<double>(middle.ticks - first.ticks);
  EXPECT_NEAR(there, static_cast<double>(middle.ns), 200);
}

}  // namespace
}  // namespace paoding::profile
