// SPDX-License-Identifier: Apache-2.0
// The time of everything that is recorded: one clock for hosts and GPUs, which no time server sets or slews.
#pragma once

#include <cstdint>

namespace paoding::profile {

/// Nanoseconds, of steady_clock when a recording last began and from there on as fast as the hardware's own clock
/// runs (CLOCK_MONOTONIC_RAW), where the system tells that one finely and without a call; else steady_clock's, which is
/// slewed where a time server has found it wrong, by up to 500 us a second and more: a line through two readings of it
/// and of a clock that is not slewed, a second apart, would be bent by 100.
std::int64_t steady_ns();
/// Sets it to steady_clock: when nothing is being recorded.
void set_steady_ns();

}  // namespace paoding::profile
