// SPDX-License-Identifier: Apache-2.0
// CTA groups that are clusters: a CTA's results go straight into the shared memory of the others, where an mbarrier
// counts the bytes. All of a cluster run, so a step's data come whatever happens.

#ifdef PD_EMULATE
using emulation::copy_to_peer;
using emulation::send_piece;
using Peer = unsigned;
PD_DEVICE Peer peer_of(const void*, unsigned rank) { return rank; }
PD_DEVICE Place place_at(Place here, Peer peer) { return emulation::in_cta(here, emulation::cta_of_rank(peer)); }
template <int kWords>
PD_DEVICE void send_words(Place at, const unsigned (&words)[kWords], Place mbarrier, bool is_there) {
  for (int i = 0; i < kWords && is_there; ++i) {
    emulation::send_to((unsigned*)at + i, words[i], (unsigned long long*)mbarrier);
  }
}
#else
// Puts 16 bytes where `at` is in CTA `rank` of the cluster, and counts them in the mbarrier there.
PD_DEVICE void send_piece(uint4* at, uint4 value, unsigned long long* mbarrier, unsigned rank) {
  asm volatile(
      "st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
          address_in(shared_address(at), rank)),
      "r"(value.x), "r"(value.y), "r"(value.z), "r"(value.w), "r"(address_in(shared_address(mbarrier), rank))
      : "memory");
}
// How far from an address here the same one of CTA `rank` is, for one that is sent to again and again.
using Peer = unsigned;
PD_DEVICE Peer peer_of(const void* at, unsigned rank) { return address_in(shared_address(at), rank) - shared_address(at); }
PD_DEVICE Place place_at(Place here, Peer peer) { return peer + here; }
// send_piece() of 1, 2 or 4 words to where they and the mbarrier lie at the peer, if they are there.
PD_DEVICE void send_words(Place at, const unsigned (&words)[1], Place mbarrier, bool is_there) {
  if (!is_there) return;
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(at), "r"(words[0]),
               "r"(mbarrier)
               : "memory");
}
PD_DEVICE void send_words(Place at, const unsigned (&words)[2], Place mbarrier, bool is_there) {
  if (!is_there) return;
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v2.b32 [%0], {%1, %2}, [%3];" ::"r"(at),
               "r"(words[0]), "r"(words[1]), "r"(mbarrier)
               : "memory");
}
PD_DEVICE void send_words(Place at, const unsigned (&words)[4], Place mbarrier, bool is_there) {
  if (!is_there) return;
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.v4.b32 [%0], {%1, %2, %3, %4}, [%5];" ::"r"(
                   at),
               "r"(words[0]), "r"(words[1]), "r"(words[2]), "r"(words[3]), "r"(mbarrier)
               : "memory");
}
// TMA brings so many bytes from here to where `to` is in CTA `rank`.
PD_DEVICE void copy_to_peer(void* to, const void* from, unsigned bytes, unsigned long long* mbarrier, unsigned rank) {
  asm volatile(
      "cp.async.bulk.shared::cluster.shared::cta.mbarrier::complete_tx::bytes [%0], [%1], %2, [%3];" ::"r"(
          address_in(shared_address(to), rank)),
      "r"(shared_address(from)), "r"(bytes), "r"(address_in(shared_address(mbarrier), rank))
      : "memory");
}
#endif

// The same, in this CTA's own memory.
template <int kWords> PD_DEVICE void put_words(unsigned char* at, const unsigned (&words)[kWords]) {
#pragma unroll
  for (int i = 0; i < kWords; ++i) ((unsigned*)at)[i] = words[i];
}

PD_DEVICE int rank_in_group(unsigned) { return kGroupCtas > 1 ? cluster_rank() : 0; }

PD_DEVICE void wait_on_mbarrier(unsigned long long* mbarrier, int round) {
  while (!mbarrier_try_wait(mbarrier, round & 1)) {}
}

// copy(rank) for every other CTA of the CTA group. One thread of a warp after the other would take the time of all, so
// the warps that finish share them.
template <class Copy> PD_DEVICE void copy_to_others(const Copy& copy, int rank) {
  constexpr int kShares = kFinishers / 32;
  const int lane = threadIdx.x % 32, to = threadIdx.x / 32 + lane * kShares;
  if (to < kGroupCtas - 1) copy(to + (to >= rank));
}

// After it mbarriers and places are there for all; or nobody sends any more.
PD_DEVICE void synchronize_cta_group() {
  if constexpr (kGroupCtas > 1) cluster_barrier();
  else __syncthreads();
}
