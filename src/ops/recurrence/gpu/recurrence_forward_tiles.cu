// SPDX-License-Identifier: Apache-2.0
// The forward direction's products on the tensor cores.

// A lane has the word of row lane / 4 of a square that the tensor cores get. Where few rows are there (kIsNarrow),
// lanes of these load 16 bytes for a pair of steps, in place of squares of rows that are not there; and elements along
// K change places within the pair, in the weights too. The element that the warp's word `word` (0 or 1 along K) of step
// `step` begins with, where t = lane % 4:
PD_DEVICE int depth_of(int step, int word, int t) {
  constexpr int kInWord = 4 / (int)sizeof(Stored);
  if constexpr (!kIsNarrow) return step * kInStep + word * kInPiece + t * kInWord;
  if (step % 2 == 0 && step + 1 == kSteps) return step * kInStep + t * (kInPiece / 2) + word * kInWord;
  return step / 2 * (2 * kInStep) + t * kInPiece + (step % 2 * 2 + word) * kInWord;
}

// The rows of a forward matrix and K (kParts) are shared out over the warps.
struct ForwardWeights {
  static constexpr int kRowGroups = kWarps / kParts;  // of warps, that have rows of their own
  WarpWeights mine;
  int part, first_row;

  PD_DEVICE void bring(const Shared& shared, const LaunchScratch& scratch, unsigned cta, const Stored* u, int rank, int hidden) {
    const int lane = threadIdx.x % 32;
    const int warp = threadIdx.x / 32;
    part = warp / kRowGroups;
    // Where warpgroups have units of their own, each of their warps has a gate.
    first_row = kUnitsPerWarpgroup ? warp % 4 * kUnits + warp / 4 * kOwnUnits : warp % kRowGroups * (kTiles * 16);
    mine.begin(shared, scratch, cta);
    if constexpr (kIsByUnits) bring_rows(u, rank, hidden);
    const int of = kSharesState ? rank / kSumPeers : rank, first = kSharesState ? rank % kSumPeers * kStateUnits : 0;
#pragma unroll
    for (int begin = 0; !kIsByUnits && begin < kSteps; begin += kStaged) {
      if (begin > 0) __syncthreads();
      stage_weights<kParts, kSteps * kInStep, kStaged * kInStep>(shared.work, u, of, first + begin * kInStep, hidden);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kTiles * kStaged; ++i) {
        const int tile = i / kStaged, step = begin + i % kStaged;
        if (step >= kSteps) continue;
        const int row = first_row + tile * 16;
        const unsigned char* const at = shared.work + (part * kStaged - begin) * (kInStep * kStageStride);
        unsigned fragment[4] = {0, 0, 0, 0};
        if (row < kMatrixRows) {
          if constexpr (sizeof(Stored) == 2) {
            const int k = depth_of(step, lane / 16, lane % 8 / 2) + lane % 2;
            load_transposed(fragment, at + k * kStageStride + (row + lane / 8 % 2 * 8) * 2);
          } else {
#pragma unroll
            for (int word = 0; word < 4; ++word) {
              const int k = depth_of(step, word / 2, lane % 4), n = row + word % 2 * 8 + lane / 4;
              fragment[word] = *(const unsigned*)(at + k * kStageStride + n * 4);
            }
          }
        }
        mine.put(tile * kSteps + step, fragment);
      }
    }
    mine.are_there();
    __syncthreads();
    mine.start();
  }
  PD_DEVICE void aim(unsigned char*, bool is_last) { mine.aim(is_last), mine.ask(); }
  PD_DEVICE void end() const { mine.end(); }
  // `await`: for the other half of the vectors; `beside`: goes on meanwhile, where groups multiply.
  template <class Await, class Beside>
  PD_DEVICE bool multiply(float (&of_cells)[kCells][kLaneGates], float* sums, const unsigned char* vectors, int thread,
                          const CellPlace (&place)[kCells], const Await& await, const Beside& beside) const {
    if constexpr (kKeepsSums) {
      keep(of_cells, vectors);
      return true;
    } else {
      store(sums, vectors, await, beside);
      if constexpr (!kSharesState) return gather_sums(of_cells, sums, thread, place);
      InputAhead::are_there();
      __syncthreads();
      return true;  // partial-sum peers have the rest of the sums
    }
  }

 private:
  // Where the weights lie by units ([H, gates, H]) and elements along K change places, a lane's part of a row in two
  // steps is a piece of memory. Plain loads bring it, many at once, which stay in front of the barrier.
  PD_DEVICE void bring_rows(const Stored* u, int rank, int hidden) {
    constexpr int kPairs = (kSteps + 1) / 2, kCount = kTiles * kPairs, kAsked = kCount < 8 ? kCount : 8;
    const int lane = threadIdx.x % 32;
#pragma unroll
    for (int begin = 0; begin < kCount; begin += kAsked) {
      Pack<Stored, kInPiece> pieces[kAsked][2];  // of rows g and g + 8
#pragma unroll
      for (int i = 0; i < kAsked * 2; ++i) {
        const int tile = (begin + i / 2) / kPairs, step = (begin + i / 2) % kPairs * 2, row = lane / 4 + i % 2 * 8;
        const int of_cta = first_row / 4 + tile * 4 + row % 4, unit = rank * kUnits + of_cta, gate = row / 4;
        const int element = depth_of(step, 0, lane % 4);
        const bool is_there =
            begin + i / 2 < kCount && of_cta < kUnits && unit < hidden && gate < kGates && element < hidden;
        const Stored* const from = u + (is_there ? ((Index)unit * kGates + gate) * hidden + element : 0);
        const int most = step + 1 < kSteps ? kInPiece : kInPiece / 2, left = is_there ? hidden - element : 0;
        Pack<Stored, kInPiece>& piece = pieces[i / 2][i % 2];
        if (kIsInPieces && step + 1 < kSteps) {
          load<false>(piece, from);
#pragma unroll
          for (int k = 0; k < 4; ++k) piece.word[k] = is_there ? piece.word[k] : 0;
        } else {
          load_each<false>(piece, from, 1, left < most ? left : most);
        }
      }
#pragma unroll
      for (int i = 0; i < kAsked; ++i) {
        if (begin + i >= kCount) break;
        const int at = (begin + i) / kPairs * kSteps + (begin + i) % kPairs * 2;
        const unsigned(&low)[4] = pieces[i][0].word, (&high)[4] = pieces[i][1].word;
        unsigned first[4] = {low[0], high[0], low[1], high[1]}, second[4] = {low[2], high[2], low[3], high[3]};
        mine.put(at, first);
        if ((begin + i) % kPairs * 2 + 1 < kSteps) mine.put(at + 1, second);
      }
    }
  }
  // A tile is four gates of four units: half of the lanes have gates 0 and 2 of two rows of the batch, the others 1 and
  // 3 of the same. Each gives the other its sums of one row, and has all gates of the other row; with one row, which
  // would leave half the lanes without any, each keeps its own, and applies its activation first.
  PD_DEVICE void keep(float (&of_cells)[kCells][kLaneGates], const unsigned char* vectors) const {
    float sum[kTiles][kColumnTiles][4];
    Products<1> products;
    products.begin(mine, vectors);
    products.end<0>(sum);
    if constexpr (kHasGatePairs) {
#pragma unroll
      for (int i = 0; i < kCells * 2; ++i) of_cells[i / 2][i % 2] = sum[i / 2][0][i % 2 * 2];
      return;
    }
    const bool is_odd = threadIdx.x & 16;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      float gates[4];
#pragma unroll
      for (int i = 0; i < 4; i += 2) {
        const float even = sum[tile][0][i], odd = sum[tile][0][i + 1];
        const float own = is_odd ? odd : even, other = __shfl_xor_sync(~0u, is_odd ? even : odd, 16);
        gates[i] = is_odd ? other : own, gates[i + 1] = is_odd ? own : other;
      }
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) of_cells[tile < kCells ? tile : 0][gate] = gates[gate];
    }
  }
  template <class Await, class Beside>
  PD_DEVICE void store(float* sums, const unsigned char* vectors, const Await& await, const Beside& beside) const {
    float sum[kTiles][kColumnTiles][4];
    Products<1> products;
    // The second group multiplies after the first, which applies its gates' activations and sends its half meanwhile.
    const bool is_second = kUnitsPerWarpgroup && threadIdx.x >= kTogether;
    if constexpr (kUnitsPerWarpgroup) {
      if (is_second) barrier_wait(5, kThreads);
      products.begin_halves(mine, vectors, await);
      if (!is_second) barrier_pass(5, kThreads);
    } else {
      products.begin(mine, vectors + part * (kSteps * 2 * kRows * 16));
    }
    beside();
    products.end<0>(sum);
    if constexpr (kSharesState) __syncthreads();  // sums lie where the state was
    const int lane = threadIdx.x % 32;
    float* const to = sums + part * (kRows * kSumStride) + first_row + lane / 4 * (kArePaired ? 2 : 1);
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (!kUnitsPerWarpgroup && first_row + tile * 16 >= kMatrixRows) break;
#pragma unroll
      for (int i = 0; i < kColumnTiles * 4; ++i) {
        const int n = i / 4 * 8 + lane % 4 * 2 + i % 2;
        const float(&of_tile)[4] = sum[tile][i / 4];
        if constexpr (kArePaired) {
          const uint2 pair = make_uint2(__float_as_uint(of_tile[i % 2]), __float_as_uint(of_tile[i % 2 + 2]));
          if (i % 4 < 2 && n < kRows) *(uint2*)(to + n * kSumStride + tile * 16) = pair;
        } else {
          if (n < kRows) to[n * kSumStride + tile * 16 + i / 2 % 2 * 8] = of_tile[i % 4];
        }
      }
    }
  }
};
