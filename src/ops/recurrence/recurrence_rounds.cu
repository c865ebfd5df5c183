// SPDX-License-Identifier: Apache-2.0
// Rows with lengths of their own, shared out by work. Where kFewTeams is not 0 a plan has two launches: one has all rows
// at once; the teams of the other (kIsFew) have few at a time, whose steps take less, and go on to more when these have
// ended. Rows are sorted by their lengths, and portions of them dealt out forwards and backwards in turn, so that who has
// the longest first has the shortest last. Both launches find out from the lengths which takes less; the other leaves.

PD_DEVICE int portion_of(int round, int team, int teams) {
  return round % 2 == 0 ? round * teams + team : (round + 1) * teams - 1 - team;
}

PD_DEVICE int rounds_of(const Sizes& size) {
  constexpr int kAtOnce = kFewRows * (kIsFew ? kFewTeams : 1);
  return kIsFew ? ((int)size.batch + kAtOnce - 1) / kAtOnce : 1;
}

// For all threads of the CTA; `longest` has room for a number per portion of kFewRows rows.
PD_DEVICE bool is_left_to_the_other(const int* lengths, const Sizes& size, int* longest) {
  if constexpr (kFewTeams == 0) return false;
  const int batch = size.batch, steps = size.steps, portions = (batch + kFewRows - 1) / kFewRows;
  for (int n = threadIdx.x; n < batch; n += kThreads) {
    const int mine = TeamRows::length_of(lengths, n, steps), place = TeamRows::place_of(lengths, n, mine, size);
    if (place % kFewRows == 0) longest[place / kFewRows] = mine;
  }
  __syncthreads();
  int most = 0;  // steps of a team
  for (int team = 0; team < kFewTeams; ++team) {
    int sum = 0;
    for (int round = 0; round * kFewTeams < portions; ++round) {
      const int portion = portion_of(round, team, kFewTeams);
      if (portion < portions) sum += longest[portion];
    }
    most = most > sum ? most : sum;
  }
  const long long few_ns = (long long)most * kFewStepNs, all_ns = (long long)longest[0] * kAllStepNs;
  __syncthreads();  // what lies there next
  return (few_ns < all_ns) != kIsFew;
}
