// SPDX-License-Identifier: Apache-2.0
// What a span costs the thread that writes it: measured by doing the same into memory that nobody reads.
#include <algorithm>
#include <limits>

#include "profile/recorder.h"

namespace paoding::profile {

std::uint64_t Recorder::span_cost_ns() {
  constexpr int kRounds = 8, kSpans = 64;
  static const std::uint64_t once = [] {
    OpenSpans open;
    SpanRecord records[kSpans];
    std::atomic<std::uint32_t> published{0};
    Ticks least = std::numeric_limits<Ticks>::max();
    const auto began = std::chrono::steady_clock::now();
    const Ticks begin = now();
    for (int round = 0; round < kRounds; ++round) {
      const Ticks before = now();
      for (std::uint32_t i = 0; i < kSpans; ++i) {
        const Ticks start = now();
        const std::uint32_t around = open.push(i, 0, start);
        records[i] = {i, 0, start, now()};
        published.store(i + 1, std::memory_order_release);
        open.pop(around);
      }
      least = std::min(least, now() - before);
    }
    const double ns = std::chrono::duration<double, std::nano>(std::chrono::steady_clock::now() - began).count();
    const double ns_per_tick = ns / static_cast<double>(std::max<Ticks>(now() - begin, 1));
    return static_cast<std::uint64_t>(std::max(1.0, static_cast<double>(least) * ns_per_tick / kSpans));
  }();
  return once;
}

}  // namespace paoding::profile
