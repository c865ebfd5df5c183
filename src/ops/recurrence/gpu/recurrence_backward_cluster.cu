// SPDX-License-Identifier: Apache-2.0
// Exchanges parts of the gradients within a cluster: TMA brings each CTA its parts of all others. Two places for the
// sent and for the received parts are used in turn, each with an mbarrier: who sends the parts of step s + 1 has had
// all of step s.

// Parts of values that are stored as 16 bits are rounded on the way too, two rows in a word: a unit's gradient, the sum
// of all parts, loses no more by it than by being rounded once.
constexpr int kRowsInWord = sizeof(Stored) == 2 ? 2 : 1, kPartRows = (kRows + kRowsInWord - 1) / kRowsInWord;
// Lanes of a warp go to different banks.
constexpr int kPartStride = kRowsInWord == 1 ? kUnits + 4 : kUnits % 16 == 0 ? kUnits + 8 : kUnits;
constexpr int kPartWords = kPartRows * kPartStride, kPartBytes = kPartWords * 4;
constexpr int kExchangeBytes = 4 * kGroupCtas * kPartBytes;
// Where all that a CTA is given is made by one warp, that warp sends it, and no other waits for it: by groups, while
// the products for the next CTA go on.
constexpr int kWarpCtas = kTiles * 16 / kUnits;  // that a warp has parts for
constexpr bool kGivesByWarps = kGroupCtas > 1 && kTiles * 16 % kUnits == 0;
constexpr int kOutputSlices = kGivesByWarps && kWgmma && kUnits % 16 == 0 ? kWarpCtas : 1;

struct PartExchange {
  static constexpr bool kIsTogether = false;  // each takes those of its cells
  unsigned long long* mbarriers;
  unsigned* come;  // two of [kGroupCtas][kPartRows][kPartStride], from each CTA, its own too
  unsigned* sent;  // the same for each other CTA
  int rank;

  PD_DEVICE PartExchange(const Shared& shared, void* work, const LaunchScratch&, unsigned cta)
      : mbarriers(shared.mbarriers), come((unsigned*)work), sent(come + 2 * (kGroupCtas * kPartWords)), rank(rank_in_group(cta)) {
    if (threadIdx.x < 2) mbarrier_init(&mbarriers[threadIdx.x], 1);
  }
  PD_DEVICE void begin() const { synchronize_cta_group(); }
  PD_DEVICE void give_guard(int, const CellPlace&, float, int) const {}
  PD_DEVICE void take_gates(unsigned char*, int) const {}
  PD_DEVICE void wait(int step) const {
    wait_on_mbarrier(&mbarriers[step % 2], step / 2);
    if constexpr (kGivesByWarps) __syncthreads();  // its own parts are there, and nobody reads the factors any more
  }
  PD_DEVICE void take(float (&sum)[kCells], int step, const CellPlace (&place)[kCells]) const {
    const unsigned* const parts = come + step % 2 * (kGroupCtas * kPartWords);
    int at[kCells];
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      at[i] = (place[i].row < kRows ? place[i].row / kRowsInWord : 0) * kPartStride + place[i].of_cta;
    }
#pragma unroll
    for (int from = 0; from < kGroupCtas; ++from) {
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        const float part = part_of(parts[at[i] + from * kPartWords], place[i].row);
        sum[i] = from == 0 ? part : sum[i] + part;
      }
    }
  }
  template <int kOutputSlice> PD_DEVICE void give(const float (&sum)[kTiles][kColumnTiles][4], int step) const {
    unsigned* const parts = sent + step % 2 * (kGroupCtas * kPartWords);
    unsigned* const there = come + (step % 2 * kGroupCtas + rank) * kPartWords;  // in every CTA
    unsigned long long* const mbarrier = &mbarriers[step % 2];
    const auto copy = [&](int to) { copy_to_peer(there, parts + to * kPartWords, kPartBytes, mbarrier, to); };
    store_parts<kOutputSlice>(sum, parts, there);
    if constexpr (kGroupCtas > 1) copies_follow_stores();
    if constexpr (kGivesByWarps) {
      constexpr int kCtas = kWarpCtas / kOutputSlices;
      const int lane = threadIdx.x % 32, to = threadIdx.x / 32 * kWarpCtas + kOutputSlice * kCtas + lane;
      __syncwarp();
      if (lane < kCtas && to < kGroupCtas && to != rank) copy(to);
    } else {
      __syncthreads();
      copy_to_others(copy, rank);
    }
    if (kOutputSlice + 1 == kOutputSlices && threadIdx.x == 0) mbarrier_arrive_expect_tx(mbarrier, kPartBytes * (kGroupCtas - 1));
  }
  PD_DEVICE void end(int) const { synchronize_cta_group(); }

 private:
  static PD_DEVICE float part_of(unsigned word, int row) {
    if constexpr (kRowsInWord == 1) return __uint_as_float(word);
#ifndef PD_EMULATE
    else if constexpr (kSame<Stored, BF16>) return __uint_as_float(__byte_perm(word, 0, row % 2 == 0 ? 0x1044 : 0x3244));
#endif
    else return value_of<Stored>(word >> (row % 2 * 16) & 0xffffu);
  }
  // A tile has 16 rows, of which 8 are units of one CTA.
  template <int kOutputSlice>
  PD_DEVICE void store_parts(const float (&sum)[kTiles][kColumnTiles][4], unsigned* parts, unsigned* own) const {
    const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * (kTiles * 16);
    // Where a warp's rows are all of one CTA, or CTAs' all of one warp, it is known how they go on.
    constexpr bool kIsRegular = kTiles * 16 % kUnits == 0 || kUnits % (kTiles * 16) == 0;
#pragma unroll
    for (int i = kOutputSlice * (kTiles * 2 / kOutputSlices); i < (kOutputSlice + 1) * (kTiles * 2 / kOutputSlices); ++i) {
      const int row = first_row + i * 8;
      if (row >= kHidden) break;
      const int to = kIsRegular ? first_row / kUnits + i * 8 / kUnits : row / kUnits;
      const int unit = kIsRegular ? first_row % kUnits + i * 8 % kUnits : row % kUnits;
      unsigned* const part = to == rank ? own : parts + to * kPartWords;
#pragma unroll
      for (int k = 0; k < kColumnTiles * 2 / kRowsInWord; ++k) {
        const float(&of_tile)[4] = sum[i / 2][k * kRowsInWord / 2];
        const int n = kRowsInWord == 2 ? k * 4 + lane % 4 : k / 2 * 8 + lane % 4 * 2 + k % 2;
        unsigned word;
        if constexpr (kRowsInWord == 2) word = pair_of<Stored>(of_tile[i % 2 * 2], of_tile[i % 2 * 2 + 1]);
        else word = __float_as_uint(of_tile[i % 2 * 2 + k % 2]);
        if (n < kPartRows) part[n * kPartStride + unit + lane / 4] = word;
      }
    }
  }
};
