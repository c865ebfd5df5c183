// SPDX-License-Identifier: Apache-2.0
// CTAs that wait for each other: all run at once, their threads as fibers that change places, by a seeded scheduler
// (schedules.h), wherever one could see another's step (late_stores.h).
// Not emulated: loads that see old values where an acquire is missing, and plain stores that are late; memory_order.h
// finds the mistakes that would need them.
// Dynamic shared memory is each CTA's own; a `__shared__` variable would be one for all, and is not for such kernels.
#pragma once

#include "schedules.h"

namespace emulation {

inline void mbarrier_init(unsigned long long* mbarrier, unsigned arrivals) {
  *mbarrier = (unsigned long long)arrivals << 48 | (unsigned long long)arrivals << 32;
}
inline void mbarrier_arrive_expect_tx(unsigned long long* mbarrier, unsigned bytes) {
  maybe_yield();
  arrive(mbarrier, 1, bytes);
}
inline bool mbarrier_try_wait(unsigned long long* mbarrier, unsigned parity) {
  maybe_yield();
  if (*mbarrier >> 63 == parity) park(1, [&](std::size_t) { return mbarrier; });
  return *mbarrier >> 63 != parity;
}

inline unsigned cluster_rank() { return machine.cta->index.x % machine.cluster; }
inline Cta& cta_of_rank(unsigned rank) {
  const unsigned first = machine.cta->index.x / machine.cluster * machine.cluster;
  return *machine.ctas[first + rank];
}
template <class T>
T* in_cta(T* at, Cta& cta) {
  return (T*)((char*)cta.shared.data() + ((char*)at - (char*)machine.cta->shared.data()));
}
// To where a word and the mbarrier that counts it lie in the shared memory of one of the cluster's CTAs.
inline void send_to(unsigned* there, unsigned value, unsigned long long* mbarrier) {
  const auto has = [](const Cta& cta, const void* at) {
    return at >= cta.shared.data() && at < cta.shared.data() + cta.shared.size();
  };
  for (unsigned rank = 0; rank < machine.cluster; ++rank) {
    Cta& to = cta_of_rank(rank);
    if (!has(to, there) || !has(to, mbarrier)) continue;
    together.words.push_back({there, value, mbarrier, &to});
    ++machine.progress;
    return maybe_yield();
  }
  std::abort();
}
inline void send(unsigned* at, unsigned value, unsigned long long* mbarrier, unsigned rank) {
  Cta& to = cta_of_rank(rank);
  send_to(in_cta(at, to), value, in_cta(mbarrier, to));
}
inline void send_piece(uint4* at, uint4 value, unsigned long long* mbarrier, unsigned rank) {
  const unsigned words[] = {value.x, value.y, value.z, value.w};
  for (int i = 0; i < 4; ++i) send(reinterpret_cast<unsigned*>(at) + i, words[i], mbarrier, rank);
}
// The bytes are read when they arrive, so a source that is overwritten too early shows.
inline void copy_to_peer(void* to, const void* from, unsigned bytes, unsigned long long* mbarrier, unsigned rank) {
  if (bytes % 16 != 0 || reinterpret_cast<std::uintptr_t>(from) % 16 != 0) std::abort();  // as a GPU would fail
  Cta& cta = cta_of_rank(rank);
  void* const there = in_cta(static_cast<char*>(to), cta);
  unsigned long long* const tile = in_cta(mbarrier, cta);
  const auto bring = [=, &cta, own = machine.cta] {
    together.is_somebody_gone |= cta.live == 0 || own->live == 0;
    std::memcpy(there, from, bytes);
    arrive(tile, 0, 0u - bytes);
  };
  together.copies.push_back({bring, machine.cta});
  ++machine.progress;
  maybe_yield();
}
inline void cluster_barrier() {
  const std::uint64_t round = machine.cta->cluster_round;
  wait_block();
  release();
  std::uint64_t* const of_cluster = &cta_of_rank(0).cluster_arrived;
  memory_order.releases(of_cluster);
  if (machine.current == 0) {
    ++machine.cta->cluster_arrived;
    changed(of_cluster);
  }
  const auto all_came = [&] {
    for (unsigned rank = 0; rank < machine.cluster; ++rank) {
      if (cta_of_rank(rank).cluster_arrived <= round) return false;
    }
    return true;
  };
  while (!all_came()) park(1, [&](std::size_t) { return of_cluster; });
  memory_order.acquires(of_cluster);
  wait_block();
  if (machine.current == 0) ++machine.cta->cluster_round;
  wait_block();
}

}  // namespace emulation
