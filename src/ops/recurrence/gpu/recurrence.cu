// SPDX-License-Identifier: Apache-2.0
// The parts that both directions of a recurrence over time share. A CTA group of kGroupCtas CTAs has kRows rows of the
// batch for all steps, and each CTA kUnits of the hidden units: their weights stay in its registers and its shared
// memory from the first step to the last. Vectors that the tensor cores multiply by them lie in pieces of 16 bytes,
// piece p of row n at place p * kRows + n, so the pieces that a CTA makes for the others lie side by side. How they get
// there: recurrence_cluster.cu, recurrence_memory.cu. A cell is one unit of one row; a thread has kCells (CellPlace).

// Weights are multiplied by Factors: elements as stored, or f32 where lanes multiply.
constexpr int kInPiece = 16 / (int)sizeof(Factor);       // elements
constexpr int kInStep = 2 * kInPiece;                    // elements along K that are multiplied at once
constexpr int kHidden = kGroupCtas * kUnits;                  // the elements after the last unit are zero
// Forward, CTAs may share out K (recurrence_sum_peers.cu): each has a part of the state, and multiplies it for all
// units of its partial-sum peers and its own.
constexpr bool kSharesState = kSingleBuffered && kSumPeers > 1;
constexpr int kMatrixUnits = kSharesState ? kSumPeers * kUnits : kUnits;
constexpr int kStateUnits = kSharesState ? kHidden / kSumPeers : kHidden;
// Where lanes multiply (recurrence_simt.cu), a warp has quads: four rows of its matrix, the gates of one unit or of
// four.
constexpr int kQuadUnits = kGates == 1 ? 4 : 1;
constexpr int kQuads = (kUnits + kWarps * kQuadUnits - 1) / (kWarps * kQuadUnits);
// Where sums are kept, a warp has all gates of units side by side: of four units a tile of the tensor cores, or of its
// quads. A quad of gates: the lanes that have its sums apply the activations, each its own, and all of them finish the
// cell. Of few rows that exchange through memory, lanes that fetch the sums out of shared memory are such quads too.
constexpr bool kHasGateLanes = kGates > 1 && (kKeepsSums ? kSimtFma : kLlProtocol);
// Where the tensor cores leave one row's sums in registers, a lane has two gates of a cell, and another lane the
// others.
constexpr bool kHasGatePairs = kKeepsSums && !kSimtFma && kRows == 1;
constexpr int kLaneGates = kHasGateLanes ? 1 : kHasGatePairs ? 2 : kGates;  // of a thread's cell
// Threads that share units: all of them, or those of a warpgroup that has its own (kUnitsPerWarpgroup).
constexpr int kHalves = kUnitsPerWarpgroup ? 2 : 1, kTogether = kThreads / kHalves, kOwnUnits = kUnits / kHalves;
constexpr int kCellsAtOnce = kHasGateLanes ? kWarps * 8 : kTogether;
constexpr int kSharedCells = (kOwnUnits * kRows + kCellsAtOnce - 1) / kCellsAtOnce;
constexpr int kCells = !kKeepsSums ? kSharedCells : kSimtFma ? kQuads : kTiles;
constexpr int kWarpUnits = kSimtFma ? kQuads * kQuadUnits : kTiles * 4;
constexpr bool kGivesEach = (kKeepsSums || kLlProtocol) && !kIsBulk;  // a warp gives its own cells' results
constexpr int kColumnTiles = (kRows + 7) / 8;
constexpr int kStateBytes = kDepthPieces * kRows * 16;                // forward: the vectors of one step,
constexpr int kSliceBytes = kUnits / kInPiece * kRows * 16;           // and the part of them that a CTA makes
// Threads that have cells, whole warps; all multiply.
constexpr int kWarpCells = kHasGateLanes ? 8 : 32;
constexpr int kFinishers =
    kIsBulk || kKeepsSums || kSharesState || kCells > 1 ? kThreads : (kUnits * kRows + kWarpCells - 1) / kWarpCells * 32;

