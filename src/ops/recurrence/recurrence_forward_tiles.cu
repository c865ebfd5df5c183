// SPDX-License-Identifier: Apache-2.0
// The forward direction's products on the tensor cores.

// The rows of a forward matrix and K (kParts) are shared out over the warps.
struct ForwardWeights {
  static constexpr int kGroups = kWarps / kParts;  // of warps, that have rows of their own
  WarpWeights mine;
  int part, first_row;

  PD_DEVICE void bring(const Shared& shared, const Stored* u, int rank, int hidden) {
    const int lane = threadIdx.x % 32;
    part = threadIdx.x / 32 / kGroups, first_row = threadIdx.x / 32 % kGroups * (kTiles * 16);
    mine.begin(shared.weights);
#pragma unroll
    for (int begin = 0; begin < kSteps; begin += kStaged) {
      if (begin > 0) __syncthreads();
      stage_weights<kParts, kSteps * kInStep, kStaged * kInStep>(shared.work, u, rank, begin * kInStep, hidden);
      __syncthreads();
#pragma unroll
      for (int i = 0; i < kTiles * kStaged; ++i) {
        const int tile = i / kStaged, step = begin + i % kStaged;
        if (step >= kSteps) continue;
        const int row = first_row + tile * 16;
        const unsigned char* const at = shared.work + (part * kStaged + i % kStaged) * (kInStep * kStageStride);
        unsigned fragment[4] = {0, 0, 0, 0};
        if (row < kMatrixRows) {
          if constexpr (sizeof(Stored) == 2) {
            load_turned(fragment, at + (lane / 16 * 8 + lane % 8) * kStageStride + (row + lane / 8 % 2 * 8) * 2);
          } else {
#pragma unroll
            for (int word = 0; word < 4; ++word) {
              const int k = word / 2 * 4 + lane % 4, n = row + word % 2 * 8 + lane / 4;
              fragment[word] = *(const unsigned*)(at + k * kStageStride + n * 4);
            }
          }
        }
        mine.put(tile * kSteps + step, fragment);
      }
    }
    mine.are_there();
    __syncthreads();
  }
  PD_DEVICE bool multiply(float (&of_cells)[kCells][kGates], float* sums, const unsigned char* vectors,
                          const CellPlace (&place)[kCells]) const {
    store(sums, vectors);
    return gather_sums(of_cells, sums, place);
  }

 private:
  PD_DEVICE void store(float* sums, const unsigned char* vectors) const {
    float sum[kTiles][kColumnTiles][4];
    Products products;
    products.begin(mine, vectors + part * (kSteps * 2 * kRows * 16));
    products.end(sum);
    const int lane = threadIdx.x % 32;
    float* const to = sums + part * (kRows * kSumStride) + first_row + lane / 4;
#pragma unroll
    for (int tile = 0; tile < kTiles; ++tile) {
      if (first_row + tile * 16 >= kMatrixRows) break;
#pragma unroll
      for (int i = 0; i < kColumnTiles * 4; ++i) {
        const int n = i / 4 * 8 + lane % 4 * 2 + i % 2;
        if (n < kRows) to[n * kSumStride + tile * 16 + i / 2 % 2 * 8] = sum[tile][i / 4][i % 4];
      }
    }
  }
};
