// SPDX-License-Identifier: Apache-2.0
// Parts of what comes back within a cluster: the copy engine brings each CTA its parts of all others. Two places for what
// is sent and for what comes are used in turn, each with a mailbox: who sends the parts of step s + 1 has had all of step s.

constexpr int kPartStride = kUnits + 4, kPartFloats = kRows * kPartStride;  // lanes of a warp go to different banks
constexpr int kPartBytes = kPartFloats * 4;

// Of 16 rows of a tile, 8 are units of one CTA.
PD_DEVICE void store_parts(const float (&sum)[kTiles][kColumnTiles][4], float* parts, int first_row) {
  const int lane = threadIdx.x % 32;
  // Where a warp's rows are all of one CTA, or CTAs' all of one warp, it is known how they go on.
  constexpr bool kIsRegular = kTiles * 16 % kUnits == 0 || kUnits % (kTiles * 16) == 0;
  const int first = first_row / kUnits * kPartFloats + first_row % kUnits + lane % 4 * 2 * kPartStride + lane / 4;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const int row = first_row + i * 8;
    if (row >= kHidden) break;
    const int known = i * 8 / kUnits * kPartFloats + i * 8 % kUnits;
    float* const to = kIsRegular ? parts + first + known
                                 : parts + row / kUnits * kPartFloats + row % kUnits + lane % 4 * 2 * kPartStride + lane / 4;
#pragma unroll
    for (int k = 0; k < kColumnTiles * 2; ++k) {
      const int n = k / 2 * 8 + lane % 4 * 2 + k % 2;
      if (n < kRows) to[(k / 2 * 8 + k % 2) * kPartStride] = sum[i / 2][k / 2][i % 2 * 2 + k % 2];
    }
  }
}

struct PartExchange {
  unsigned long long* mailboxes;
  float* come;  // two of [kTeam][kRows][kPartStride], from each CTA
  float* sent;  // the same for each CTA, its own too
  int rank;

  PD_DEVICE PartExchange(const Shared& shared, void* work, const Room&)
      : mailboxes(shared.mailboxes), come((float*)work), sent(come + 2 * (kTeam * kPartFloats)), rank(rank_in_team()) {
    if (threadIdx.x < 2) mailbox_init(&mailboxes[threadIdx.x], 1);
  }
  PD_DEVICE void begin() const { meet_team(); }
  PD_DEVICE void wait(int step) const { wait_for_mail(&mailboxes[step % 2], step / 2); }
  PD_DEVICE float take(int step, const CellPlace& place) const {
    const int at = step % 2 * (kTeam * kPartFloats) + place.row * kPartStride + place.of_cta;
    float sum = (rank == 0 ? sent : come)[at];
#pragma unroll
    for (int other = 1; other < kTeam; ++other) sum += (rank == other ? sent : come)[at + other * kPartFloats];
    return sum;
  }
  PD_DEVICE void give(const float (&sum)[kTiles][kColumnTiles][4], int step) const {
    float* const parts = sent + step % 2 * (kTeam * kPartFloats);
    unsigned long long* const mailbox = &mailboxes[step % 2];
    store_parts(sum, parts, threadIdx.x / 32 * (kTiles * 16));
    if constexpr (kTeam > 1) copies_follow_stores();
    __syncthreads();
    copy_to_others(
        [&](int to) {
          copy_to_peer(come + (step % 2 * kTeam + rank) * kPartFloats, parts + to * kPartFloats, kPartBytes, mailbox, to);
        },
        rank);
    if (threadIdx.x == 0) mailbox_expect(mailbox, kPartBytes * (kTeam - 1));
  }
  PD_DEVICE void end(int) const { meet_team(); }
};
