// SPDX-License-Identifier: Apache-2.0
// Where a recurrence and the launch that multiplies its input beside it (recurrence_beside_product.cu) meet: words of
// their step, from ticket kBesideAt on. Those of a run are zero in front of it; the last CTA of the recurrence to end
// leaves them so.

struct Beside {
  unsigned* runs;  // that are over
  // Tiles and CTAs that were counted beyond those that all have; CTAs of the product that left early; that ended; CTAs of
  // the recurrence that ended.
  unsigned *taken, *left, *ended, *passed;
  unsigned* places;  // of each multiprocessor, the last run that had a CTA of the recurrence there
  unsigned* there;   // tiles of each stretch of rows

  PD_DEVICE explicit Beside(const Room& room) {
    unsigned* const words = room.tickets + kBesideAt;
    runs = words, taken = words + 1, left = words + 2, ended = words + 3, passed = words + 4, places = words + 5;
    there = places + kPlaces;
  }
  // For one thread, when nobody needs them any more.
  PD_DEVICE void reset(int stretches) const {
    *taken = 0, *left = 0, *ended = 0, *passed = 0;
#pragma unroll 1
    for (int i = 0; i < stretches; ++i) there[i] = 0;
    *runs += 1;
  }
};

PD_DEVICE unsigned multiprocessor() {
#ifdef PD_EMULATE
  return blockIdx.x % kPlaces;
#else
  unsigned number;
  asm("mov.u32 %0, %%smid;" : "=r"(number));
  return number % kPlaces;
#endif
}
