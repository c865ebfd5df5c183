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

std::int64_t offset(clockid_t clock) {
  std::int64_t best = 0, least = INT64_MAX;
  for (int i = 0; i < 8; ++i) {
    const std::int64_t before = now(clock), steady = now(CLOCK_MONOTONIC), after = now(clock);
    if (after - before >= least) continue;
    least = after - before;
    best = steady - (before + (after - before) / 2);
  }
  return best;
}

// Some systems have the hardware's clock for show: in steps of microseconds, or by a call of the system each time.
bool is_fine(clockid_t clock) {
  constexpr int kReadings = 64, kMostNs = 250;  // a reading
  for (int attempt = 0; attempt < 3; ++attempt) {
    const std::int64_t start = now(CLOCK_MONOTONIC), first = now(clock);
    std::int64_t last = first, steps = 0;
    for (int i = 0; i < kReadings; ++i) {
      const std::int64_t next = now(clock);
      steps += next != last;
      last = next;
    }
    if (now(CLOCK_MONOTONIC) - start <= kReadings * kMostNs && steps * kMostNs >= last - first && steps > 0)
      return true;
  }
  return false;
}

clockid_t chosen() {
  static const clockid_t clock = is_fine(CLOCK_MONOTONIC_RAW) ? CLOCK_MONOTONIC_RAW : CLOCK_MONOTONIC;
  return clock;
}

constinit std::atomic<std::int64_t> offset_ns{0};  // before the first recording: the clock's own

}  // namespace

std::int64_t steady_ns() { return now(chosen()) + offset_ns.load(std::memory_order_relaxed); }
void set_steady_ns() { offset_ns.store(offset(chosen()), std::memory_order_relaxed); }

}  // namespace paoding::profile
