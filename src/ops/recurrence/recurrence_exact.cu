// SPDX-License-Identifier: Apache-2.0
// The products of a recurrence's forward direction in f32 that is not to be rounded, for few rows: a warp's lanes share
// out K. What a lane has of four rows of the matrix (a quad) and 4 elements along K is a block of 16 weights; the first
// blocks are kept in registers, as many as there is room for, the others in shared memory.

constexpr int kLanePieces = (kDepthPieces + 31) / 32;  // of 4 elements
constexpr int kQuads = (kMatrixRows / 4 + kWarps - 1) / kWarps;

struct ForwardWeights {
  static constexpr int kCount = kQuads * kLanePieces, kHere = kCount < kKept ? kCount : kKept;
  float words[kHere][4][4];  // [block][row][element]
  float4* rest;

  PD_DEVICE void bring(const Shared& shared, const Stored* u, int rank, int hidden) {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
    rest = (float4*)shared.weights + warp * ((kCount - kHere) * 4 * 32) + lane;
#pragma unroll
    for (int block = 0; block < kCount; ++block) {
      const int row = (block / kLanePieces * kWarps + warp) * 4, gate = row / kUnits, unit = rank * kUnits + row % kUnits;
      Pack<Stored, 4> rows_of[4];  // of each element
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int element = (block % kLanePieces * 32 + lane) * 4 + i;
        const Stored* const at = u + (Index)element * (kGates * hidden) + gate * hidden + unit;
        const bool is_there = gate < kGates && element < hidden;
        if constexpr (kIsInPieces) {
          if (is_there && unit < hidden) load<true>(rows_of[i], at);
          else rows_of[i] = {};
        } else {
          load_each<true>(rows_of[i], at, 1, is_there ? hidden - unit : 0);
        }
      }
#pragma unroll
      for (int k = 0; k < 4; ++k) {
        if (block < kHere) {
#pragma unroll
          for (int i = 0; i < 4; ++i) words[block < kHere ? block : 0][k][i] = rows_of[i].get(k);
        } else {
          rest[((block - kHere) * 4 + k) * 32] = {rows_of[0].get(k), rows_of[1].get(k), rows_of[2].get(k), rows_of[3].get(k)};
        }
      }
    }
  }
  // Of row k of the block's quad.
  PD_DEVICE float product(int block, int k, float4 h) const {
    if (block < kHere) {
      const float (&w)[4] = words[block < kHere ? block : 0][k];
      return w[0] * h.x + w[1] * h.y + (w[2] * h.z + w[3] * h.w);
    }
    const float4 w = rest[((block - kHere) * 4 + k) * 32];
    return w.x * h.x + w.y * h.y + (w.z * h.z + w.w * h.w);
  }
  // To sums[row of the batch][row of the matrix].
  PD_DEVICE void multiply(float* sums, const unsigned char* vectors) const {
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
#pragma unroll
    for (int n = 0; n < kRows; ++n) {
      float part[kQuads][4];
#pragma unroll
      for (int i = 0; i < kQuads * 4; ++i) part[i / 4][i % 4] = 0;
#pragma unroll
      for (int piece = 0; piece < kLanePieces; ++piece) {
        const int at = piece * 32 + lane < kDepthPieces ? piece * 32 + lane : 0;  // behind the last, weights are zero
        const float4 h = *(const float4*)(vectors + (at * kRows + n) * 16);
#pragma unroll
        for (int i = 0; i < kQuads * 4; ++i) part[i / 4][i % 4] += product(i / 4 * kLanePieces + piece, i % 4, h);
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
        const int row = (quad * kWarps + warp) * 4 + lane / 8;
        if (lane % 8 == 0 && row < kMatrixRows) sums[n * kSumStride + row] = total;
      }
    }
  }
};
