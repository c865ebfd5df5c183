// SPDX-License-Identifier: Apache-2.0
// Rows with lengths of their own, shared out by work. Where kFewCtaGroups is not 0 a plan has two launches: one has all
// rows at once; the CTA groups of the other (kIsFew) have few at a time, whose steps take less, and go on to more when
// these have ended. Rows are sorted by their lengths, and the tiles of the batch are dealt out in snake order,
// so that who has the longest first has the shortest last. Both launches find out from the lengths which takes less;
// the other leaves.

PD_DEVICE int batch_tile_of(int turn, int cta_group, int cta_groups) {
  return turn % 2 == 0 ? turn * cta_groups + cta_group : (turn + 1) * cta_groups - 1 - cta_group;
}

PD_DEVICE int batch_tiles_of(const Sizes& size) {
  constexpr int kAtOnce = kFewRows * (kIsFew ? kFewCtaGroups : 1);
  return kIsFew ? ((int)size.batch + kAtOnce - 1) / kAtOnce : 1;
}

// For all threads of the CTA; `longest` has room for a number per batch tile of kFewRows rows.
PD_DEVICE bool is_left_to_the_other(const int* lengths, const Sizes& size, int* longest) {
  if constexpr (kFewCtaGroups == 0) return false;
  const int batch = size.batch, steps = size.steps, batch_tiles = (batch + kFewRows - 1) / kFewRows;
  for (int n = threadIdx.x; n < batch; n += kThreads) {
    const int mine = CtaGroupRows::length_of(lengths, n, steps), place = CtaGroupRows::place_of(lengths, n, mine, size);
    if (place % kFewRows == 0) longest[place / kFewRows] = mine;
  }
  __syncthreads();
  int most = 0;  // steps of a CTA group
  for (int cta_group = 0; cta_group < kFewCtaGroups; ++cta_group) {
    int sum = 0;
    for (int turn = 0; turn * kFewCtaGroups < batch_tiles; ++turn) {
      const int batch_tile = batch_tile_of(turn, cta_group, kFewCtaGroups);
      if (batch_tile < batch_tiles) sum += longest[batch_tile];
    }
    most = most > sum ? most : sum;
  }
  const long long few_ns = (long long)most * kFewStepNs, all_ns = (long long)longest[0] * kAllStepNs;
  __syncthreads();  // before this memory is used again
  return (few_ns < all_ns) != kIsFew;
}