// Makes a stored value a factor of the products: tensor cores take f32 as TF32.
PD_DEVICE unsigned factor_bits(unsigned bits) {
  if constexpr (sizeof(Stored) == 4 && !kSimtFma) return round_to_tf32(bits);
  else return bits;
}
// Element `element` of row `row`'s vector.
PD_DEVICE void store_factor(unsigned char* vectors, int element, int row, float value) {
  unsigned char* const at = vectors + (element / kInPiece * kRows + row) * 16 + element % kInPiece * sizeof(Factor);
  if constexpr (sizeof(Factor) == 4) *(unsigned*)at = factor_bits(__float_as_uint(value));
  else *(unsigned short*)at = (unsigned short)stored_bits<Stored>(value);
}

// Forward, where shared memory has [kParts][kRows][kSumStride] sums: those of all parts of K.
PD_DEVICE float sum_of_parts(const float* first) {
  float total = first[0];
#pragma unroll
  for (int part = 1; part < kParts; ++part) total += first[part * (kRows * kSumStride)];
  return total;
}

// Called after stores of factors, in front of the barrier that the products wait for.
PD_DEVICE void factors_stored() {
  if constexpr (kWgmma) copies_follow_stores();
}

// Where sums are kept, columns of u are staged as the rows of a tile: four units of a gate, the same of the next one ..
constexpr int kStageGates = kKeepsSums ? 4 : kGates, kStagePiece = kKeepsSums ? 4 : kInPiece;
constexpr int kStageStride = kStageGates * kMatrixUnits * (int)sizeof(Stored) + 16;  // bytes; rows begin in different banks
PD_DEVICE int staged_column(int gate, int unit) {
  return kKeepsSums ? unit / 4 * 16 + gate * 4 + unit % 4 : gate * kMatrixUnits + unit;
}

// Brings rows of u into shared memory, of each row the part of the units from `of` * kMatrixUnits on. It takes kGroups
// groups of rows, kGroupRows apart, kAtOnce each from the group's row `first` on. All threads call it; the rows are
// there after a barrier.
template <int kGroups, int kGroupRows, int kAtOnce>
PD_DEVICE void stage_weights(unsigned char* stage, const Stored* u, int of, int first, int hidden) {
  constexpr int kPiece = kIsInPieces ? kStagePiece : 1, kPieces = kMatrixUnits / kPiece, kLines = kGroups * kAtOnce;
  for (int i = threadIdx.x; i < kLines * kStageGates * kPieces; i += kThreads) {
    const int piece = i % kPieces, gate = i / kPieces % kStageGates, line = i / (kPieces * kStageGates);
    const int row = line / kAtOnce * kGroupRows + first + line % kAtOnce, unit = of * kMatrixUnits + piece * kPiece;
    const bool is_there = row < hidden && unit < hidden && gate < kGates;
    Stored* const to = (Stored*)(stage + line * kStageStride) + staged_column(gate, piece * kPiece);
    const Stored* const from = u + (is_there ? (Index)row * (kGates * hidden) + gate * hidden + unit : 0);
    if constexpr (kIsInPieces) copy_beside<kPiece * (int)sizeof(Stored)>(to, from, is_there);
    else *to = is_there ? *from : Stored{};
  }
  for (int i = threadIdx.x; i < kLines; i += kThreads) {
    *(uint4*)(stage + (i + 1) * kStageStride - 16) = make_uint4(0, 0, 0, 0);
  }
  copies_end_group();
  copies_wait<0>();
}

// The rows of the batch that a CTA group has at a time, and how many steps of each count. Sorted by their lengths,
// longest first, so that a CTA group may end early; of the sorted rows, `batch_tile` says which kRows.
struct CtaGroupRows {
  int row[kRows], length[kRows];

