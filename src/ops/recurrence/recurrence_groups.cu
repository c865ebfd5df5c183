// SPDX-License-Identifier: Apache-2.0
// Products of a recurrence by Hopper's groups of four warps, which read the vectors once for all four and go on beside
// what the warps do meanwhile. Of the weights those that registers have no room for are squares in shared memory.

// Of a group: 64 rows, 16 of each warp, by 32 bytes along K. Of a square a lane has the word of its own place.
constexpr int kSquareBytes = 128, kFragmentBytes = 2 * 8 * kSquareBytes;

struct WarpWeights {
  static constexpr int kCount = kTiles * kSteps, kHere = kCount < kKept ? kCount : kKept;
  unsigned words[kHere][4];
  unsigned char* rest;  // of this group

  PD_DEVICE void begin(uint4* shared) {
    rest = (unsigned char*)shared + threadIdx.x / 128 * ((kCount - kHere) * kFragmentBytes);
  }
  PD_DEVICE void put(int i, unsigned (&fragment)[4]) {
#pragma unroll
    for (int word = 0; word < 4; ++word) fragment[word] = factor_bits(fragment[word]);
    if (i < kHere) {
#pragma unroll
      for (int word = 0; word < 4; ++word) words[i < kHere ? i : 0][word] = fragment[word];
    } else {
      unsigned char* const squares = rest + (i - kHere) * kFragmentBytes + threadIdx.x % 32 * 4;
#pragma unroll
      for (int word = 0; word < 4; ++word) {
        const int square = word / 2 * 8 + threadIdx.x / 32 % 4 * 2 + word % 2;
        *(unsigned*)(squares + square * kSquareBytes) = fragment[word];
      }
    }
  }
  PD_DEVICE void are_there() const { copies_follow_stores(); }
};

// The product of a warp's weights and the vectors of all rows, of which `first` is its first step's.
struct Products {
  static constexpr int kChains = kTiles == 1 && kSteps > 1 ? 2 : 1;  // sums that do not wait for each other
  float sums[kChains][kTiles][kColumnTiles * 4];

  PD_DEVICE void begin(const WarpWeights& weights, const unsigned char* first) {
    const Squares vectors = squares_of(first, kRows * 16, kSquareBytes);
    const Squares rest = squares_of(weights.rest, 8 * kSquareBytes, kSquareBytes);
    products_begin();
#pragma unroll
    for (int step = 0; step < kSteps; ++step) {
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int i = tile * kSteps + step;
        float(&sum)[kColumnTiles * 4] = sums[step % kChains][tile];
        const Squares right = squares_at(vectors, step * 2 * kRows);
        if (step < kChains) add<false>(sum, weights, rest, i, right);
        else add<true>(sum, weights, rest, i, right);
      }
    }
    products_start();
  }
  template <bool kAdds>
  static PD_DEVICE void add(float (&sum)[kColumnTiles * 4], const WarpWeights& weights, Squares rest, int i,
                            Squares right) {
    constexpr int kHere = WarpWeights::kHere;
    if (i < kHere) add_product<kAdds>(sum, weights.words[i < kHere ? i : 0], right);
    else add_product<kAdds>(sum, squares_at(rest, (i - kHere) * (kFragmentBytes / 16)), right);
  }
  PD_DEVICE void end(float (&sum)[kTiles][kColumnTiles][4]) {
#pragma unroll
    for (int i = 0; i < kChains * kTiles; ++i) products_wait(sums[i / kTiles][i % kTiles]);
#pragma unroll
    for (int i = 0; i < kTiles * kColumnTiles * 4; ++i) {
      const float total = (&sums[0][0][0])[i];
      (&sum[0][0][0])[i] = kChains == 1 ? total : total + (&sums[kChains - 1][0][0])[i];
    }
  }
};
