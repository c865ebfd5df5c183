// SPDX-License-Identifier: Apache-2.0
// Teams of threads that wait for each other.
#include "cpu/team.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>

#include "cpu/parallel.h"

namespace paoding {
namespace {

// Steps in each of which every thread adds up all threads' results of the last one.
struct Relay {
  static constexpr int kSteps = 3000, kMost = 64;
  std::int64_t written[2][kMost] = {};
  std::atomic<int> team{0}, wrong{0};
  TeamBarrier barrier;
};

void run_relay(int thread, int team, void* state) noexcept {
  Relay& relay = *static_cast<Relay*>(state);
  relay.team = team;
  for (int step = 0; step < Relay::kSteps; ++step) {
    relay.written[step % 2][thread] = step;
    relay.barrier.wait(team);
    for (int other = 0; other < team; ++other) relay.wrong += relay.written[step % 2][other] != step;
  }
}

TEST(Team, SeesInEveryStepWhatAllHaveWritten) {
  for (const int threads : {1, 2, Relay::kMost}) {
    Relay relay;
    run_team(threads, run_relay, &relay);
    EXPECT_EQ(relay.wrong, 0) << threads;
    EXPECT_EQ(relay.team, std::min(threads, max_threads())) << threads;
  }
}

TEST(Team, IsTheCallerAloneInsideARegion) {
  if (max_threads() == 1) GTEST_SKIP() << "NOT CHECKED: needs two threads";
  std::atomic<int> largest{0};
  share_out(2, 2, [&](std::int64_t begin, std::int64_t end, int) {
    if (begin == end) return;
    Relay relay;
    run_team(2, run_relay, &relay);
    largest = std::max<int>(largest, relay.team);
  });
  EXPECT_EQ(largest, 1);
}

}  // namespace
}  // namespace paoding