  PD_DEVICE void find(const int* lengths, const Sizes& size, int batch_tile) {
    const int batch = size.batch, steps = size.steps, first = batch_tile * kRows;
    for (int n = threadIdx.x; n < kRows; n += kThreads) {
      const bool is_there = first + n < batch;
      row[n] = is_there ? first + n : -1, length[n] = is_there ? steps : 0;
    }
    if constexpr (kHasLengths) {
      __syncthreads();
      for (int n = threadIdx.x; n < batch; n += kThreads) {
        const int mine = length_of(lengths, n, steps), place = place_of(lengths, n, mine, size);
        if (place >= first && place < first + kRows) row[place - first] = n, length[place - first] = mine;
      }
    }
    __syncthreads();
  }
  static PD_DEVICE int length_of(const int* lengths, int row, int steps) {
    const int length = lengths[row];
    return length < 0 ? 0 : length > steps ? steps : length;
  }
  // The row's place among the sorted ones.
  static PD_DEVICE int place_of(const int* lengths, int row, int length, const Sizes& size) {
    const int batch = size.batch, steps = size.steps;
    int place = 0;
    for (int other = 0; other < batch; ++other) {
      const int theirs = length_of(lengths, other, steps);
      place += theirs > length || (theirs == length && other < row);
    }
    return place;
  }
};

// Where things lie in shared memory. While the weights come, `work` is theirs too.
struct Shared {
  unsigned long long* mbarriers;  // two, of each half of the units
  CtaGroupRows* rows;
  uint4* weights;  // those that registers have no room for
  unsigned char* work;

  PD_DEVICE explicit Shared(unsigned char* memory) {
    mbarriers = (unsigned long long*)memory;
    rows = (CtaGroupRows*)(memory + 16 * kHalves);
    weights = (uint4*)(memory + (16 * kHalves + sizeof(CtaGroupRows) + 15) / 16 * 16);
    work = (unsigned char*)(weights + kWarps * kRestFragments * 32);
  }
};

// Where a step's elements of [steps, batch, hidden] begin, with a start before or after: the entry before it, its
// own, the one after it; and the state that it began with, which is not before it where the reverse direction enters a
// row.
struct StepElements {
  Index before, here, after, began;
};

// Kept in a register rather than found out again every step.
PD_DEVICE int kept_known(int value) {
#ifndef PD_EMULATE
  asm volatile("" : "+r"(value));
#endif
  return value;
}
template <class T> PD_DEVICE T* kept_known(T* value) {
#ifndef PD_EMULATE
  asm volatile("" : "+l"(value));
#endif
  return value;
}
// Has a value of a gradient's cell computed while lanes wait for other CTAs' results rather than after that wait.
PD_DEVICE float prepared(float value) {
#ifndef PD_EMULATE
  if constexpr (kSimtFma) asm volatile("" : "+f"(value));
#endif
  return value;
}

