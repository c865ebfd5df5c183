// SPDX-License-Identifier: Apache-2.0
// Forward, where many rows of a state would take the shared memory of weights: kSumPeers CTAs of adjacent ranks divide
// K. Each has its part of the state, multiplies it for the units of all of them, and sends each of the others the
// partial sums for its units. The gates of a cell are a piece, and the lowest bit of each word is an epoch that changes
// with each use of its buffer. Two buffers are used in turn: a CTA that sends sums of step s + 2 has a state from CTAs
// whose partial-sum peers all had the state before, for which they needed this CTA's sums of step s.
struct PeerSums {
  static constexpr int kOthers = kSharesState ? kSumPeers - 1 : 1, kCellCount = kRows * kUnits;
  static constexpr int kPlacePieces = kGroupCtas * kOthers * kCellCount, kCtaGroupPieces = kSharesState ? 2 * kPlacePieces : 0;
  static constexpr int kEpochWords = kSharesState ? kGroupCtas / kSumPeers * 2 : 0;  // words
  uint4* places;     // two of [kGroupCtas to][kOthers from][kCellCount]
  PlaceEpochs epochs;  // of these partial-sum peers
  int rank, own;

  PD_DEVICE void find(uint4* pieces, unsigned* told, int of_cta_group) {
    places = pieces, rank = of_cta_group, own = of_cta_group % kSumPeers;
    epochs.told = told + of_cta_group / kSumPeers * 2;
  }
  PD_DEVICE void ask() {
    if constexpr (kSharesState) epochs.begin();
  }
  // Adds the sums of this CTA's products, `sums`, and those of its partial-sum peers; for all threads, after a
  // barrier.
  PD_DEVICE void share(float (&of_cells)[kCells][kLaneGates], const float* sums, const CellPlace (&place)[kCells],
                       int step) const {
    const unsigned epoch = epochs.of(step);
    uint4* const of_step = places + step % 2 * kPlacePieces;
#pragma unroll
    for (int other = 1; other <= kOthers; ++other) {
      uint4* const to = of_step + ((rank ^ other) * kOthers + other - 1) * kCellCount;
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
        if (!has_cell(i)) continue;
        unsigned words[4] = {epoch, epoch, epoch, epoch};
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          words[gate] = (__float_as_uint(sum_of(sums, place[i], gate, own ^ other)) & ~1u) | epoch;
        }
        store_relaxed(to + threadIdx.x + i * kThreads, make_uint4(words[0], words[1], words[2], words[3]));
      }
    }
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        of_cells[i][gate < kLaneGates ? gate : 0] = has_cell(i) ? sum_of(sums, place[i], gate, own) : 0.0f;
      }
    }
    take(of_cells, of_step + rank * (kOthers * kCellCount), epoch);
  }
  // After so many steps; the first of them had sums of all, which have begun.
  PD_DEVICE void end(int steps) const {
    if (own == 0) epochs.end(steps);
  }

 private:
  static PD_DEVICE bool has_cell(int i) { return (int)threadIdx.x + i * kThreads < kCellCount; }
  static PD_DEVICE float sum_of(const float* sums, const CellPlace& place, int gate, int sum_peer) {
    return sum_of_parts(sums + place.row * kSumStride + gate * kMatrixUnits + sum_peer * kUnits + place.of_cta);
  }
  PD_DEVICE void take(float (&of_cells)[kCells][kLaneGates], const uint4* from, unsigned epoch) const {
    uint4 pieces[kCells][kOthers];
    const auto ask = [&] {
      unsigned wrong = 0;
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
#pragma unroll
        for (int other = 0; other < kOthers; ++other) {
          if (has_cell(i)) pieces[i][other] = load_relaxed(from + other * kCellCount + threadIdx.x + i * kThreads);
        }
      }
#pragma unroll
      for (int i = 0; i < kCells; ++i) {
#pragma unroll
        for (int other = 0; other < kOthers; ++other) {
          const uint4& piece = pieces[i][other];
          if (has_cell(i)) wrong |= (piece.x ^ epoch) | (piece.y ^ epoch) | (piece.z ^ epoch) | (piece.w ^ epoch);
        }
      }
      return (wrong & 1) == 0;
    };
    while (!ask()) {}
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      if (!has_cell(i)) continue;
#pragma unroll
      for (int other = 0; other < kOthers; ++other) {
        const unsigned words[4] = {pieces[i][other].x, pieces[i][other].y, pieces[i][other].z, pieces[i][other].w};
#pragma unroll
        for (int gate = 0; gate < kGates; ++gate) {
          of_cells[i][gate < kLaneGates ? gate : 0] += __uint_as_float(words[gate] & ~1u);
        }
      }
    }
  }
};
