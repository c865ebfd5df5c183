// SPDX-License-Identifier: Apache-2.0
#include "cpu/team.h"

#include <linux/futex.h>
#include <sys/syscall.h>
#include <unistd.h>

#include <climits>

#include "base/pause.h"

namespace paoding {
namespace {

// std::atomic's own yields before it sleeps, which gives the core away for milliseconds where others want it.
long futex(std::atomic<std::uint32_t>* word, int operation, std::uint32_t value) {
  return syscall(SYS_futex, word, operation, value, nullptr, nullptr, 0);
}

}  // namespace

void TeamBarrier::wait(int team) {
  if (team == 1) return;
  const std::uint32_t turn = turn_.load(std::memory_order_relaxed);
  if (arrived_.fetch_add(1, std::memory_order_acq_rel) + 1 == team) {
    arrived_.store(0, std::memory_order_relaxed);
    turn_.store(turn + 1, std::memory_order_seq_cst);
    if (sleepers_.load(std::memory_order_seq_cst) > 0) futex(&turn_, FUTEX_WAKE_PRIVATE, INT_MAX);
    return;
  }
  constexpr int kSpins = 2000;  // as threads that wait for a region: more takes the core from who should come
  for (int spins = 0; spins < kSpins; ++spins) {
    if (turn_.load(std::memory_order_acquire) != turn) return;
    pause_thread();
  }
  sleepers_.fetch_add(1, std::memory_order_seq_cst);
  while (turn_.load(std::memory_order_seq_cst) == turn) futex(&turn_, FUTEX_WAIT_PRIVATE, turn);
  sleepers_.fetch_sub(1, std::memory_order_seq_cst);
}

}  // namespace paoding
