// SPDX-License-Identifier: Apache-2.0
// The products of a recurrence's forward direction in f32 for few rows of the batch: a warp's lanes share out K, and
// nothing is rounded; weights of 16 bits are made f32 at the start. What a lane has of a quad, four rows of the matrix,
// and 4 elements along K is a block of 16 weights; the first blocks are kept in registers, as many as there is room for,
// the others in shared memory. Of at most 4 rows the sums of a cell end in its own thread (kKeepsSums), which saves two
// barriers a step; otherwise in shared memory, as quads by the gates of a unit leave lanes without a cell.

constexpr int kLanePieces = (kDepthPieces + 31) / 32;  // of 4 elements
constexpr int kQuadRows = kQuadUnits == 1 ? kGates : 4;  // that have weights

struct ForwardWeights {
  static constexpr int kCount = kQuads * kLanePieces, kHere = kCount < kKept ? kCount : kKept;
  float words[kHere][4][4];  // [block][row][element]
  float4* rest;
  int lane, own;  // where in a state this lane's first piece lies
  Place first;    // where it lies of the state that is multiplied next

  PD_DEVICE void bring(const Shared& shared, const Stored* u, int rank, int hidden) {
    const int warp = threadIdx.x / 32;
    lane = kept_known((int)threadIdx.x % 32);
    own = kept_known((lane < kDepthPieces ? lane : 0) * (kRows * 16));
    rest = (float4*)shared.weights + warp * ((kCount - kHere) * 4 * 32) + lane;
#pragma unroll
    for (int begin = 0; begin < kLanePieces; begin += kStaged) {
      if (begin > 0) __syncthreads();
      stage((float*)shared.work, u, rank, begin * 128, hidden);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kQuads * kStaged; ++i) {
        const int quad = i / kStaged, piece = begin + i % kStaged;
        if (piece < kLanePieces) put(quad * kLanePieces + piece, (const float*)shared.work + (i % kStaged * 32 + lane) * 4);
      }
    }
    __syncthreads();
  }
  PD_DEVICE void aim(unsigned char* state) { first = place_of(state + own); }
  // Adds the product by row k of the block's quad.
  PD_DEVICE void add_product(float& sum, int block, int k, float4 h) const {
    if (block < kHere) {
      const float (&w)[4] = words[block < kHere ? block : 0][k];
      sum += w[0] * h.x, sum += w[1] * h.y, sum += w[2] * h.z, sum += w[3] * h.w;
    } else {
      const float4 w = rest[((block - kHere) * 4 + k) * 32];
      sum += w.x * h.x, sum += w.y * h.y, sum += w.z * h.z, sum += w.w * h.w;
    }
  }
  // The sums of this thread's cells.
  template <class Await>
  PD_DEVICE bool multiply(float (&of_cells)[kCells][kLaneGates], float* sums, const unsigned char*, int thread,
                          const CellPlace (&place)[kCells], const Await&) const {
    float mine[kQuads];  // of row lane % 8, and of row lane / 8 of the quad
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) mine[quad] = 0;
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      uint4 h[kLanePieces];
#pragma unroll
      for (int piece = 0; piece < kLanePieces; ++piece) {
        const bool is_inside = (piece + 1) * 32 <= kDepthPieces || piece * 32 + lane < kDepthPieces;
        // Behind the last weights are zero.
        h[piece] = load_piece(first + (is_inside ? (piece * 32 * kRows + n) * 16 : n * 16));
      }
      float part[kQuads][4];
#pragma unroll
      for (int i = 0; i < kQuads * 4; ++i) part[i / 4][i % 4] = 0;
#pragma unroll
      for (int piece = 0; piece < kLanePieces; ++piece) {
        const float4 of_piece = {__uint_as_float(h[piece].x), __uint_as_float(h[piece].y), __uint_as_float(h[piece].z),
                                 __uint_as_float(h[piece].w)};
#pragma unroll
        for (int i = 0; i < kQuads * 4; ++i) {
          if (i % 4 < kQuadRows) add_product(part[i / 4][i % 4], i / 4 * kLanePieces + piece, i % 4, of_piece);
        }
      }
      // Four sums over 32 lanes: first each half of the lanes gives away two of them, then each quarter one.
