// SPDX-License-Identifier: Apache-2.0
// The products of a recurrence's forward direction in f32 for few rows of the batch: a warp's lanes share out K, and
// nothing is rounded; weights of 16 bits are made f32 at the start. What a lane has of a quad, four rows of the matrix, and 4 elements along K is a block of 16 weights;
// the first blocks are kept in registers, as many as there is room for, the others in shared memory. Of at most 4 rows the
// sums of a cell end in its own thread (kKeepsSums), which saves two barriers a step; otherwise in shared memory, as quads
// by the gates of a unit leave lanes without a cell.

constexpr int kLanePieces = (kDepthPieces + 31) / 32;  // of 4 elements

struct ForwardWeights {
  static constexpr int kCount = kQuads * kLanePieces, kHere = kCount < kKept ? kCount : kKept;
  float words[kHere][4][4];  // [block][row][element]
  float4* rest;
  int own;  // where this lane's first piece of the state lies

  PD_DEVICE void bring(const Shared& shared, const Stored* u, int rank, int hidden) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    own = kept_known(lane * (kRows * 16));
    rest = (float4*)shared.weights + warp * ((kCount - kHere) * 4 * 32) + lane;
#pragma unroll
    for (int begin = 0; begin < kLanePieces; begin += kStaged) {
      if (begin > 0) __syncthreads();
      stage(shared.work, u, rank, begin * 128, hidden);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kQuads * kStaged; ++i) {
        const int quad = i / kStaged, piece = begin + i % kStaged;
        if (piece < kLanePieces) put(quad * kLanePieces + piece, shared.work, (i % kStaged * 32 + lane) * 4);
      }
    }
    __syncthreads();
  }
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
  PD_DEVICE bool multiply(float (&of_cells)[kCells][kLaneGates], float* sums, const unsigned char* vectors,
                          const CellPlace (&place)[kCells]) const {
    const int lane = threadIdx.x % 32;
    float mine[kQuads];  // of row lane % 8, and of row lane / 8 of the quad
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) mine[quad] = 0;
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      float part[kQuads][4];
#pragma unroll
      for (int i = 0; i < kQuads * 4; ++i) part[i / 4][i % 4] = 0;
#pragma unroll
      for (int piece = 0; piece < kLanePieces; ++piece) {
        const bool is_inside = (piece + 1) * 32 <= kDepthPieces || piece * 32 + lane < kDepthPieces;
        const int at = is_inside ? own + (piece * 32 * kRows + n) * 16 : n * 16;  // behind the last, weights are zero
        const float4 h = *(const float4*)(vectors + at);
#pragma unroll
        for (int i = 0; i < kQuads * 4; ++i) add_product(part[i / 4][i % 4], i / 4 * kLanePieces + piece, i % 4, h);
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
    if constexpr (!kKeepsSums) return gather_sums(of_cells, sums, place);
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
  // Rows of u from the first on, of each what belongs to this CTA's units. Pieces of 4 elements change places from row to
  // row, as lanes read rows side by side.
  static constexpr int kRowPieces = kGates * kUnits / 4, kPieceBytes = 4 * (int)sizeof(Stored);
  static PD_DEVICE int staged_at(int row, int piece) {
    return (row * kRowPieces + (piece + row / 4) % kRowPieces) * kPieceBytes;
  }
  PD_DEVICE void stage(unsigned char* to, const Stored* u, int rank, int first, int hidden) {
    constexpr int kPiece = kIsInPieces ? 4 : 1, kPieces = kGates * kUnits / kPiece;
    for (int i = threadIdx.x; i < kStaged * 128 * kPieces; i += kThreads) {
      const int row = i / kPieces, column = i % kPieces * kPiece, unit = rank * kUnits + column % kUnits;
      const bool is_there = first + row < hidden && unit < hidden;
      const Index from = is_there ? (Index)(first + row) * (kGates * hidden) + column / kUnits * hidden + unit : 0;
      Stored* const place = (Stored*)(to + staged_at(row, column / 4)) + column % 4;
      if constexpr (kIsInPieces) copy_beside<kPieceBytes>(place, u + from, is_there);
      else *place = is_there ? u[from] : Stored{};
    }
    copies_end_group();
    copies_wait<0>();
  }
  // A block from four staged rows.
  PD_DEVICE void put(int block, const unsigned char* staged, int first) {
#pragma unroll
    for (int k = 0; k < 4; ++k) {
      const int gate = gate_of(k), unit = unit_of(block / kLanePieces, k), column = gate * kUnits + unit;
      const bool is_there = gate < kGates && unit < kUnits;
      float row[4];
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const unsigned char* const at = staged + staged_at(first + i, column / 4) + column % 4 * sizeof(Stored);
        row[i] = is_there ? load_one<false>((const Stored*)at) : 0.0f;
      }
      if (block < kHere) {
#pragma unroll
        for (int i = 0; i < 4; ++i) words[block < kHere ? block : 0][k][i] = row[i];
      } else {
        rest[((block - kHere) * 4 + k) * 32] = {row[0], row[1], row[2], row[3]};
      }
    }
  }
};
