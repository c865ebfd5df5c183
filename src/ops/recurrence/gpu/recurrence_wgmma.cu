// SPDX-License-Identifier: Apache-2.0
// Products of a recurrence by Hopper's warpgroups, which read the vectors once for all four and go on beside the warps'
// other work. Weights that registers have no room for are squares in shared memory.

// A warpgroup's fragment: 64 rows, 16 of each warp, by 32 bytes along K. A lane has the word of its own place in a
// square.
constexpr int kSquareBytes = 128, kFragmentBytes = 2 * 8 * kSquareBytes;

struct WarpWeights {
  static constexpr int kCount = kTiles * kSteps, kHere = kCount < kKept ? kCount : kKept;
  unsigned words[kHere][4];
  unsigned char* rest;  // of this warpgroup

  // Those in registers are evenly among the others, which are read beside products by them: so many are in front of
  // `i`.
  static PD_DEVICE constexpr int here_before(int i) { return i * kHere / kCount; }
  static PD_DEVICE constexpr bool is_here(int i) { return here_before(i + 1) > here_before(i); }

  PD_DEVICE void begin(const Shared& shared, const LaunchScratch&, unsigned) {
    rest = (unsigned char*)shared.weights + threadIdx.x / 128 * ((kCount - kHere) * kFragmentBytes);
  }
  PD_DEVICE void put(int i, unsigned (&fragment)[4]) {
#pragma unroll
    for (int word = 0; word < 4; ++word) fragment[word] = factor_bits(fragment[word]);
    const int before = here_before(i);
    if (is_here(i)) {
#pragma unroll
      for (int word = 0; word < 4; ++word) words[before < kHere ? before : 0][word] = fragment[word];
    } else {
      unsigned char* const squares = rest + (i - before) * kFragmentBytes + threadIdx.x % 32 * 4;
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const int square = word / 2 * 8 + threadIdx.x / 32 % 4 * 2 + word % 2;
        *(unsigned*)(squares + square * kSquareBytes) = fragment[word];
      }
    }
  }
  PD_DEVICE void are_there() const { copies_follow_stores(); }
  PD_DEVICE void start() const {}
  PD_DEVICE void aim(bool) const {}
  PD_DEVICE void ask() const {}
  PD_DEVICE void end() const {}
};

// The product of a warp's weights and the vectors of all rows, of which `first` is its first step's: of so many tiles
// after the other, which end one after the other.
template <int kOutputSlices> struct Products {
  static constexpr int kTilesOfSlice = kTiles / kOutputSlices;
  static constexpr int kChains = kTiles == 1 && kSteps > 1 ? 2 : 1;  // sums that do not wait for each other
  float sums[kChains][kTiles][kColumnTiles * 4];

  PD_DEVICE void begin(const WarpWeights& weights, const unsigned char* first) {
    const Squares vectors = squares_of(first, kRows * 16, kSquareBytes);
    const Squares rest = squares_of(weights.rest, 8 * kSquareBytes, kSquareBytes);
    products_begin();
#pragma unroll
    for (int begin = 0; begin < kTiles; begin += kTilesOfSlice) {
#pragma unroll
      for (int step = 0; step < kSteps; ++step) {
#pragma unroll
        for (int tile = begin; tile < begin + kTilesOfSlice; ++tile) {
          const int i = tile * kSteps + step;
          float(&sum)[kColumnTiles * 4] = sums[step % kChains][tile];
          const Squares right = squares_at(vectors, step * 2 * kRows);
          if (step < kChains) add<false>(sum, weights, rest, i, right);
          else add<true>(sum, weights, rest, i, right);
        }
      }
      products_start();
    }
  }
  // The same with K in two parts, halves of each CTA's part: the second when it is there.
  template <class Await>
  PD_DEVICE void begin_halves(const WarpWeights& weights, const unsigned char* first, const Await& await) {
    const Squares vectors = squares_of(first, kRows * 16, kSquareBytes);
    const Squares rest = squares_of(weights.rest, 8 * kSquareBytes, kSquareBytes);
    constexpr int kCtaSteps = kSteps / kGroupCtas, kHalfSteps = kCtaSteps / 2;
    products_begin();
#pragma unroll
    for (int k = 0; k < kSteps; ++k) {
      if (k == kSteps / 2) {
        products_start();
        await();
      }
      const int half = k / (kSteps / 2), in_half = k % (kSteps / 2);
      const int step = in_half / kHalfSteps * kCtaSteps + half * kHalfSteps + in_half % kHalfSteps;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int i = tile * kSteps + step;
        float(&sum)[kColumnTiles * 4] = sums[k % kChains][tile];
        const Squares right = squares_at(vectors, step * 2 * kRows);
        if (k < kChains) add<false>(sum, weights, rest, i, right);
        else add<true>(sum, weights, rest, i, right);
      }
    }
    products_start();
  }
  template <bool kAdds>
  static PD_DEVICE void add(float (&sum)[kColumnTiles * 4], const WarpWeights& weights, Squares rest, int i,
                            Squares right) {
    constexpr int kHere = WarpWeights::kHere;
    const int before = WarpWeights::here_before(i);
    if (WarpWeights::is_here(i)) add_product<kAdds>(sum, weights.words[before < kHere ? before : 0], right);
    else add_product<kAdds>(sum, squares_at(rest, (i - before) * (kFragmentBytes / 16)), right);
  }
  template <int kOutputSlice> PD_DEVICE void end(float (&sum)[kTiles][kColumnTiles][4]) {
#pragma unroll
    for (int tile = kOutputSlice * kTilesOfSlice; tile < (kOutputSlice + 1) * kTilesOfSlice; ++tile) {
#pragma unroll
      for (int chain = 0; chain < kChains; ++chain) products_wait<kOutputSlices - 1 - kOutputSlice>(sums[chain][tile]);
#pragma unroll
      for (int i = 0; i < kColumnTiles * 4; ++i) {
        const float total = sums[0][tile][i];
        sum[tile][i / 4][i % 4] = kChains == 1 ? total : total + sums[kChains - 1][tile][i];
      }
    }
  }
};
