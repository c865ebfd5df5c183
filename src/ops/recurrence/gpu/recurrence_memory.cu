// SPDX-License-Identifier: Apache-2.0
// CTA groups that exchange through global memory, that is, through L2. They are for weights that do not fit a cluster
// and for GPUs without clusters. The data carry their own epoch (LL protocol), since a flag beside them would cost a
// second trip to L2. All CTAs of a cooperative launch run at once, so no CTA waits for one that has not begun.

// A CTA pauses so many cycles between sending its part and polling, because polls delay the data of others.
PD_DEVICE void pause_cycles(int cycles) {
#ifndef PD_EMULATE
  for (const long long begin = clock64(); clock64() - begin < cycles;) {}
#endif
}

PD_DEVICE int rank_in_group(unsigned cta) { return cta % kGroupCtas; }

// Tells uses of two places apart that are used in turn: a bit that changes from use to use, of step 0 first.
struct PlaceEpochs {
  unsigned* told;  // of each place's last use
  unsigned before[2];

  PD_DEVICE void begin() { before[0] = load_relaxed(told), before[1] = load_relaxed(told + 1); }
  PD_DEVICE unsigned of(int step) const { return ((step % 2 == 0 ? before[0] : before[1]) + 1 + step / 2) & 1; }
  // After so many steps; for one CTA of a CTA group, when all have begun.
  PD_DEVICE void end(int steps) const {
    if (threadIdx.x >= 2 || (int)threadIdx.x >= steps) return;
    const int last = steps - 1 - (steps - 1 - (int)threadIdx.x) % 2;  // that used the place
    store_relaxed(told + threadIdx.x, of(last));
  }
};
