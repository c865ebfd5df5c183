// SPDX-License-Identifier: Apache-2.0
// out[m, n] = a[m, k] b[k, n] of f32 by plain products, for few rows: one wave of CTAs, each with 64 x 64 sums of a part of K,
// which the CTAs of a cluster then add up in one order. In a CTA four groups of 64 threads share the k's of a block of 32;
// a thread has 8 rows, 8 apart, by 8 columns. Blocks come by copies beside other work, kStages under way.

constexpr int kTile = 64, kBlockK = 32;
constexpr int kInRow = kBlockK + 4;  // floats from row to row where rows lie along K: a warp's go to different banks
constexpr int kStageA = kTile * kInRow, kStageB = kIsTransposedB ? kTile * kInRow : kBlockK * kTile;
constexpr int kOutStride = kTile + 4, kGroupSums = kTile * kOutStride;

// 64 rows from `first` on, along K from k on; zeros where there is nothing.
PD_DEVICE void bring_rows(float* to, const float* from, Index stride, Index first, Index rows, Index k, Index last) {
#pragma unroll
  for (int i = 0; i < kTile * kBlockK / 4 / kThreads; ++i) {
    const int piece = threadIdx.x + i * kThreads, row = piece / 8, at = piece % 8 * 4;
    const bool is_there = first + row < rows && k + at < last;
    copy_beside<16>(to + row * kInRow + at, is_there ? from + (first + row) * stride + k + at : from, is_there);
  }
}
// 32 k's of 64 columns.
PD_DEVICE void bring_columns(float* to, const float* from, Index stride, Index column, Index columns, Index k, Index last) {
#pragma unroll
  for (int i = 0; i < kTile * kBlockK / 4 / kThreads; ++i) {
    const int piece = threadIdx.x + i * kThreads, row = piece / 16, at = piece % 16 * 4;
    const bool is_there = k + row < last && column + at < columns;
    copy_beside<16>(to + row * kTile + at, is_there ? from + (k + row) * stride + column + at : from, is_there);
  }
}

// The 4 k's from k on of a block.
PD_DEVICE void multiply(float (&sum)[8][8], const float* a, const float* b, int row, int column, int k) {
  float4 of_a[8];
#pragma unroll
  for (int i = 0; i < 8; ++i) of_a[i] = *(const float4*)(a + (row + i * 8) * kInRow + k);
  if constexpr (kIsTransposedB) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const float4 of_b = *(const float4*)(b + (column + j * 8) * kInRow + k);
#pragma unroll
      for (int i = 0; i < 8; ++i) {
        sum[i][j] += of_a[i].x * of_b.x;
        sum[i][j] += of_a[i].y * of_b.y;
        sum[i][j] += of_a[i].z * of_b.z;
        sum[i][j] += of_a[i].w * of_b.w;
      }
    }
  } else {
#pragma unroll
    for (int step = 0; step < 4; ++step) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const float4 of_b = *(const float4*)(b + (k + step) * kTile + half * 32 + column * 4);
#pragma unroll
        for (int i = 0; i < 8; ++i) {
          const float x = step == 0 ? of_a[i].x : step == 1 ? of_a[i].y : step == 2 ? of_a[i].z : of_a[i].w;
          sum[i][half * 4] += x * of_b.x;
          sum[i][half * 4 + 1] += x * of_b.y;
          sum[i][half * 4 + 2] += x * of_b.z;
          sum[i][half * 4 + 3] += x * of_b.w;
        }
      }
    }
  }
}

PD_DEVICE void product(const float* a, const float* b, float* out, const Room& room, const Sizes& size) {
  PD_DYNAMIC_SHARED(float, stages);
  const int rank = kCluster > 1 ? cluster_rank() : 0;
  Index tile = blockIdx.x / kCluster;
  const Index first_row = next_coordinate(tile, size.tiles_m) * kTile, first_column = tile * kTile;
  const Index first = rank * size.blocks / kCluster, last = (rank + 1) * size.blocks / kCluster;
  const auto bring_a = [&](Index block) {
    if (block >= last) return;
    bring_rows(stages + (block - first) % kStages * (kStageA + kStageB), a, size.a_stride, first_row, size.m,
               block * kBlockK, size.k);
  };
  const auto bring_b = [&](Index block) {
    if (block >= last) return;
    float* const to = stages + (block - first) % kStages * (kStageA + kStageB) + kStageA;
    if constexpr (kIsTransposedB) bring_rows(to, b, size.b_stride, first_column, size.n, block * kBlockK, size.k);
    else bring_columns(to, b, size.b_stride, first_column, size.n, block * kBlockK, size.k);
  };
  // What the launch in front does not write is on its way before that has ended; it counts as a's first group.
  if constexpr (kIsSettledB) {
    for (int i = 0; i < kStages - 1; ++i) bring_b(first + i);
  }
  await_launch_before();
  if (threadIdx.x == 0) leave_stamp(room);
  for (int i = 0; i < kStages - 1; ++i) {
    if constexpr (!kIsSettledB) bring_b(first + i);
    bring_a(first + i);
    copies_end_group();
  }

  const int group = threadIdx.x / 64, row = threadIdx.x % 64 / 8, column = threadIdx.x % 8;
  float sum[8][8];
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) sum[i][j] = 0;
  }
  for (Index block = first; block < last; ++block) {
    copies_wait<kStages - 2>();
    __syncthreads();
    bring_b(block + kStages - 1), bring_a(block + kStages - 1);
    copies_end_group();
    const float* const of_a = stages + (block - first) % kStages * (kStageA + kStageB);
#pragma unroll
    for (int k = 0; k < 8; k += 4) multiply(sum, of_a, of_a + kStageA, row, column, group * 8 + k);
  }
  copies_wait<0>();
  __syncthreads();

  float* const to = stages + group * kGroupSums;
#pragma unroll
  for (int i = 0; i < 8; ++i) {
#pragma unroll
    for (int j = 0; j < 8; ++j) {
      const int c = kIsTransposedB ? column + j * 8 : j / 4 * 32 + column * 4 + j % 4;
      to[(row + i * 8) * kOutStride + c] = sum[i][j];
    }
  }
  if constexpr (kCluster > 1) cluster_barrier();
  else __syncthreads();

  constexpr int kPieces = kTile * kTile / 4 / kCluster;
  if (!is_called_off(room)) {
    for (int i = threadIdx.x; i < kPieces; i += kThreads) {
      const int r = (rank * kPieces + i) / (kTile / 4), c = (rank * kPieces + i) % (kTile / 4) * 4;
      float4 parts[kCluster * 4];
#pragma unroll
      for (int other = 0; other < kCluster * 4; ++other) {
        const float* const from = stages + other % 4 * kGroupSums + r * kOutStride + c;
        parts[other] = kCluster > 1 ? load_remote(from, other / 4) : *(const float4*)from;
      }
#pragma unroll
      for (int other = 1; other < kCluster * 4; ++other) parts[0] = parts[0] + parts[other];
      if (first_row + r < size.m && first_column + c < size.n) {
        *(float4*)(out + (first_row + r) * size.out_stride_wide + first_column + c) = parts[0];
      }
    }
  }
  if constexpr (kCluster > 1) cluster_barrier();  // others may still read this CTA's sums
}
