// SPDX-License-Identifier: Apache-2.0
// Forward products of a recurrence by plain FMA for few rows of the batch. The lanes of a warp divide K, and products
// are exact f32; 16-bit weights are converted once, before the first step. A quad is four rows of the matrix. Four
// elements along K of a quad are a lane's block of 16 weights. Registers keep as many blocks as fit, shared memory the
// next ones, and the rest is read from global memory in every step (recurrence_stream.cu, where a block is a chunk).
// With at most 4 rows the sums of a cell end in the thread of the cell (kKeepsSums), which saves two barriers a step.
// Otherwise they go through shared memory, because a quad of a unit's gates leaves lanes without a cell.

constexpr int kLanePieces = (kDepthPieces + 31) / 32;  // of 4 elements
constexpr int kQuadRows = kQuadUnits == 1 ? kGates : 4;  // rows of a quad that have weights

struct ForwardWeights {
  // Blocks are in the order of their products: piece * kQuads + quad.
  static constexpr int kBlocks = kQuads * kLanePieces, kCount = kBlocks - kStreamed;
  static constexpr int kHere = kCount < kKept ? kCount : kKept;
  // Rows and pieces of the state that a lane holds at a time. Streamed weights are read once for all rows.
  static constexpr int kAtOnce = kStreamed > 0 ? kRows : 1;
  static constexpr int kPiecesAtOnce = kStreamed == 0 ? kLanePieces : kRows <= 2 ? 2 : 1;
  float words[kHere][4][4];  // [block][row][element]
  float4* rest;
  StreamedWeights streamed;
  int lane, own;  // own: byte offset in a state of this lane's first piece
  Place first;    // the address of that piece in the state that is multiplied next

