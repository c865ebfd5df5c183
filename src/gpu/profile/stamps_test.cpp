// SPDX-License-Identifier: Apache-2.0
// The chip's time as the host's: lines through readings of both clocks, held against clocks whose drift is known.
#include "gpu/profile/stamps.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <random>

#include "profile/clock.h"

namespace paoding::gpu {
namespace {

constexpr std::int64_t kSecond = 1'000'000'000;
constexpr std::int64_t kGpuEpoch = 1'700'000'000 * kSecond;  // globaltimer counts from 1970

// A chip whose clock runs 2.5 ppm fast, and faster yet as it gets warm.
std::int64_t gpu_of(std::int64_t host_ns) {
  const double seconds = static_cast<double>(host_ns) / kSecond;
  return kGpuEpoch + host_ns + static_cast<std::int64_t>(2500 * seconds + 100 * std::sin(seconds / 50));
}

TEST(ClockLine, KeepsTwoMicrosecondsOverFiveMinutes) {
  std::mt19937 random(3);
  ClockLine line;
  for (std::int64_t at = 0; at <= 300 * kSecond; at += kSecond) {
    // A round trip takes 3 us, of which the answer's half is not known.
    const auto off = static_cast<std::int64_t>(random() % 3000) - 1500;
    line.add({at + off, gpu_of(at), 3000});
  }
  for (std::int64_t at = 0; at <= 300 * kSecond; at += kSecond / 7) {
    ASSERT_LE(std::abs(line.to_host(gpu_of(at)) - at), 2000) << at;
  }
  EXPECT_TRUE(line.covers(gpu_of(299 * kSecond)));
  EXPECT_FALSE(line.covers(gpu_of(301 * kSecond)));
  EXPECT_LE(line.residual_ns(), 3000);
}

// The system's clock is set by 10 ms in the middle and slewed by 500 ppm for 20 s, as a time server does it. Both the
// host's time and the line from the chip's go over the counter, and stay together; over the system's clock they do not.
TEST(ClockLine, KeepsTwoMicrosecondsWhateverATimeServerDoes) {
  constexpr double kTicksPerNs = 2.1;
  constexpr std::int64_t kEnd = 300 * kSecond, kSet = 150 * kSecond, kSlew = 200 * kSecond;
  const auto ticks_of = [](std::int64_t at) {
    return std::uint64_t{1} << 40 | static_cast<std::uint64_t>(static_cast<double>(at) * kTicksPerNs);
  };
  const auto system_of = [](std::int64_t at) {
    const std::int64_t slewed = std::clamp<std::int64_t>(at - kSlew, 0, 20 * kSecond);
    return at + (at >= kSet ? 10'000'000 : 0) + slewed / 2000;
  };
  // Reads as set_steady_ns() does, 4 ms apart.
  const auto read = [&](std::int64_t at) { return profile::CounterReading{ticks_of(at), system_of(at)}; };
  const auto host = profile::CounterLine::through(read(0), read(4'000'000));
  std::mt19937 random(5);
  ClockLine by_counter, by_system;
  for (std::int64_t at = 4'000'000; at <= kEnd; at += kSecond) {
    const auto off = static_cast<std::int64_t>(random() % 2500) - 1250;
    by_counter.add({host.ns(ticks_of(at + off)), gpu_of(at), 2500});
    by_system.add({system_of(at + off), gpu_of(at), 2500});
  }
  std::int64_t most_by_system = 0;
  for (std::int64_t at = 4'000'000; at <= kEnd - kSecond; at += kSecond / 7) {
    const std::int64_t steady = host.ns(ticks_of(at));
    ASSERT_LE(std::abs(by_counter.to_host(gpu_of(at)) - steady), 2000) << at;
    ASSERT_LE(std::abs(steady - at), 1000) << at;  // the counter's line is within 1 us of the true time
    most_by_system = std::max(most_by_system, std::abs(by_system.to_host(gpu_of(at)) - steady));
  }
  EXPECT_LE(by_counter.residual_ns(), 3000);
  EXPECT_GT(most_by_system, 9'000'000);
}

TEST(ClockLine, ShowsAReadingThatIsOffTheLine) {
  ClockLine line;
  for (std::int64_t at = 0; at < 5; ++at) line.add({at * kSecond, gpu_of(at * kSecond), 3000});
  EXPECT_LT(line.residual_ns(), 100);
  line.add({5 * kSecond + 40'000, gpu_of(5 * kSecond), 3000});
  line.add({6 * kSecond, gpu_of(6 * kSecond), 3000});
  EXPECT_GT(line.residual_ns(), 30'000);
}

// A late reading comes from a host that was interrupted in its round trip, right after a good reading.
TEST(ClockLine, DoesNotBendForAReadingThatNoClockCanHaveGiven) {
  constexpr std::int64_t kApart = 1'000'000, kOff = 400'000;
  for (const bool is_first : {true, false}) {
    ClockLine line;
    line.add({is_first ? kOff : 0, gpu_of(0), is_first ? 2 * kOff : 3000});
    line.add({kApart + (is_first ? 0 : kOff), gpu_of(kApart), is_first ? 3000 : 2 * kOff});
    EXPECT_LE(std::abs(line.to_host(gpu_of(kSecond)) - kSecond), 3000) << is_first;
  }
}

// A host that other programs use: of some readings nothing is known but that the answer came in so many us, and for
// seconds there is no better one. A time that is asked once the line covers it stays within 2 us of the truth, for five
// minutes.
TEST(ClockLine, KeepsTwoMicrosecondsOnABusyHost) {
  constexpr std::int64_t kEnd = 300 * kSecond, kRetry = kSecond / 10, kStep = kSecond / 50;
  for (unsigned seed = 0; seed < 40; ++seed) {
    std::mt19937 random(seed);
    const auto below = [&](std::int64_t n) { return static_cast<std::int64_t>(random() % static_cast<unsigned>(n)); };
    ClockLine line;
    std::int64_t next = 0, asked = 0, most_ahead = 0, first_good = -1;
    const std::int64_t busy_from = (20 + below(200)) * kSecond, busy_to = busy_from + 6 * kSecond;
    for (std::int64_t at = 0; at <= kEnd; at += kStep) {
      if (at >= next) {
        const bool is_busy = below(3) == 0 || (at >= busy_from && at < busy_to);
        const std::int64_t width = 2500 + below(500) + (is_busy ? 2000 + below(4'000'000) : 0);
        const std::int64_t off = below(width) - width / 2;
        const bool is_good = line.add({at + off, gpu_of(at), width});
        next = at + (is_good && line.has_begun() ? kSecond : kRetry);
        if (first_good < 0 && !is_busy) first_good = at;
      }
      for (; asked <= at && line.covers(gpu_of(asked)); asked += kStep) {
        const std::int64_t most = asked < first_good ? 3000 : 2000;  // in front of it by the line that follows
        ASSERT_LE(std::abs(line.to_host(gpu_of(asked)) - asked), most) << "seed " << seed << " at " << asked;
      }
      most_ahead = std::max(most_ahead, at - asked);
    }
    EXPECT_GT(asked, kEnd - 5 * kSecond);
    EXPECT_LT(most_ahead, 5 * kSecond);  // stamps that wait to be converted take memory
  }
}

// A first reading that was disturbed is of no weight once there is a better one, and none that came when it was quiet
// rules out all that come later.
TEST(ClockLine, ForgetsWhatIsWorseThanWhatCameNear) {
  ClockLine line;
  EXPECT_TRUE(line.add({40'000, gpu_of(0), 80'000}));
  EXPECT_TRUE(line.add({kSecond / 10, gpu_of(kSecond / 10), 3000}));
  EXPECT_EQ(line.readings().size(), 1u);
  EXPECT_TRUE(line.add({kSecond, gpu_of(kSecond), 3000}));
  EXPECT_LE(std::abs(line.to_host(gpu_of(0))), 100);
  EXPECT_FALSE(line.add({2 * kSecond + 5000, gpu_of(2 * kSecond), 12'000}));
  EXPECT_LE(std::abs(line.to_host(gpu_of(2 * kSecond)) - 2 * kSecond), 100);
  EXPECT_TRUE(line.add({40 * kSecond, gpu_of(40 * kSecond), 12'000}));
}

TEST(ClockLine, OfOneReadingIsAnOffset) {
  ClockLine line;
  line.add({7, gpu_of(0) + 7, 3000});
  EXPECT_EQ(line.to_host(gpu_of(0) + 10), 10);
  EXPECT_EQ(line.residual_ns(), 0);
}

}  // namespace
}  // namespace paoding::gpu
