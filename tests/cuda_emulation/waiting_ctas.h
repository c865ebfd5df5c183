// SPDX-License-Identifier: Apache-2.0
// CTAs that wait for each other: all run at once, their threads as fibers that change places, by a seeded scheduler,
// wherever one could see what another does. What CUDA allows to be late is late: a relaxed store is seen by others some
// time later, and stores to different places in any order, until its thread releases; a word that is sent to another
// CTA of the cluster arrives some time later. So a store that is not ordered shows as a wrong result for some seed.
// Not emulated: loads that see old values where an acquire is missing.
// Dynamic shared memory is each CTA's own; a `__shared__` variable would be one for all, and is not for such kernels.
#pragma once

#include <deque>
#include <functional>
#include <random>

#include "cuda_emulation.h"

namespace emulation {

struct Late {
  unsigned* at;
  unsigned value;
  unsigned long long* mailbox;  // of a word that is sent; nullptr of a store
  const void* thread;           // whose store it is
};

struct Together {
  std::mt19937 random;
  std::deque<Late> late;
  std::deque<std::function<void()>> coming;  // what else happens some time later, in any order
};
inline Together together;

inline const void* this_thread() { return &machine.cta->fibers[machine.current]; }

// ---- mailboxes: bit 63 the phase, 48..62 arrivals of a phase, 32..47 those still missing, 0..31 bytes still missing
// ----

inline void settle(unsigned long long* mailbox, unsigned long long phase, unsigned arrivals, unsigned missing,
                   unsigned bytes) {
  if (missing == 0 && bytes == 0) phase ^= 1, missing = arrivals;
  *mailbox = phase << 63 | (unsigned long long)arrivals << 48 | (unsigned long long)missing << 32 | bytes;
  ++machine.progress;
}
inline void arrive(unsigned long long* mailbox, unsigned count, unsigned expected) {
  const unsigned long long m = *mailbox;
  settle(mailbox, m >> 63, m >> 48 & 0x7fff, (m >> 32 & 0xffff) - count, (unsigned)m + expected);
}
inline void mailbox_init(unsigned long long* mailbox, unsigned arrivals) {
  *mailbox = (unsigned long long)arrivals << 48 | (unsigned long long)arrivals << 32;
}
inline void mailbox_expect(unsigned long long* mailbox, unsigned bytes) {
  yield();
  arrive(mailbox, 1, bytes);
}
inline bool mailbox_try(unsigned long long* mailbox, unsigned parity) {
  yield();
  return *mailbox >> 63 != parity;
}

// ---- stores that others see late ----

inline void deliver(std::size_t i) {
  const Late late = together.late[i];
  together.late.erase(together.late.begin() + (std::ptrdiff_t)i);
  *late.at = late.value;
  if (late.mailbox != nullptr) arrive(late.mailbox, 0, 0u - 4u);
  ++machine.progress;
}
// Its stores; what it sends comes when it comes.
inline void deliver_stores_of(const void* thread) {
  for (std::size_t i = 0; i < together.late.size();) {
    const Late& late = together.late[i];
    late.thread == thread&& late.mailbox == nullptr ? deliver(i) : (void)++i;
  }
}
// One of what is coming, at random.
inline void let_one_come() {
  const std::size_t i = together.random() % together.coming.size();
  const std::function<void()> one = std::move(together.coming[i]);
  together.coming.erase(together.coming.begin() + (std::ptrdiff_t)i);
  one();
  ++machine.progress;
}
// The oldest of those to the same place.
inline std::size_t first_to_same_place(std::size_t i) {
  for (std::size_t k = 0; k < i; ++k) {
    if (together.late[k].at == together.late[i].at) return k;
  }
  return i;
}

inline unsigned load_relaxed(const unsigned* at) {
  yield();
  for (std::size_t i = together.late.size(); i-- > 0;) {
    if (together.late[i].at == at && together.late[i].thread == this_thread()) return together.late[i].value;
  }
  return *at;
}
inline unsigned load_acquire(const unsigned* at) { return load_relaxed(at); }
inline void store_relaxed(unsigned* at, unsigned value) {
  together.late.push_back({at, value, nullptr, this_thread()});
  ++machine.progress;
  yield();
}
inline uint4 load_relaxed(const uint4* at) {
  const unsigned* const words = reinterpret_cast<const unsigned*>(at);
  uint4 value;
  value.x = load_relaxed(words), value.y = load_relaxed(words + 1);
  value.z = load_relaxed(words + 2), value.w = load_relaxed(words + 3);
  return value;
}
inline void store_relaxed(uint4* at, uint4 value) {
  const unsigned words[] = {value.x, value.y, value.z, value.w};
  for (int i = 0; i < 4; ++i) store_relaxed(reinterpret_cast<unsigned*>(at) + i, words[i]);
}
inline void fence_stores() { deliver_stores_of(this_thread()); }
// A release covers what the CTA's other threads stored before the last barrier; those stores are this CTA's.
inline void release() {
  for (Fiber& fiber : machine.cta->fibers) deliver_stores_of(&fiber);
}
inline void store_release(unsigned* at, unsigned value) {
  yield();
  release();
  *at = value;
  ++machine.progress;
}
inline unsigned add_relaxed(unsigned* at, unsigned value) {
  yield();
  ++machine.progress;
  return std::exchange(*at, *at + value);
}
inline unsigned add_release(unsigned* at, unsigned value) {
  yield();
  release();
  ++machine.progress;
  return std::exchange(*at, *at + value);
}

// ---- clusters ----

inline unsigned cluster_rank() { return machine.cta->index.x % machine.cluster; }
inline Cta& cta_of_rank(unsigned rank) {
  const unsigned first = machine.cta->index.x / machine.cluster * machine.cluster;
  return *machine.ctas[first + rank];
}
template <class T>
T* in_cta(T* at, Cta& cta) {
  return (T*)((char*)cta.shared.data() + ((char*)at - (char*)machine.cta->shared.data()));
}
inline void send(unsigned* at, unsigned value, unsigned long long* mailbox, unsigned rank) {
  Cta& to = cta_of_rank(rank);
  together.late.push_back({in_cta(at, to), value, in_cta(mailbox, to), this_thread()});
  ++machine.progress;
  yield();
}
inline void send_piece(uint4* at, uint4 value, unsigned long long* mailbox, unsigned rank) {
  const unsigned words[] = {value.x, value.y, value.z, value.w};
  for (int i = 0; i < 4; ++i) send(reinterpret_cast<unsigned*>(at) + i, words[i], mailbox, rank);
}
// What lies there when it is brought is brought, so what is overwritten too early shows.
inline void copy_to_peer(void* to, const void* from, unsigned bytes, unsigned long long* mailbox, unsigned rank) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0) std::abort();  // as a GPU would fail
  Cta& cta = cta_of_rank(rank);
  void* const there = in_cta(static_cast<char*>(to), cta);
  unsigned long long* const box = in_cta(mailbox, cta);
  together.coming.push_back([=, &cta] {
    std::memcpy(there, from, bytes);
    machine.cta = &cta;
    arrive(box, 0, 0u - bytes);
  });
  ++machine.progress;
  yield();
}
inline void cluster_barrier() {
  const std::uint64_t round = machine.cta->cluster_round;
  wait_block();
  release();
  if (machine.current == 0) ++machine.cta->cluster_arrived;
  const auto all_came = [&] {
    for (unsigned rank = 0; rank < machine.cluster; ++rank) {
      if (cta_of_rank(rank).cluster_arrived <= round) return false;
    }
    return true;
  };
  while (!all_came()) yield();
  wait_block();
  if (machine.current == 0) ++machine.cta->cluster_round;
  wait_block();
}

