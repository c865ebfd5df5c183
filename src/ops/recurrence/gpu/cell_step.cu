// SPDX-License-Identifier: Apache-2.0
// One step of a recurrent layer for a few rows (kRows), which is as long as its weights take to come. A cluster has
// kUnits hidden units; each of its CTAs has the columns of one gate of them, of w or of u: rows of at least 64 bytes
// that lie side by side. Threads have pieces of 16 bytes of every kLanes-th row, all loads of kChunk rows under way at
// once. The sums of a CTA's columns go to the CTA that finishes the row's cells.

constexpr int kInPiece = 16 / (int)sizeof(Stored), kPieces = kUnits / kInPiece, kLanes = kThreads / kPieces;
constexpr int kAhead = kChunk / kLanes, kCluster = 2 * kGates, kWarps = kThreads / 32;
constexpr int kRowsOfCta = (kRows + kCluster - 1) / kCluster;  // that it finishes, by a thread a cell

struct StepMemory {
  unsigned long long mbarrier;
  float factors[kRows][kChunk];                 // a chunk of x, or of h
  float of_warps[kWarps][kRows][kUnits];        // each warp's sums over its lanes
  unsigned sums[kRowsOfCta][kCluster][kUnits];  // of the rows that this CTA finishes, from every CTA
};

// This thread's pieces of rows first .. first + kChunk of the weights; `units` of a piece are there. The compiler would
// move loads of constant memory after the next barrier, one by one to where they are used.
PD_DEVICE void load_weights(Pack<Stored, kInPiece> (&piece)[kAhead], const Stored* column, int first, int depth,
                            Index stride, int units) {
#pragma unroll
  for (int i = 0; i < kAhead; ++i) {
    const int k = first + i * kLanes + threadIdx.x / kPieces;
    const Stored* const from = column + k * stride;
    if constexpr (!kIsInPieces) {
      load_each<false>(piece[i], from, 1, k < depth ? units : 0);
    } else if (units > 0 && k < depth) {
      load<false>(piece[i], from);
    } else {
      piece[i] = {};
    }
  }
}

// This thread's elements of first .. first + kChunk of every row, zeros after the last.
using Factors = float[kRows][kChunk / kThreads];
PD_DEVICE void load_factors(Factors& mine, const Stored* from, int first, int depth) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int k = 0; k < kChunk / kThreads; ++k) {
      const int i = first + k * kThreads + threadIdx.x;
      mine[row][k] = i < depth ? load_one<true>(from + (Index)row * depth + i) : 0.0f;
    }
  }
}
PD_DEVICE void stage_factors(float (&factors)[kRows][kChunk], const Factors& mine) {
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int k = 0; k < kChunk / kThreads; ++k) factors[row][k * kThreads + threadIdx.x] = mine[row][k];
  }
}

// Adds up the lanes' sums of each column over all warps, and sends them to the CTA that finishes the row.
PD_DEVICE void send_sums(float (&sum)[kRows][kInPiece], StepMemory& memory, int rank) {
  const int piece = threadIdx.x % kPieces;
#pragma unroll
  for (int row = 0; row < kRows; ++row) {
#pragma unroll
    for (int i = 0; i < kInPiece; ++i) {
#pragma unroll
      for (int other = kPieces; other < 32; other *= 2) sum[row][i] += __shfl_xor_sync(~0u, sum[row][i], other);
      if (threadIdx.x % 32 < kPieces) memory.of_warps[threadIdx.x / 32][row][piece * kInPiece + i] = sum[row][i];
    }
  }
  __syncthreads();
  for (int i = threadIdx.x; i < kRows * kUnits; i += kThreads) {
    const int row = i / kUnits, unit = i % kUnits;
    float total = 0;
#pragma unroll
    for (int warp = 0; warp < kWarps; ++warp) total += memory.of_warps[warp][row][unit];
    send(&memory.sums[row / kCluster][rank][unit], __float_as_uint(total), &memory.mbarrier, row % kCluster);
  }
}

PD_DEVICE void take_step(const Operands& operands, const Stored* x, const Stored* w, const LaunchScratch& scratch,
                         const Sizes& size) {
  PD_DYNAMIC_SHARED(StepMemory, shared);
  StepMemory& memory = *shared;
  const int rank = cluster_rank(), hidden = size.hidden, is_of_state = rank / kGates, gate = rank % kGates;
  const int depth = is_of_state ? hidden : size.features, first_unit = blockIdx.x / kCluster * kUnits;
  const int unit = first_unit + threadIdx.x % kPieces * kInPiece;
  const Stored* const column = (is_of_state ? operands.u : w) + gate * hidden + unit;
  const Stored* const factors = is_of_state ? operands.h0 : x;
  const Index stride = (Index)kGates * hidden;
  if (threadIdx.x == 0) mbarrier_init(&memory.mbarrier, 1);

  Pack<Stored, kInPiece> piece[kAhead];
  Factors factor_of;
  if constexpr (kUnmodifiedByPrevious) load_weights(piece, column, 0, depth, stride, hidden - unit);
  grid_dependency_wait();
  if (threadIdx.x == 0) leave_stamp(scratch);
  if (is_called_off(scratch)) return;
  cluster_arrive();
  load_factors(factor_of, factors, 0, depth);
  if constexpr (!kUnmodifiedByPrevious) load_weights(piece, column, 0, depth, stride, hidden - unit);
  const int mine = (kRows - rank + kCluster - 1) / kCluster;  // rows that this CTA finishes: rank, rank + kCluster ..
  const int cell_row = threadIdx.x / kUnits, of_cta = threadIdx.x % kUnits;
  const CellPlace place{(Index)(cell_row * kCluster + rank) * hidden + first_unit + of_cta, first_unit + of_cta};
  const bool finishes = cell_row < mine && place.unit < hidden;
  Cell cell;
  float from_x[kGates], from_h[kGates];
  if (finishes) {  // asked for now, it is there when the sums are
    cell.start(operands, place);
#pragma unroll
    for (int k = 0; k < kGates; ++k) from_x[k] = load_one<true>(operands.bias + k * hidden + place.unit);
  }
  stage_factors(memory.factors, factor_of);
  __syncthreads();

  float sum[kRows][kInPiece];
#pragma unroll
  for (int i = 0; i < kRows * kInPiece; ++i) sum[i / kInPiece][i % kInPiece] = 0;
  for (int first = 0;;) {
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
#pragma unroll
      for (int row = 0; row < kRows; ++row) {
        const float factor = memory.factors[row][i * kLanes + threadIdx.x / kPieces];
#pragma unroll
        for (int k = 0; k < kInPiece; ++k) sum[row][k] += factor * piece[i].get(k);
      }
    }
    first += kChunk;
    if (first >= depth) break;
    load_factors(factor_of, factors, first, depth);
    load_weights(piece, column, first, depth, stride, hidden - unit);
    __syncthreads();
    stage_factors(memory.factors, factor_of);
      __syncthreads();
  }

  cluster_wait();  // all mbarriers are there
  if (threadIdx.x == 0 && mine > 0) mbarrier_arrive_expect_tx(&memory.mbarrier, mine * kCluster * kUnits * 4);
  send_sums(sum, memory, rank);
  if (!finishes) return;
  while (!mbarrier_try_wait(&memory.mbarrier, 0)) {}
#pragma unroll
  for (int k = 0; k < kGates; ++k) {
    from_x[k] += __uint_as_float(memory.sums[cell_row][k][of_cta]);
    from_h[k] = __uint_as_float(memory.sums[cell_row][kGates + k][of_cta]);
  }
  cell.advance(from_x, from_h);
  cell.end(operands, place.at);
}
