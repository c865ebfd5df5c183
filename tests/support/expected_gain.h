// SPDX-License-Identifier: Apache-2.0
// A finding of a trace made by hand, beside the gain that follows from its times.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <string_view>

#include "findings/finding.h"

namespace paoding::findings {

/// Replayed, in microseconds: of the careful change and of all of it.
struct Expected {
  double low_us = 0, high_us = 0;
};

inline void expect_gain(const profile::Trace& trace, Kind kind, Expected gain, std::string_view change = "") {
  const Findings all = find(trace);
  EXPECT_EQ(all.abstained, "");
  const auto found = std::ranges::find(all.found, kind, &Finding::kind);
  ASSERT_NE(found, all.found.end()) << to_string(kind);
  constexpr double kNear = 5;  // us: a launch that goes takes the gap behind its kernel along
  EXPECT_NEAR(static_cast<double>(found->replayed_low_ns) / 1e3, gain.low_us, kNear) << found->text;
  EXPECT_NEAR(static_cast<double>(found->replayed_high_ns) / 1e3, gain.high_us, kNear) << found->text;
  EXPECT_NE(found->change.find(change), std::string::npos) << found->change;
  EXPECT_FALSE(found->evidence.spans.empty());
}

inline void expect_nothing(const profile::Trace& trace, Kind kind) {
  const Findings all = find(trace);
  EXPECT_EQ(all.abstained, "");
  EXPECT_EQ(std::ranges::count(all.found, kind, &Finding::kind), 0) << to_string(kind);
}

inline std::string why_silent(const profile::Trace& trace, Kind kind) {
  const Findings all = find(trace);
  const auto found = std::ranges::find(all.silent, kind, &Silence::kind);
  return found == all.silent.end() ? "" : found->why;
}

}  // namespace paoding::findings
