// SPDX-License-Identifier: Apache-2.0
// Products of a recurrence on the tensor cores, each warp's for itself, by weights that stay where they are.

// A warp's part of a matrix of weights, as the tensor cores get it: kTiles tiles of 16 rows by kSteps steps along K.
// Where some of it comes out of memory, it does so by chunks of fragments that are multiplied by one after the other;
// and of the others as many as registers have room for are spread evenly among those in shared memory, which take
// longer. In 16 bits the first of these come into registers that sums will have, before the vectors are there.
struct WarpWeights {
  static constexpr int kChunks = kTiles * kSteps / kChunkPieces, kCount = kTiles * kSteps - kStreamed * kChunkPieces;
  static constexpr int kHere = kCount < kKept ? kCount : kKept, kMostAsked = kStreamed == 0 && sizeof(Factor) == 2 ? 4 : 0;
  static constexpr int kAsked = kCount - kHere < kMostAsked ? kCount - kHere : kMostAsked;
  static constexpr bool kAreSpread = kStreamed > 0 || kAsked > 0;
  unsigned words[kHere][4], asked[kAsked > 0 ? kAsked : 1][4];
  uint4* rest;
  StreamedWeights streamed;

  // The turn of fragment i, that is tile * kSteps + step.
  static PD_DEVICE constexpr int turn_of(int i) { return i % kSteps * kTiles + i / kSteps; }
  static PD_DEVICE constexpr int piece_of(int i) { return turn_of(i) % kChunkPieces; }
  static PD_DEVICE constexpr bool is_streamed(int i) {
    return StreamedWeights::has(turn_of(i) / kChunkPieces, kChunks);
  }
  static PD_DEVICE constexpr int chunk_of(int i) { return StreamedWeights::before(turn_of(i) / kChunkPieces, kChunks); }
  // Its index among the fragments that stay; and how many of the first n of those registers have.
  static PD_DEVICE constexpr int own(int i) { return kAreSpread ? turn_of(i) - chunk_of(i) * kChunkPieces : i; }
  static PD_DEVICE constexpr int here_before(int n) { return kAreSpread ? n * kHere / kCount : n < kHere ? n : kHere; }
  static PD_DEVICE constexpr bool is_here(int n) { return here_before(n + 1) > here_before(n); }

  PD_DEVICE void begin(const Shared& shared, const LaunchScratch& scratch, unsigned cta) {
    rest = shared.weights + threadIdx.x / 32 * ((kCount - kHere) * 32) + threadIdx.x % 32;
    streamed.begin(shared, scratch, cta);
  }
  PD_DEVICE void put(int i, unsigned (&fragment)[4]) {
#pragma unroll
    for (int word = 0; word < 4; ++word) fragment[word] = factor_bits(fragment[word]);
    if (is_streamed(i)) {
      streamed.put(chunk_of(i), piece_of(i), make_uint4(fragment[0], fragment[1], fragment[2], fragment[3]));
      return;
    }
    const int n = own(i), here = here_before(n);
    if (is_here(n)) {
#pragma unroll
      for (int word = 0; word < 4; ++word) words[here < kHere ? here : 0][word] = fragment[word];
    } else {
      rest[(n - here) * 32] = make_uint4(fragment[0], fragment[1], fragment[2], fragment[3]);
    }
  }
  PD_DEVICE void get(unsigned (&fragment)[4], int i) const {
    const bool is_far = is_streamed(i);
    const int n = own(i), here = here_before(n);
    if (!is_far && is_here(n)) {
#pragma unroll
      for (int word = 0; word < 4; ++word) fragment[word] = words[here < kHere ? here : 0][word];
    } else if (!is_far && n - here < kAsked) {
#pragma unroll
      for (int word = 0; word < 4; ++word) fragment[word] = asked[n - here < kAsked ? n - here : 0][word];
    } else {
      const uint4 piece = is_far ? streamed.get(chunk_of(i), piece_of(i)) : rest[(n - here) * 32];
      fragment[0] = piece.x, fragment[1] = piece.y, fragment[2] = piece.z, fragment[3] = piece.w;
    }
  }
  // In front of all of them.
  PD_DEVICE void ask() {
#pragma unroll
    for (int i = 0; i < kAsked; ++i) {
      const uint4 piece = rest[i * 32];
      asked[i][0] = piece.x, asked[i][1] = piece.y, asked[i][2] = piece.z, asked[i][3] = piece.w;
    }
  }
  // In front of a fragment, and after it: its chunk has come, and is asked for again.
  PD_DEVICE void await(int i) const {
    if (is_streamed(i) && piece_of(i) == 0) streamed.await();
  }
  PD_DEVICE void pass(int i) const {
    if (is_streamed(i) && piece_of(i) + 1 == kChunkPieces) streamed.pass(chunk_of(i));
  }
  PD_DEVICE void are_there() const {}
  PD_DEVICE void start() { streamed.start(); }
  PD_DEVICE void aim(bool is_last) {
    if constexpr (kStreamed > 0) streamed.is_last = is_last;  // else that nobody reads it would arrange the loop otherwise
  }
  PD_DEVICE void end() const { streamed.end(); }
};

