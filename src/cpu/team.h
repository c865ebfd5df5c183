// SPDX-License-Identifier: Apache-2.0
// Threads that wait for each other within one region: work of many short steps, each of which needs all of the last
// one, would spend its time on starting regions.
#pragma once

#include <atomic>
#include <cstdint>

namespace paoding {

/// All threads of a team synchronize here. They spin for some microseconds, then sleep.
class TeamBarrier {
 public:
  /// Returns when `team` threads have called it. All of them then see each other's earlier writes.
  void wait(int team);

 private:
  alignas(64) std::atomic<int> arrived_{0};
  alignas(64) std::atomic<std::uint32_t> turn_{0};
  std::atomic<int> sleepers_{0};
};

/// Calls body(thread, team, state) at the same time on each thread of one team, of at most `threads`: one, and so a
/// team of 1, inside a parallel region. `body` must not throw. Errors: start_threads()'s.
void run_team(int threads, void (*body)(int thread, int team, void* state) noexcept, void* state);

}  // namespace paoding
