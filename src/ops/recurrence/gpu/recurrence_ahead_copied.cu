// SPDX-License-Identifier: Apache-2.0
// The input's values of the next step, copied into shared memory ahead (kCopiesAhead), where the compiler cannot take
// loads to be waited for before the state is there. They are pieces of 16 bytes of a row's gates, of this CTA's units,
// of which each thread that finishes has some.

struct InputAhead {
  static constexpr int kPieces = kOwnUnits / kInPiece, kAll = kRows * kGates * kPieces;
  static constexpr int kSharers = kUnitsPerWarpgroup ? kTogether : kFinishers;
  static constexpr int kTurns = kCopiesAhead ? (kAll + kSharers - 1) / kSharers : 1;
  Stored* to;
  Index from[kTurns];  // in the input of a step; less than 0 where there is no row or unit
  int own[kCells];     // where in the copies this thread's cells have their first gate

  PD_DEVICE void bring(const Shared&, const Operands&, int) const {}
  PD_DEVICE void turn() const {}
  // For rows that begin, and where copies lie.
  PD_DEVICE void find(unsigned char* copies, const CtaGroupRows& rows, int rank, const CellPlace (&place)[kCells]) {
    to = (Stored*)copies;
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = threadIdx.x % kSharers + turn * kSharers, gate = i / kPieces % kGates, n = i / (kPieces * kGates);
      const int unit = rank * kUnits + threadIdx.x / kSharers * kOwnUnits + i % kPieces * kInPiece;
      const int row = n < kRows ? rows.row[n] : -1;
      from[turn] = row < 0 || unit >= kLayerHidden ? -1 : ((Index)row * kGates + gate) * kLayerHidden + unit;
    }
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      own[i] = kept_known((place[i].row < kRows ? place[i].row : 0) * (kGates * kUnits) + place[i].of_cta);
    }
  }
  template <class TimeOf>
  PD_DEVICE void start(const Operands& operands, const Sizes& size, int steps, const TimeOf& time_of) {
    next(operands, size, 0, steps, time_of);
  }
  // For step `step`, after the one before it. Who reads it waits for its own copies, and then for all threads.
  template <class TimeOf>
  PD_DEVICE void next(const Operands& operands, const Sizes& size, int step, int steps, const TimeOf& time_of) {
    if (step >= steps) return;
    const Stored* const xw = operands.xw + time_of(step) * ((Index)size.batch * kLayerHidden * kGates);
#pragma unroll
    for (int turn = 0; turn < kTurns; ++turn) {
      const int i = threadIdx.x % kSharers + turn * kSharers;
      const int at = i / kPieces * kUnits + threadIdx.x / kSharers * kOwnUnits + i % kPieces * kInPiece;
      const bool is_there = from[turn] >= 0;
      if (threadIdx.x < kFinishers && i < kAll) copy_beside<16>(to + at, xw + (is_there ? from[turn] : 0), is_there);
    }
    copies_end_group();
  }
  // Waits for a step's values in front of the barrier that all threads wait at.
  PD_DEVICE static void are_there() {
    if constexpr (kCopiesAhead) copies_wait<0>();
  }
  PD_DEVICE float get(int cell, int gate, int) const { return load_one<false>(to + own[cell] + gate * kUnits); }
};
