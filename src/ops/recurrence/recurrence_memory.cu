// SPDX-License-Identifier: Apache-2.0
// Teams that exchange through global memory, that is, through L2: any CTAs that run at once, for weights that are more
// than a cluster has room for, and for GPUs without clusters. What is there is told by the data themselves: a flag beside
// them would be seen only after a second trip. All CTAs of a cooperative launch run, so what a step needs comes whatever
// happens.

// Nobody asks for so long after it has given its part: what asks gets in the way of what comes.
PD_DEVICE void pause_cycles(int cycles) {
#ifndef PD_EMULATE
  for (const long long begin = clock64(); clock64() - begin < cycles;) {}
#endif
}

PD_DEVICE int rank_in_team(unsigned cta) { return cta % kTeam; }
