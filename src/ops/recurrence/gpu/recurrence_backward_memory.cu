// SPDX-License-Identifier: Apache-2.0
// Exchange of partial sums of the gradients through global memory, where every word has one reader. A CTA group has two
// buffers, used in turn. The lowest bit of a word is an epoch that changes with each use, so a reader knows whether the
// word is of this use; that costs an f32 less than 2^-23 of its value. A CTA sends the parts of step s + 2 only after
// it has those of step s + 1 from all others, which then have all of step s, so no buffer is overwritten too early.
// With many rows the parts are most of the traffic. Then kSumPeers CTAs of adjacent ranks exchange the gradients of
// their gates in the same way, and each multiplies all of these for a share of the units: the parts are kSumPeers times
// fewer and longer. (A CTA gets its parts from one of each kSumPeers CTAs, which had the gradients of all of them,
// which had all parts of the step before.)

// Rows of a unit lie side by side, in an order that puts a lane's rows of two tiles into 16 bytes: so lanes store whole
// sectors. As many are taken at once. With few rows each word is for itself.
constexpr int kPartPiece = kRows <= 2 ? 1 : 4, kPairedRows = kColumnTiles / 2 * 16;
constexpr int kPartRows = kPairedRows >= kRows ? kPairedRows : (kRows + kPartPiece - 1) / kPartPiece * kPartPiece;
PD_DEVICE int part_place(int row) {  // among those of a unit
  return row < kPairedRows ? row / 16 * 16 + row % 8 / 2 * 4 + row / 8 % 2 * 2 + row % 2 : row;
}
constexpr int kPartWords = kPartRows * kUnits, kExchangeBytes = 0;
constexpr int kGivers = kGroupCtas / kSumPeers;  // of parts to a CTA; and CTAs that one gives to
constexpr int kGateWords = kRows * kUnits * kGates;
constexpr int kPlaceWords = kGroupCtas * (kGivers * kPartWords + (kSumPeers > 1 ? kGateWords : 0));
constexpr int kOutputSlices = kWgmma ? kTiles : 1;  // slices that are given while products go on
// Threads that share out the givers of a piece, and where in shared memory they leave their sums.
constexpr int kPartPieces = kPartWords / kPartPiece;
constexpr int kPartSharers = kPartPieces >= kThreads ? 1 : kThreads / kPartPieces < kGivers ? kThreads / kPartPieces : kGivers;
constexpr int kTotalStride = kPartRows + kPartPiece, kTotalWords = kUnits * kTotalStride;

PD_DEVICE void store_both(unsigned* at, unsigned first, unsigned second) {
#ifdef PD_EMULATE
  store_relaxed(at, first), store_relaxed(at + 1, second);
#else
  asm volatile("st.relaxed.gpu.global.v2.u32 [%0], {%1, %2};" ::"l"(at), "r"(first), "r"(second) : "memory");
#endif
}

struct PartExchange {
  static constexpr bool kIsTogether = true;  // all threads take parts
  unsigned* places;  // two of [kGroupCtas to][kGivers from][kUnits][kPartRows]; after them [kGroupCtas from][kGates][kRows][kUnits]
  float* totals;     // [kPartSharers][kUnits][kTotalStride]
  PlaceEpochs epochs;
  int rank;

  PD_DEVICE PartExchange(const Shared&, void* work, const LaunchScratch& scratch, unsigned cta)
      : totals((float*)work), rank(rank_in_group(cta)) {
    const Index cta_group = cta / kGroupCtas;
    places = scratch.tickets + cta_group * (2 * kPlaceWords);
    epochs.told = scratch.tickets + (Index)kCtaGroups * (2 * kPlaceWords) + cta_group * 2;
  }
  PD_DEVICE void begin() {
    epochs.begin();
    __syncthreads();
  }

