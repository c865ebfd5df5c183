// SPDX-License-Identifier: Apache-2.0
// The time of everything that is recorded: one clock for hosts and GPUs, which no time server sets or slews.
#pragma once

#include <cstdint>
#include <string>

namespace paoding::profile {

/// A reading of the counter and of a clock at once.
struct CounterReading {
  std::uint64_t ticks = 0;
  std::int64_t ns = 0;
};

/// A clock that is a line over the CPU's counter: through two readings, and from the second on by nothing but the
/// counter.
struct CounterLine {
  std::uint64_t from_ticks = 0;
  std::int64_t from_ns = 0;
  double ns_per_tick = 0;

  static CounterLine through(const CounterReading& first, const CounterReading& second) {
    return {second.ticks, second.ns,
            static_cast<double>(second.ns - first.ns) / static_cast<double>(second.ticks - first.ticks)};
  }
  std::int64_t ns(std::uint64_t ticks) const {
    return from_ns +
           static_cast<std::int64_t>(static_cast<double>(static_cast<std::int64_t>(ticks - from_ticks)) * ns_per_tick);
  }
};

/// steady_ns() beside the clocks that processes share, at one moment: those of one machine the system's steady clock,
/// others the wall clock.
struct SharedClocks {
  std::int64_t ns = 0;
  std::int64_t system_ns = 0;  // CLOCK_MONOTONIC
  std::int64_t wall_ns = 0;    // CLOCK_REALTIME
};
/// Of several tries the one that was disturbed least.
SharedClocks read_shared_clocks();
/// Whose steady clock this is: the same text in all processes that share it, then a blank and the host's name.
std::string clock_host();

/// Whether the CPU's counter never stops or changes its rate.
bool counter_is_steady();
/// Nanoseconds, of steady_clock when a recording last began and from there on as fast as the CPU's counter runs, where
/// it is steady; else as the hardware's own clock does (CLOCK_MONOTONIC_RAW). steady_clock itself is slewed where a
/// time server has found it wrong, by up to 500 us a second and more: a line through two readings of it and of a clock
/// that is not slewed, a second apart, would be bent by 100.
std::int64_t steady_ns();
/// Sets it to steady_clock: when nothing is being recorded. May take 4 ms right after the program has begun.
void set_steady_ns();

}  // namespace paoding::profile
