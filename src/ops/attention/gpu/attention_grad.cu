// SPDX-License-Identifier: Apache-2.0
// Parts that the gradients' kernels share. A weight p = e^(score - log) follows from the logarithm of its row's sum,
// which the forward pass has kept; the gradient for a score is p (dp - delta), with dp the result's gradient times the
// values, and delta the row's sum of p dp, which is that of the result times its gradient.

constexpr int kOwned = kGroups * 64, kStep = 64, kConsumers = kGroups * 128, kScores = kStep / 2, kSums = kWidth / 2;
constexpr int kOwnedElements = kOwned * kWidth, kStepElements = kStep * kWidth;
constexpr int kTileElements = 2 * kStepElements;

// Two operands of which a CTA owns rows, 64 for each of its groups of four warps, and TMA tiles of 64 rows of two others that it goes over.
struct Barriers {
  Mbarriers tiles;
  unsigned long long full[kOwnedSlots], free[kOwnedSlots];
};
struct Shared {
  Stored *owned, *tiles;
  float* rows;  // logs and deltas of queries that are gone over
  Barriers* barriers;
};
PD_DEVICE Shared begin_shared(const Map& a, const Map& b, const Map& c, const Map& d) {
  Shared shared;
  shared.owned = shared_for_tma<Stored>();
  shared.tiles = shared.owned + kOwnedSlots * 2 * kOwnedElements;
  shared.rows = (float*)(shared.tiles + kStages * kTileElements);
  shared.barriers = (Barriers*)(shared.rows + kStages * kRowFloats);
  Barriers* const barriers = shared.barriers;
  if (threadIdx.x == kConsumers) fetch_map(a), fetch_map(b), fetch_map(c), fetch_map(d);
  if (threadIdx.x < kStages) {
    mbarrier_init(&barriers->tiles.full[threadIdx.x], 1);
    mbarrier_init(&barriers->tiles.free[threadIdx.x], kConsumers / 32);
  }
  if (threadIdx.x < kOwnedSlots) {
    mbarrier_init(&barriers->full[threadIdx.x], 1);
    mbarrier_init(&barriers->free[threadIdx.x], kConsumers / 32);
  }
  __syncthreads();
  return shared;
}

PD_DEVICE void leave_tile(const Shared& shared, const Turn& turn) {
  if (threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(&shared.barriers->tiles.free[turn.stage], 0);
}
// Passes TMA tiles that have nothing for a group's rows.
PD_DEVICE void pass_tiles(const Shared& shared, Turn& turn, int tiles) {
  for (; tiles > 0; --tiles, turn.next()) {
    wait_for(&shared.barriers->tiles.full[turn.stage], turn.round);
    leave_tile(shared, turn);
  }
}

// The rows that a CTA owns, in turns of kOwnedSlots places.
struct OwnedTurn {
  int slot = 0, round = 0;
  PD_DEVICE void next() {
    if (++slot == kOwnedSlots) slot = 0, ++round;
  }
};
PD_DEVICE void bring_owned(const Shared& shared, const OwnedTurn& turn, const Map& a, const Map& b, int row, int head,
                           int batch) {
  unsigned long long* const full = &shared.barriers->full[turn.slot];
  Stored* const to = shared.owned + turn.slot * 2 * kOwnedElements;
  wait_for(&shared.barriers->free[turn.slot], turn.round + 1);
  mbarrier_arrive_expect_tx(full, kOwnedElements * 4);
  bring_rows<kOwned>(to, a, row, head, batch, full);
  bring_rows<kOwned>(to + kOwnedElements, b, row, head, batch, full);
}

// No key has a weight in empty rows, and beyond the last row.
PD_DEVICE float log2_of_row(float log) { return log == -infinity() ? infinity() : log * kLog2E; }
