// SPDX-License-Identifier: Apache-2.0
#include "profile/clock.h"

#include <time.h>

#include <atomic>

namespace paoding::profile {

namespace {

std::int64_t now(clockid_t clock) {
  timespec at{};
  clock_gettime(clock, &at);
  return std::int64_t{at.tv_sec} * 1'000'000'000 + at.tv_nsec;
}

std::int64_t offset() {
  std::int64_t best = 0, least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const std::int64_t before = now(CLOCK_MONOTONIC_RAW), steady = now(CLOCK_MONOTONIC),
                       after = now(CLOCK_MONOTONIC_RAW);
    if (after - before >= least) continue;
    least = after - before;
    best = steady - (before + (after - before) / 2);
  }
  return best;
}

constinit std::atomic<std::int64_t> offset_ns{0};  // before the first recording: the hardware's own

}  // namespace

std::int64_t steady_ns() { return now(CLOCK_MONOTONIC_RAW) + offset_ns.load(std::memory_order_relaxed); }
void set_steady_ns() { offset_ns.store(offset(), std::memory_order_relaxed); }

}  // namespace paoding::profile
