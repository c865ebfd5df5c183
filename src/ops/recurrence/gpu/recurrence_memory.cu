// SPDX-License-Identifier: Apache-2.0
// CTA groups that exchange through global memory, that is, through L2: any CTAs that run at once, for weights that are
// more than a cluster has room for, and for GPUs without clusters. The data themselves tell whether they are there: a
// flag beside them would be seen only after a second trip. All CTAs of a cooperative launch run, so a step's data come
// whatever happens.

// Nobody asks for so long after it has given its part: requests get in the way of the data.
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