  // A gradient of a gate of this CTA's, for its partial-sum peers.
  PD_DEVICE void give_guard(int gate, const CellPlace& place, float gradient, int step) const {
    if constexpr (kSumPeers == 1) return;
    unsigned bits = factor_bits(__float_as_uint(gradient)) & ~1u;
    if constexpr (sizeof(Factor) == 2) bits = stored_bits<Stored>(gradient) << 16;
    store_relaxed(gates_of(rank, step) + (gate * kRows + place.row) * kUnits + place.of_cta, bits | epochs.of(step));
  }
  // Brings the gates of its partial-sum peers into the factors; for all threads.
  PD_DEVICE void take_gates(unsigned char* factors, int step) const {
    if constexpr (kSumPeers == 1) return;
    constexpr int kPieces = kGateWords / 4, kAll = (kSumPeers - 1) * kPieces, kEach = kAll / kThreads + 1;
    constexpr int kAtOnce = kEach <= 6 ? kEach : 4;
    const unsigned epoch = epochs.of(step);
    const int own = rank % kSumPeers;
    const auto giver_of = [&](int piece) { return piece / kPieces + (piece / kPieces >= own ? 1 : 0); };
#pragma unroll 1
    for (int first = threadIdx.x; first < kAll; first += kAtOnce * kThreads) {
      uint4 pieces[kAtOnce];
      const auto ask = [&] {
        unsigned wrong = 0;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          const int piece = first + i * kThreads, from = giver_of(piece);
          if (piece >= kAll) continue;
          pieces[i] = load_relaxed((const uint4*)gates_of(rank - own + from, step) + piece % kPieces);
          wrong |= (pieces[i].x ^ epoch) | (pieces[i].y ^ epoch) | (pieces[i].z ^ epoch) | (pieces[i].w ^ epoch);
        }
        return (wrong & 1) == 0;
      };
      while (!ask()) {}
#pragma unroll
      for (int i = 0; i < kAtOnce; ++i) {
        const int piece = first + i * kThreads, from = giver_of(piece);
        if (piece >= kAll) continue;
        constexpr int kQuads = kUnits / 4;  // of a row and gate
        const int quad = piece % kQuads, row = piece / kQuads % kRows, gate = piece / (kQuads * kRows) % kGates;
        const int to = ((from * kGates + gate) * kQuads + quad) * kRows + row;
        LlWords::store(place_of(factors + LlWords::place_in_vectors(to)), pieces[i]);
      }
    }
  }

  // For all threads: adds up the parts of a step. All of them, whether the step counts for their rows or not: a word
  // that was never looked for may be late by a use of its place, and then has the epoch of this one.
  PD_DEVICE void wait(int step) const {
    const unsigned* const parts = places + step % 2 * kPlaceWords + rank * (kGivers * kPartWords);
    const unsigned epoch = epochs.of(step);
#pragma unroll 1
    for (int i = threadIdx.x; i < kPartSharers * kPartPieces; i += kThreads) {
      const int sharer = i / kPartPieces, piece = i % kPartPieces, unit = piece / (kPartRows / kPartPiece);
      float sum[kPartPiece] = {};
      add_up(sum, parts + piece * kPartPiece, sharer, epoch);
      float* const to = totals + sharer * kTotalWords + piece * kPartPiece + unit * (kTotalStride - kPartRows);
#pragma unroll
      for (int k = 0; k < kPartPiece; ++k) to[k] = sum[k];
    }
    __syncthreads();  // and nobody reads the factors any more
  }
  PD_DEVICE void take(float (&sum)[kCells], int, const CellPlace (&place)[kCells]) const {
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (place[i].at < 0) continue;
      const float* const first = totals + place[i].of_cta * kTotalStride + part_place(place[i].row);
      sum[i] = first[0];
#pragma unroll
      for (int sharer = 1; sharer < kPartSharers; ++sharer) sum[i] += first[sharer * kTotalWords];
    }
  }
  template <int kOutputSlice> PD_DEVICE void give(const float (&sum)[kTiles][kColumnTiles][4], int step) const {
    unsigned* const place = places + step % 2 * kPlaceWords +
                            (rank % kSumPeers * kGivers * kGivers + rank / kSumPeers) * kPartWords;
    const unsigned epoch = epochs.of(step);
    const int lane = threadIdx.x % 32, first_row = threadIdx.x / 32 * (kTiles * 16);
#pragma unroll
    for (int i = kOutputSlice * (kTiles * 2 / kOutputSlices); i < (kOutputSlice + 1) * (kTiles * 2 / kOutputSlices); ++i) {
      const int row = first_row + i * 8 + (kUnits % 8 == 0 ? 0 : lane / 4);  // 8 units of one CTA, or of any
      if (first_row + i * 8 >= kGivers * kUnits) break;
      const int unit = row % kUnits + (kUnits % 8 == 0 ? lane / 4 : 0);
      unsigned* const to = place + row / kUnits * (kGivers * kPartWords) + unit * kPartRows;
#pragma unroll
      for (int tile = 0; tile < kColumnTiles; tile += 2) {
        const auto word = [&](int k) {  // of this tile, and of the next
          return (__float_as_uint(sum[i / 2][tile + k / 2 < kColumnTiles ? tile + k / 2 : tile][i % 2 * 2 + k % 2]) & ~1u) | epoch;
        };
        const int n = tile * 8 + lane % 4 * 2;
        if (tile + 1 < kColumnTiles) {
          store_relaxed((uint4*)(to + tile * 8 + lane % 4 * 4), make_uint4(word(0), word(1), word(2), word(3)));
        } else if constexpr (kPartPiece > 1) {
          if (n < kPartRows) store_both(to + n, word(0), word(1));
        } else {
          if (n < kRows) store_relaxed(to + n, word(0));
          if (n + 1 < kRows) store_relaxed(to + n + 1, word(1));
        }
      }
    }
  }
  PD_DEVICE void end(int steps) const {
    __syncthreads();  // everybody has begun: their last parts have come
    if (rank == 0) epochs.end(steps);
  }

 private:
  PD_DEVICE unsigned* gates_of(int from, int step) const {
    return places + step % 2 * kPlaceWords + kGroupCtas * (kGivers * kPartWords) + from * kGateWords;
  }
  // Adds up the pieces of one of its sharers, in the order of the givers.
  static PD_DEVICE void add_up(float (&sum)[kPartPiece], const unsigned* from, int sharer, unsigned epoch) {
    constexpr int kEach = (kGivers + kPartSharers - 1) / kPartSharers;
    constexpr int kMost = 32 / kPartPiece, kAtOnce = kEach < kMost ? kEach : kMost;  // without waiting for one after the other
    const auto is_there = [&](int i) { return kGivers % kPartSharers == 0 || i * kPartSharers + sharer < kGivers; };
#pragma unroll
    for (int first = 0; first < kEach; first += kAtOnce) {
      unsigned words[kAtOnce][kPartPiece];
      const auto ask = [&] {
        unsigned wrong = 0;
#pragma unroll
        for (int i = 0; i < kAtOnce; ++i) {
          if (first + i < kEach && is_there(first + i)) {
            load(words[i], from + ((first + i) * kPartSharers + sharer) * kPartWords);
          }
        }
#pragma unroll
        for (int i = 0; i < kAtOnce * kPartPiece; ++i) {
          const int giver = first + i / kPartPiece;
          if (giver < kEach && is_there(giver)) wrong |= words[i / kPartPiece][i % kPartPiece] ^ epoch;
        }
        return (wrong & 1) == 0;
      };
      while (!ask()) {}
#pragma unroll
      for (int i = 0; i < kAtOnce * kPartPiece; ++i) {
        const int giver = first + i / kPartPiece;
        if (giver < kEach && is_there(giver)) sum[i % kPartPiece] += __uint_as_float(words[i / kPartPiece][i % kPartPiece] & ~1u);
      }
    }
  }
  static PD_DEVICE void load(unsigned (&words)[1], const unsigned* from) { words[0] = load_relaxed(from); }
  static PD_DEVICE void load(unsigned (&words)[4], const unsigned* from) {
    const uint4 piece = load_relaxed((const uint4*)from);
    words[0] = piece.x, words[1] = piece.y, words[2] = piece.z, words[3] = piece.w;
  }
};