#ifdef PD_EMULATE
PD_DEVICE void load_there(unsigned (&words)[4], Place at, bool is_there) {
  for (int i = 0; i < 4; ++i) words[i] = is_there ? ((const unsigned*)at)[i] : ~0u;
}
PD_DEVICE void load_there(unsigned (&words)[2], Place at, bool is_there) {
  for (int i = 0; i < 2; ++i) words[i] = is_there ? ((const unsigned*)at)[i] : ~0u;
}
#else
// A word that is not there goes into sums that nobody reads.
PD_DEVICE void load_there(unsigned (&words)[4], Place at, bool is_there) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %5, 0;\n@p ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];\n}"
               : "=r"(words[0]), "=r"(words[1]), "=r"(words[2]), "=r"(words[3])
               : "r"(at), "r"((int)is_there)
               : "memory");
}
PD_DEVICE void load_there(unsigned (&words)[2], Place at, bool is_there) {
  asm volatile("{\n.reg .pred p;\nsetp.ne.s32 p, %3, 0;\n@p ld.shared.v2.u32 {%0, %1}, [%2];\n}"
               : "=r"(words[0]), "=r"(words[1])
               : "r"(at), "r"((int)is_there)
               : "memory");
}
#endif

// The product of a warp's weights and the vectors of all rows, of which `first` is its first step's.
PD_DEVICE void multiply_by(float (&sum)[kTiles][kColumnTiles][4], const WarpWeights& weights,
                           const unsigned char* first) {
  // Sums that do not wait for each other.
  constexpr int kChains = kTiles * kColumnTiles >= 4 || kSteps < 4 ? 1 : 4 / (kTiles * kColumnTiles);
  float sums[kChains][kTiles][kColumnTiles][4];
#pragma unroll
  for (int i = 0; i < kChains * kTiles * kColumnTiles * 4; ++i) (&sums[0][0][0][0])[i] = 0;
  const int lane = threadIdx.x % 32;
  const unsigned char* squares[kColumnTiles];
#pragma unroll
  for (int tile = 0; tile < kColumnTiles; ++tile) {
    const int row = tile * 8 + lane % 8;
    squares[tile] = first + (lane / 8 * kRows + (row < kRows ? row : kRows - 1)) * 16;
  }
  const bool is_there = lane / 4 < kRows;
  const Place row = place_in_shared(first) + lane / 4 * 16;
#pragma unroll
  for (int step = 0; step < kSteps; step += 2) {
    unsigned vectors[kColumnTiles][4];
#pragma unroll
    for (int tile = 0; tile < kColumnTiles; ++tile) {
      const bool is_pair = step + 1 < kSteps;
      const unsigned char* const at = squares[tile] + step * 2 * kRows * 16;
      unsigned half[2];
      if constexpr (kIsNarrow) {
        const int behind = step * 2 * (kRows * 16);
        if (is_pair) load_there(vectors[tile], row + (lane % 4 * (kRows * 16) + behind), is_there);
        else load_there(half, row + (lane % 4 / 2 * (kRows * 16) + lane % 2 * 8 + behind), is_there);
      } else {
        if (is_pair) load_squares(vectors[tile], at);
        else load_squares(half, at);
      }
      if (!is_pair) vectors[tile][0] = half[0], vectors[tile][1] = half[1];
    }
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (step + i >= kSteps) break;
#pragma unroll
      for (int tile = 0; tile < kTiles; ++tile) {
        const int n = tile * kSteps + step + i;
        unsigned fragment[4];
        weights.await(n);
        weights.get(fragment, n);
#pragma unroll
        for (int column = 0; column < kColumnTiles; ++column) {
          const unsigned pair[2] = {vectors[column][2 * i], vectors[column][2 * i + 1]};
          add_tile<Stored>(sums[(!kIsNarrow || kSteps / 2 < kChains ? step + i : step / 2) % kChains][tile][column], fragment, pair);
        }
        weights.pass(n);
      }
    }
  }
#pragma unroll
  for (int tile = 0; tile < kTiles; ++tile) {
#pragma unroll
    for (int column = 0; column < kColumnTiles; ++column) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
#pragma unroll
        for (int apart = 1; apart < kChains; apart *= 2) {
#pragma unroll
          for (int chain = 0; chain + apart < kChains; chain += 2 * apart) {
            sums[chain][tile][column][i] += sums[chain + apart][tile][column][i];
          }
        }
        sum[tile][column][i] = sums[0][tile][column][i];
      }
    }
  }
}

// Where nothing goes on beside them, products are made when they are waited for.
template <int kOutputSlices> struct Products {
  const WarpWeights* weights;
  const unsigned char* first;

  PD_DEVICE void begin(const WarpWeights& of, const unsigned char* vectors) { weights = &of, first = vectors; }
  template <class Await> PD_DEVICE void begin_halves(const WarpWeights& of, const unsigned char* vectors, const Await&) {
    begin(of, vectors);
  }
  template <int kOutputSlice> PD_DEVICE void end(float (&sum)[kTiles][kColumnTiles][4]) const {
    static_assert(kOutputSlices == 1);
    multiply_by(sum, *weights, first);
  }
};