  PD_DEVICE void bring(const Shared& shared, const LaunchScratch& scratch, unsigned cta, const Stored* u, int rank, int hidden) {
    const int warp = threadIdx.x / 32;
    lane = kept_known((int)threadIdx.x % 32);
    own = kept_known((lane < kDepthPieces ? lane : 0) * (kRows * 16));
    rest = (float4*)shared.weights + warp * ((kCount - kHere) * kQuadRows * 32) + lane;
    streamed.begin(shared, scratch, cta);
    if constexpr (kIsByUnits) bring_rows(u, rank, hidden);
#pragma unroll
    for (int begin = 0; !kIsByUnits && begin < kLanePieces; begin += kStaged) {
      if (begin > 0) __syncthreads();
      stage((float*)shared.work, u, rank, begin * 128, hidden);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kQuads * kStaged; ++i) {
        const int quad = i / kStaged, piece = begin + i % kStaged;
        const float* const staged = (const float*)shared.work + (i % kStaged * 32 + lane) * 4;
        if (piece >= kLanePieces) continue;
        put(quad, piece, [&](int k) {
          const int unit = unit_of(quad, k);
          return *(const float4*)(staged + (gate_of(k) * kUnits + (unit < kUnits ? unit : 0)) * kStride);
        });
      }
    }
    __syncthreads();
    streamed.start();
  }
  PD_DEVICE void aim(unsigned char* state, bool is_last) { first = place_of(state + own), streamed.is_last = is_last; }
  PD_DEVICE void end() const { streamed.end(); }
  // Row k of a block's quad.
  PD_DEVICE float4 row_of(int block, int k) const {
    const int i = own_block(block);
    if (StreamedWeights::has(block, kBlocks)) return streamed.get_floats(StreamedWeights::before(block, kBlocks), k);
    if (i >= kHere) return rest[((i - kHere) * kQuadRows + k) * 32];
    const float (&w)[4] = words[i < kHere ? i : 0][k];
    return {w[0], w[1], w[2], w[3]};
  }
  // Computes the sums of this thread's cells.
  template <class Await, class Beside>
  PD_DEVICE bool multiply(float (&of_cells)[kCells][kLaneGates], float* sums, const unsigned char*, int thread,
                          const CellPlace (&place)[kCells], const Await&, const Beside&) const {
    float mine[kQuads];  // sums for batch row lane % 8 and row lane / 8 of the quad
#pragma unroll
    for (int quad = 0; quad < kQuads; ++quad) mine[quad] = 0;
#pragma unroll
    for (int begin = 0; begin < kRows; begin += kAtOnce) {
      float4 h[kPiecesAtOnce][kAtOnce];
      const auto load = [&](int piece) {
#pragma unroll
        for (int n = 0; n < kAtOnce; ++n) {
          const bool is_inside = (piece + 1) * 32 <= kDepthPieces || piece * 32 + lane < kDepthPieces;
          // Beyond K any piece may be read, since the weights there are zero.
          const uint4 bits = load_piece(first + (is_inside ? (piece * 32 * kRows + begin + n) * 16 : (begin + n) * 16));
          h[piece % kPiecesAtOnce][n] = {__uint_as_float(bits.x), __uint_as_float(bits.y), __uint_as_float(bits.z),
                                         __uint_as_float(bits.w)};
        }
      };
#pragma unroll
      for (int piece = 0; piece < kPiecesAtOnce && piece < kLanePieces; ++piece) load(piece);
      float parts[kAtOnce][kQuads][4];
#pragma unroll
      for (int i = 0; i < kAtOnce * kQuads * 4; ++i) (&parts[0][0][0])[i] = 0;
#pragma unroll
      for (int piece = 0; piece < kLanePieces; ++piece) {
#pragma unroll
        for (int quad = 0; quad < kQuads; ++quad) {
          const int block = piece * kQuads + quad;
          const bool is_streamed = StreamedWeights::has(block, kBlocks);
          if (is_streamed) streamed.await();
#pragma unroll
          for (int k = 0; k < kQuadRows; ++k) {
            const float4 w = row_of(block, k);
#pragma unroll
            for (int n = 0; n < kAtOnce; ++n) {
              const float4 of_piece = h[piece % kPiecesAtOnce][n];
              float& sum = parts[n][quad][k];
              sum += w.x * of_piece.x, sum += w.y * of_piece.y, sum += w.z * of_piece.z, sum += w.w * of_piece.w;
            }
          }
          if (is_streamed) streamed.pass(StreamedWeights::before(block, kBlocks));
        }
        if (piece + kPiecesAtOnce < kLanePieces) load(piece + kPiecesAtOnce);
      }
#pragma unroll
      for (int n = begin; n < begin + kAtOnce; ++n) {
        const float (&part)[kQuads][4] = parts[n - begin];
        // Reduce four sums over 32 lanes: each half of the lanes passes on two of them, then each quarter one.
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
    }
    if constexpr (!kKeepsSums) return gather_sums(of_cells, sums, thread, place);
    if constexpr (kStates == 1) __syncthreads();  // nobody reads the state any more
#pragma unroll
    for (int cell = 0; cell < kCells; ++cell) of_cells[cell][0] = mine[cell < kQuads ? cell : 0];
    return true;
  }

 private:
  // The index of a block among those that are not streamed.
  static PD_DEVICE constexpr int own_block(int block) { return block - StreamedWeights::before(block, kBlocks); }
  // The gate of a quad's row.
  static PD_DEVICE int gate_of(int k) { return kQuadUnits == 1 ? k : 0; }
  static PD_DEVICE int unit_of(int quad, int k) {  // of the CTA
    return threadIdx.x / 32 * kWarpUnits + quad * kQuadUnits + (kQuadUnits == 1 ? 0 : k);
  }
  // Stages u transposed, so that a lane gets 4 elements along K by one load. Each lane stores 4 units of a row of u,
  // and the stride puts the lanes' stores into different banks.
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
      // These loads have no branch before them, so that all are in flight together: see CellPlace::to_read().
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
  // Loads weights that lie by units, [H, gates, H], where a row of the matrix is contiguous. All blocks that registers
  // keep are loaded at once, by plain loads, which the compiler does not move past the barrier.
  PD_DEVICE void bring_rows(const Stored* u, int rank, int hidden) {
    bring_blocks<kHere>(u, rank, hidden, 0);
#pragma unroll
    for (int first = kHere; first < kBlocks; first += 4) bring_blocks<4>(u, rank, hidden, first);
  }
  template <int kAsked> PD_DEVICE void bring_blocks(const Stored* u, int rank, int hidden, int first) {
    constexpr bool kAreWhole = kGroupCtas * kUnits == kLayerHidden && kLanePieces * 128 == kLayerHidden &&
                               kWarps * kWarpUnits == kUnits;
    Pack<Stored, 4> rows[kAsked][kQuadRows];
    const auto is_there = [&](int block, int k) {
      const int unit = unit_of(block % kQuads, k), element = (block / kQuads * 32 + lane) * 4;
      return kAreWhole || (unit < kUnits && rank * kUnits + unit < hidden && element < hidden);
    };
#pragma unroll
    for (int i = 0; i < kAsked; ++i) {
#pragma unroll
      for (int k = 0; k < kQuadRows; ++k) {
        const int block = first + i, unit = rank * kUnits + unit_of(block % kQuads, k);
        const Index row = (Index)unit * kGates + gate_of(k);
        const int element = (block / kQuads * 32 + lane) * 4, elements = hidden - element;
        const bool is_asked = block < kBlocks && is_there(block, k);
        const Stored* const from = u + (is_asked ? row * hidden + element : 0);
        if constexpr (kIsInPieces) load<false>(rows[i][k], from);
        else load_each<false>(rows[i][k], from, 1, !is_asked ? 0 : elements < 4 ? elements : 4);
      }
    }
#pragma unroll
    for (int i = 0; i < kAsked; ++i) {
      const int block = first + i;
      if (block >= kBlocks) break;
      put(block % kQuads, block / kQuads, [&](int k) {
        const Pack<Stored, 4>& row = rows[i][k];
        return is_there(block, k) ? float4{row.get(0), row.get(1), row.get(2), row.get(3)} : float4{0, 0, 0, 0};
      });
    }
  }
  // Stores a block in registers, shared memory or the stream. row_of(k) gives the lane's elements of its row k.
  template <class RowOf> PD_DEVICE void put(int quad, int piece, const RowOf& row_of) {
    const int block = piece * kQuads + quad, i = own_block(block);
#pragma unroll
    for (int k = 0; k < kQuadRows; ++k) {
      const float4 row = row_of(k);
      if (StreamedWeights::has(block, kBlocks)) {
        streamed.put(StreamedWeights::before(block, kBlocks), k, row);
      } else if (i < kHere) {
        float (&to)[4] = words[i < kHere ? i : 0][k];
        to[0] = row.x, to[1] = row.y, to[2] = row.z, to[3] = row.w;
      } else {
        rest[((i - kHere) * kQuadRows + k) * 32] = row;
      }
    }
  }
};