// ---- the scheduler ----

/// One way to choose who runs next: anyone, whoever ran last for as long as may be, or anyone but the CTA that is
/// starved for a while.
struct Choice {
  unsigned way, starved;
  std::size_t cta = 0;
  int thread = 0;

  void next(unsigned round) {
    Machine& m = machine;
    auto& random = together.random;
    const std::size_t count = m.ctas.size();
    if (way == 1 && random() % 64 != 0 && !m.ctas[cta]->fibers[thread].is_done) {
      thread = (thread + (random() % 4 == 0)) % m.threads;
      return;
    }
    cta = random() % count;
    if (way == 2 && cta == starved % count && count > 1 && round % 4096 < 3072) cta = (cta + 1) % count;
    thread = static_cast<int>(random() % static_cast<unsigned>(m.threads));
  }
};

/// Runs a kernel whose CTAs wait for each other; `seed` decides who runs when. Returns 0, or 1 for a deadlock.
template <class... P>
int launch_together(void (*kernel)(P...), void** arguments, unsigned grid, unsigned block, unsigned cluster,
                    std::size_t shared_bytes, unsigned seed) {
  Machine& m = machine;
  Bound<P...> bound{kernel, arguments};
  bound.prepare(grid, block);
  m.cluster = cluster, m.shared_bytes = shared_bytes;
  m.ctas.clear();
  for (unsigned i = 0; i < grid; ++i) start_cta(i, i);
  together.random.seed(seed);
  together.late.clear(), together.coming.clear();
  Choice choice{seed % 3, seed / 3};
  const unsigned lateness = 8u << (3 * (seed / 3 % 4));  // rounds for which a store is late, on average
  std::uint64_t live = std::uint64_t{grid} * block, last_progress = m.progress, idle = 0;
  for (unsigned round = 0; live > 0; ++round) {
    choice.next(round);
    Cta& cta = *m.ctas[choice.cta];
    if (!cta.fibers[choice.thread].is_done) {
      resume(cta, choice.thread);
      if (cta.fibers[choice.thread].is_done) --live;
    }
    if (!together.late.empty() && together.random() % lateness == 0) {
      deliver(first_to_same_place(together.random() % together.late.size()));
    }
    if (!together.coming.empty() && together.random() % lateness == 0) let_one_come();
    idle = m.progress == last_progress ? idle + 1 : 0;
    last_progress = m.progress;
    if (idle > std::uint64_t{1000} * grid * block + 100000) return 1;
  }
  while (!together.late.empty()) deliver(0);
  m.ctas.clear();
  return 0;
}

}  // namespace emulation