#pragma unroll
      for (int quad = 0; quad < kQuads; ++quad) {
        const bool is_high = lane & 16, is_odd = lane & 8;
        float a = is_high ? part[quad][2] : part[quad][0], b = is_high ? part[quad][3] : part[quad][1];
        a += __shfl_xor_sync(~0u, is_high ? part[quad][0] : part[quad][2], 16);
        b += __shfl_xor_sync(~0u, is_high ? part[quad][1] : part[quad][3], 16);
        float total = is_odd ? b : a;
        total += __shfl_xor_sync(~0u, is_odd ? a : b, 8);
        total += __shfl_xor_sync(~0u, total, 4);
        total += __shfl_xor_sync(~0u, total, 2);
        total += __shfl_xor_sync(~0u, total, 1);
        if constexpr (kKeepsSums) {
          if (lane % 8 == n) mine[quad] = total;
        } else {
          const int unit = unit_of(quad, lane / 8), gate = gate_of(lane / 8);
          if (lane % 8 == 0 && gate < kGates && unit < kUnits) sums[n * kSumStride + gate * kUnits + unit] = total;
        }
      }
    }
    if constexpr (!kKeepsSums) return gather_sums(of_cells, sums, thread, place);
#pragma unroll
    for (int cell = 0; cell < kCells; ++cell) of_cells[cell][0] = mine[cell < kQuads ? cell : 0];
    return true;
  }

 private:
  // Of a quad's row.
  static PD_DEVICE int gate_of(int k) { return kQuadUnits == 1 ? k : 0; }
  static PD_DEVICE int unit_of(int quad, int k) {  // of the CTA
    return threadIdx.x / 32 * kWarpUnits + quad * kQuadUnits + (kQuadUnits == 1 ? 0 : k);
  }
  // Rows of u are staged as columns, one behind the other for each row of the matrix: lanes get 4 elements along K at once.
  // What lanes store, each 4 units of a row of u, goes to different banks.
  static constexpr int kRowsAtOnce = kStaged * 128, kStride = kRowsAtOnce + 4;
  PD_DEVICE void stage(float* to, const Stored* u, int rank, int first, int hidden) const {
    constexpr unsigned kPieces = kUnits / 4, kAll = kGates * kRowsAtOnce * kPieces;
    constexpr int kTurns = (kAll + kThreads - 1) / kThreads, kAhead = kTurns < 32 ? kTurns : 32;
#pragma unroll 1
    for (unsigned begin = threadIdx.x; begin < kAll; begin += kAhead * kThreads) {
      Pack<Stored, 4> piece[kAhead];
      const auto place = [&](int i, int* row, int* gate, int* unit) {
        const unsigned n = begin + i * kThreads;
        *row = n / kPieces % kRowsAtOnce, *gate = n / (kPieces * kRowsAtOnce), *unit = n % kPieces * 4;
        return n < kAll;
      };
      // Loads that no branch stands in front of: see CellPlace::to_read().
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        int row, gate, unit;
        const bool is_inside = place(i, &row, &gate, &unit) && first + row < hidden;
        const int units = is_inside ? hidden - (rank * kUnits + unit) : 0;
        const Stored* const from = u + ((Index)(first + row) * (kGates * hidden) + gate * hidden + rank * kUnits + unit);
        if constexpr (kIsInPieces) load<true>(piece[i], units > 0 ? from : u);
        else load_each<true>(piece[i], from, 1, units < 4 ? units : 4);
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        int row, gate, unit;
        if (!place(i, &row, &gate, &unit)) continue;
        const bool is_there = first + row < hidden && rank * kUnits + unit < hidden;
#pragma unroll
        for (int k = 0; k < 4; ++k) to[(gate * kUnits + unit + k) * kStride + row] = is_there ? piece[i].get(k) : 0.0f;
      }
    }
  }
  // A block, of which the lane's elements of the first row of the matrix are at `staged`.
  PD_DEVICE void put(int block, const float* staged) {
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      const int unit = unit_of(block / kLanePieces, k);
      const float4 row = *(const float4*)(staged + (gate_of(k) * kUnits + (unit < kUnits ? unit : 0)) * kStride);
      if (block < kHere) {
        float (&to)[4] = words[block < kHere ? block : 0][k];
        to[0] = row.x, to[1] = row.y, to[2] = row.z, to[3] = row.w;
      } else {
        rest[((block - kHere) * 4 + k) * 32] = row;
      }
    }
  }
};
