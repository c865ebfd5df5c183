// SPDX-License-Identifier: Apache-2.0
// Primitives for CTAs that wait for each other: words in global memory that others see in order, and words sent into
// the shared memory of the other CTAs of a cluster. CTAs wait only for those that run with them, so no wait has a
// limit.

#ifdef PD_EMULATE
#ifdef PD_UNORDERED  // a mistake that a test plants
PD_DEVICE unsigned add_release(unsigned* at, unsigned value) { return emulation::add_relaxed(at, value); }
#else
using emulation::add_release;
#endif
using emulation::barrier_pass;
using emulation::barrier_wait;
using emulation::cluster_barrier;
using emulation::cluster_rank;
using emulation::fence_stores;
using emulation::load_relaxed;
using emulation::mbarrier_arrive_expect_tx;
using emulation::mbarrier_init;
using emulation::mbarrier_try_wait;
using emulation::send;
using emulation::store_relaxed;
PD_DEVICE void cluster_arrive() {}
PD_DEVICE void cluster_arrive_stored() {}
PD_DEVICE void cluster_wait() { cluster_barrier(); }
PD_DEVICE void cluster_leave() { cluster_barrier(); }
PD_DEVICE void copies_follow_stores() {}
#else
// A barrier of so many threads: some wait for all, others only let them know that they have come.
PD_DEVICE void barrier_wait(int barrier, int threads) {
  asm volatile("bar.sync %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
PD_DEVICE void barrier_pass(int barrier, int threads) {
  asm volatile("bar.arrive %0, %1;" ::"r"(barrier), "r"(threads) : "memory");
}
PD_DEVICE unsigned load_relaxed(const unsigned* at) {
  unsigned value;
  asm volatile("ld.relaxed.gpu.global.u32 %0, [%1];" : "=r"(value) : "l"(at) : "memory");
  return value;
}
PD_DEVICE void store_relaxed(unsigned* at, unsigned value) {
  asm volatile("st.relaxed.gpu.global.u32 [%0], %1;" ::"l"(at), "r"(value) : "memory");
}
// 16 bytes, each word of which comes for itself.
PD_DEVICE uint4 load_relaxed(const uint4* at) {
  uint4 value;
  asm volatile("ld.relaxed.gpu.global.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w) : "l"(at) : "memory");
  return value;
}
PD_DEVICE void store_relaxed(uint4* at, uint4 value) {
  asm volatile("st.relaxed.gpu.global.v4.u32 [%0], {%1, %2, %3, %4};" ::"l"(at), "r"(value.x), "r"(value.y),
               "r"(value.z), "r"(value.w)
               : "memory");
}
// Orders this thread's earlier stores, and those of threads it synchronizes with, before its later ones.
PD_DEVICE void fence_stores() { asm volatile("fence.acq_rel.gpu;" ::: "memory"); }
// Others that see it see all that this thread, and threads it was in a barrier with, stored before.
PD_DEVICE unsigned add_release(unsigned* at, unsigned value) {
  unsigned before;
  asm volatile("atom.add.release.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(at), "r"(value) : "memory");
  return before;
}

#if __CUDA_ARCH__ >= 900
PD_DEVICE unsigned cluster_rank() {
  unsigned rank;
  asm volatile("mov.u32 %0, %%cluster_ctarank;" : "=r"(rank));
  return rank;
}
PD_DEVICE void cluster_barrier() {
  asm volatile("barrier.cluster.arrive.release.aligned;\nbarrier.cluster.wait.acquire.aligned;" ::: "memory");
}
// The same in two parts. The first orders nothing but mbarrier_init(): a release would wait for loads that are under
// way.
PD_DEVICE void cluster_arrive() { asm volatile("barrier.cluster.arrive.relaxed.aligned;" ::: "memory"); }
// Also orders the stores of this CTA.
PD_DEVICE void cluster_arrive_stored() { asm volatile("barrier.cluster.arrive.release.aligned;" ::: "memory"); }
PD_DEVICE void cluster_wait() { asm volatile("barrier.cluster.wait.acquire.aligned;" ::: "memory"); }
// No CTA leaves before all have arrived; their stores are not waited for.
PD_DEVICE void cluster_leave() {
  asm volatile("barrier.cluster.arrive.relaxed.aligned;\nbarrier.cluster.wait.aligned;" ::: "memory");
}
PD_DEVICE unsigned shared_address(const void* at) { return (unsigned)__cvta_generic_to_shared(at); }
PD_DEVICE unsigned address_in(unsigned shared, unsigned rank) {
  unsigned address;
  asm("mapa.shared::cluster.u32 %0, %1, %2;" : "=r"(address) : "r"(shared), "r"(rank));
  return address;
}
// Makes this thread's earlier stores to shared memory visible to TMA and the tensor cores.
PD_DEVICE void copies_follow_stores() { asm volatile("fence.proxy.async.shared::cta;" ::: "memory"); }
// An mbarrier is in one phase after the other. A phase ends when `arrivals` threads have said how many
// bytes they expect and these have come.
PD_DEVICE void mbarrier_init(unsigned long long* mbarrier, unsigned arrivals) {
  asm volatile("mbarrier.init.shared::cta.b64 [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(arrivals) : "memory");
  asm volatile("fence.mbarrier_init.release.cluster;" ::: "memory");
}
PD_DEVICE void mbarrier_arrive_expect_tx(unsigned long long* mbarrier, unsigned bytes) {
  asm volatile("mbarrier.arrive.expect_tx.shared::cta.b64 _, [%0], %1;" ::"r"(shared_address(mbarrier)), "r"(bytes)
               : "memory");
}
// Whether the phase of this parity (0, 1, 0, ..) is over.
PD_DEVICE bool mbarrier_try_wait(unsigned long long* mbarrier, unsigned parity) {
  unsigned is_over;
  asm volatile(
      "{\n.reg .pred p;\nmbarrier.try_wait.parity.acquire.cluster.shared::cta.b64 p, [%1], %2;\nselp.u32 %0, 1, 0, p;\n}"
      : "=r"(is_over) : "r"(shared_address(mbarrier)), "r"(parity) : "memory");
  return is_over != 0;
}
// Puts a word where `at` is in CTA `rank` of the cluster, and counts its bytes in the mbarrier there.
PD_DEVICE void send(unsigned* at, unsigned value, unsigned long long* mbarrier, unsigned rank) {
  asm volatile("st.async.weak.shared::cluster.mbarrier::complete_tx::bytes.b32 [%0], %1, [%2];" ::"r"(
                   address_in(shared_address(at), rank)),
               "r"(value), "r"(address_in(shared_address(mbarrier), rank))
               : "memory");
}
#endif
#endif

#if !defined(PD_EMULATE) && __CUDA_ARCH__ < 900
PD_DEVICE void copies_follow_stores() {}
#endif

// is_called_off() as a word that is asked for here, and waited for where it is looked at.
PD_DEVICE unsigned called_off_word(const LaunchScratch& scratch) { return scratch.failed != nullptr ? load_relaxed(scratch.failed) : 0; }
