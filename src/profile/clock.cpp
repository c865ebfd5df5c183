// SPDX-License-Identifier: Apache-2.0
#include "profile/clock.h"

#include <time.h>
#include <unistd.h>

#include <atomic>
#include <chrono>
#include <fstream>
#include <thread>

#include "profile/clock_rate.h"

#if defined(__x86_64__)
#include <cpuid.h>
#include <x86intrin.h>
#endif

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

// Behind all that was read before, unlike Recorder::now(): what is asked of a GPU and its answer lie between two of it.
std::uint64_t read_counter() {
#if defined(__x86_64__)
  _mm_lfence();
  return __rdtsc();
#else
  return 0;
#endif
}

// The counter and the system's clock at once: of several tries the one that was disturbed least.
CounterReading read_both() {
  CounterReading best;
  std::uint64_t least = UINT64_MAX;
  for (int i = 0; i < 32; ++i) {
    const std::uint64_t before = read_counter();
    const std::int64_t ns = now(CLOCK_MONOTONIC);
    const std::uint64_t after = read_counter();
    if (after - before >= least) continue;
    least = after - before;
    best = {before + (after - before) / 2, ns};
  }
  return best;
}

bool is_counter_steady() {
#if defined(__x86_64__)
  unsigned a = 0, b = 0, c = 0, d = 0;
  if (__get_cpuid(0x80000007, &a, &b, &c, &d) == 0) return false;
  return (d & (1u << 8)) != 0;  // "invariant TSC"
#else
  return false;
#endif
}

struct TickCounter {
  const bool is_steady = is_counter_steady();
  const CounterReading loaded = is_steady ? read_both() : CounterReading{};
};

const TickCounter& counter() {
  static const TickCounter the_counter;  // whichever file is initialized first asks for it
  return the_counter;
}

// Over which the counter's rate is found at the least: to 20 ppm, which only scales all times alike.
constexpr std::int64_t kCalibrationNs = 4'000'000;

// Of the counter since `from_ticks`; 0 before the first recording, and where it is not steady.
constinit std::atomic<double> ns_per_tick{0};
constinit std::atomic<std::uint64_t> from_ticks{0};
constinit std::atomic<std::int64_t> offset_ns{0};  // of the counter, then; else of the clock that is read

}  // namespace

bool counter_is_steady() { return counter().is_steady; }

std::int64_t steady_ns() {
  const std::int64_t offset = offset_ns.load(std::memory_order_relaxed);
  const double rate = ns_per_tick.load(std::memory_order_relaxed);
  if (rate == 0) return now(counter().is_steady ? CLOCK_MONOTONIC : CLOCK_MONOTONIC_RAW) + offset;
  return CounterLine{from_ticks.load(std::memory_order_relaxed), offset, rate}.ns(read_counter());
}

double steady_ns_per_tick() {
  const double rate = ns_per_tick.load(std::memory_order_relaxed);
  return rate == 0 ? 1 : rate;
}

SharedClocks read_shared_clocks() {
  SharedClocks best;
  std::int64_t least = INT64_MAX;
  for (int i = 0; i < 16; ++i) {
    const std::int64_t before = steady_ns(), system = now(CLOCK_MONOTONIC), wall = now(CLOCK_REALTIME),
                       after = steady_ns();
    if (after - before >= least) continue;
    least = after - before;
    best = {before + (after - before) / 2, system, wall};
  }
  return best;
}

// A machine that started once has one such clock; a time namespace has another.
std::string clock_host() {
  std::string boot;
  std::getline(std::ifstream("/proc/sys/kernel/random/boot_id"), boot);
  char time_namespace[64] = "", name[256] = "";
  const ssize_t length = ::readlink("/proc/self/ns/time", time_namespace, sizeof(time_namespace) - 1);
  if (::gethostname(name, sizeof(name) - 1) != 0) name[0] = '\0';
  return boot + std::string(time_namespace, static_cast<std::size_t>(length < 0 ? 0 : length)) + " " + name;
}

void set_steady_ns() {
  if (!counter().is_steady) return offset_ns.store(offset(CLOCK_MONOTONIC_RAW), std::memory_order_relaxed);
  const CounterReading loaded = counter().loaded;
  const std::int64_t since = now(CLOCK_MONOTONIC) - loaded.ns;
  if (since < kCalibrationNs) std::this_thread::sleep_for(std::chrono::nanoseconds(kCalibrationNs - since));
  const CounterLine line = CounterLine::through(loaded, read_both());
  from_ticks.store(line.from_ticks, std::memory_order_relaxed);
  offset_ns.store(line.from_ns, std::memory_order_relaxed);
  ns_per_tick.store(line.ns_per_tick, std::memory_order_relaxed);
}

}  // namespace paoding::profile