// A place in shared memory, computed here and now: else the compiler does so where it is needed, while others wait for
// the result.
#ifdef PD_EMULATE
using Place = unsigned char*;
template <class T> PD_DEVICE Place place_of(T* at) { return (Place)at; }
template <class T> PD_DEVICE Place place_in_shared(T* at) { return (Place)at; }
PD_DEVICE uint4 load_piece(Place at) { return *(const uint4*)at; }
PD_DEVICE void store_piece(Place at, uint4 piece) { *(uint4*)at = piece; }
PD_DEVICE void store_piece(Place at, uint2 piece) { *(uint2*)at = piece; }
PD_DEVICE float load_word(Place at) { return *(const float*)at; }
PD_DEVICE void store_word(Place at, float word) { *(float*)at = word; }
#else
using Place = unsigned;
template <class T> PD_DEVICE Place place_in_shared(T* at) { return address_in_shared(at); }
template <class T> PD_DEVICE Place place_of(T* at) {
  Place place = address_in_shared(at);
  asm volatile("" : "+r"(place));
  return place;
}
PD_DEVICE uint4 load_piece(Place at) {
  uint4 piece;
  asm volatile("ld.shared.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(piece.x), "=r"(piece.y), "=r"(piece.z), "=r"(piece.w) : "r"(at) : "memory");
  return piece;
}
PD_DEVICE void store_piece(Place at, uint4 piece) {
  asm volatile("st.shared.v4.u32 [%0], {%1, %2, %3, %4};" ::"r"(at), "r"(piece.x), "r"(piece.y), "r"(piece.z),
               "r"(piece.w)
               : "memory");
}
PD_DEVICE void store_piece(Place at, uint2 piece) {
  asm volatile("st.shared.v2.u32 [%0], {%1, %2};" ::"r"(at), "r"(piece.x), "r"(piece.y) : "memory");
}
PD_DEVICE float load_word(Place at) {
  float word;
  asm volatile("ld.shared.f32 %0, [%1];" : "=f"(word) : "r"(at) : "memory");
  return word;
}
PD_DEVICE void store_word(Place at, float word) {
  asm volatile("st.shared.f32 [%0], %1;" ::"r"(at), "f"(word) : "memory");
}
#endif

// Where a thread's cell is.
struct CellPlace {
  Index at = -1;   // of its row and unit in [batch, hidden]; -1: there is none
  int unit;        // of the layer
  int of_cta;      // unit of the CTA
  int row;         // of the CTA group; kRows or more: no place for one
  int length = 0;  // steps that count
  bool finishes = false;  // whether the thread finishes a cell that is there, and stores its results

  PD_DEVICE void find(int i, const CtaGroupRows& rows, int rank, int hidden) {
    if constexpr (kKeepsSums) {  // where their sums are
      const int lane = threadIdx.x % 32, first = threadIdx.x / 32 * kWarpUnits;
      if constexpr (kSimtFma) row = lane % 8, of_cta = first + i * kQuadUnits + lane / 8 % kQuadUnits;
      else row = lane % 4 * 2 + (kHasGatePairs ? 0 : lane / 16), of_cta = first + i * 4 + lane / 4 % 4;
      if (of_cta >= kUnits) row = kRows;
    } else {  // units side by side
      const int in_warp = kHasGateLanes ? threadIdx.x / 32 * 8 + threadIdx.x % 8 : threadIdx.x % kTogether;
      const int cell = in_warp + i * kCellsAtOnce;
      row = cell / kOwnUnits, of_cta = threadIdx.x / kTogether * kOwnUnits + cell % kOwnUnits;
    }
    row = kept_known(row), of_cta = kept_known(of_cta), unit = kept_known(rank * kUnits + of_cta);
    if (row >= kRows || rows.row[row] < 0 || unit >= hidden) return;
    at = (Index)rows.row[row] * hidden + unit, length = rows.length[row];
    finishes = gate_of(0) == 0;
  }
  // The k-th of those that this thread has of its cell.
  static PD_DEVICE int gate_of(int k) {
    const int lane = threadIdx.x % 32;
    return kHasGateLanes ? lane / 8 : kHasGatePairs ? lane / 16 + 2 * k : k;
  }
  // The lane of a warp whose cell has unit `unit` of row `row`.
  static PD_DEVICE int lane_of(int unit, int row) {
    if constexpr (!kSimtFma) return (row % 2 * 4 + unit) * 4 + row / 2;
    else return unit * 8 + row;
  }
  // The CTA's first one.
  PD_DEVICE void find_first(const CtaGroupRows& rows, int rank, int hidden) {
    unit = rank * kUnits, at = (Index)rows.row[0] * hidden + unit;
  }
  // This place, or where there is none the CTA's first one, for loads that no branch may stand in front of: a load
  // inside a branch is waited for at the branch's end. (At a place that all CTAs read they would wait for each other.)
  PD_DEVICE CellPlace to_read(const CellPlace& first) const {
    CellPlace place = *this;
    place.at = at < 0 ? first.at : at, place.unit = at < 0 ? first.unit : unit;
    return place;
  }
  // The first gate's place in [batch, gates, hidden].
  PD_DEVICE Index in_gates(int gates) const { return at + (at - unit) * (gates - 1); }
};
