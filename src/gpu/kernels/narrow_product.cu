// SPDX-License-Identifier: Apache-2.0
// out[m, n] = a[m, k] b[k, n] of 16 bits, sums in f32, for few rows: such a product waits for its operands, so a CTA
// asks for all of them at once. It has kRows rows and kColumns columns of the result and K as a whole, padded with
// zeros to kDepth; each of its warps has 16 rows and a part of K (kParts). Operands that are unmodified by the previous
// launch are asked for before that has ended, and the next launch may begin as soon as this one has.

constexpr int kTiles = kColumns / 8, kRowTiles = kRows / 16, kParts = kThreads / 32 / kRowTiles;
constexpr int kSteps = kDepth / 16 / kParts;  // of a warp, 16 elements along K each
constexpr int kInPiece = 8;                   // elements of 16 bytes
// Elements from row to row in shared memory: eight rows of 16 bytes lie in different banks.
constexpr int kStrideA = kDepth + kInPiece, kStrideB = kColumns + kInPiece;

// Rows of `from` from `row` on, and of these `columns` elements from `column` on; zeros after `rows` and
// `all_columns`.
template <int kCount, int kWidth, int kStride>
PD_DEVICE void bring_rows(Stored* to, const Stored* from, Index stride, Index row, Index rows, Index column, Index columns) {
  constexpr int kPieces = kWidth / kInPiece;
#pragma unroll 4
  for (int i = threadIdx.x; i < kCount * kPieces; i += kThreads) {
    const int r = i / kPieces, c = i % kPieces * kInPiece;
    const bool is_there = row + r < rows && column + c < columns;
    copy_beside<16>(to + r * kStride + c, from + (is_there ? (row + r) * stride + column + c : 0), is_there);
  }
}

PD_DEVICE void product(const Stored* a, const Stored* b, Stored* out, const LaunchScratch& scratch, const Sizes& size) {
  PD_DYNAMIC_SHARED(Stored, a_rows);
  Stored* const b_rows = a_rows + kRows * kStrideA;  // one for each k
  Index tile = blockIdx.x;
  const Index row = next_coordinate(tile, size.tiles_m) * kRows, column = tile * kColumns;
  if constexpr (kIsBUnmodifiedByPrevious) bring_rows<kDepth, kColumns, kStrideB>(b_rows, b, size.b_stride, 0, size.k, column, size.n);
  grid_dependency_wait();
  if (threadIdx.x == 0) leave_stamp(scratch);
  const bool is_over = is_called_off(scratch);
  if constexpr (!kIsBUnmodifiedByPrevious) bring_rows<kDepth, kColumns, kStrideB>(b_rows, b, size.b_stride, 0, size.k, column, size.n);
  bring_rows<kRows, kDepth, kStrideA>(a_rows, a, size.a_stride, row, size.m, 0, size.k);
  copies_end_group();
  copies_wait<0>();
  __syncthreads();

  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, part = warp / kRowTiles, first = warp % kRowTiles * 16;
  float sum[kTiles][4];
#pragma unroll
  for (int i = 0; i < kTiles * 4; ++i) (&sum[0][0])[i] = 0;
  const Stored* const of_a = a_rows + (first + lane % 16) * kStrideA + part * (kSteps * 16) + lane / 16 * kInPiece;
  const Stored* const of_b = b_rows + (part * (kSteps * 16) + lane % 16) * kStrideB + lane / 16 * kInPiece;
#pragma unroll
  for (int step = 0; step < kSteps; ++step) {
    unsigned rows[4];
    load_squares(rows, of_a + step * 16);
#pragma unroll
    for (int tile = 0; tile < kTiles; tile += 2) {
      unsigned columns[4];
      load_transposed(columns, of_b + step * (16 * kStrideB) + tile * 8);
      const unsigned pairs[2][2] = {{columns[0], columns[1]}, {columns[2], columns[3]}};
      add_tile<Stored>(sum[tile], rows, pairs[0]), add_tile<Stored>(sum[tile + 1], rows, pairs[1]);
    }
  }
  if constexpr (kParts > 1) {  // added up by the first, in the order of the parts
    __syncthreads();
    float4* const sums = (float4*)a_rows + (warp % kRowTiles * 32 + lane);
    constexpr int kApart = kRowTiles * 32;
#pragma unroll
    for (int i = 0; i < kTiles; ++i) {
      const float4 mine = {sum[i][0], sum[i][1], sum[i][2], sum[i][3]};
      if (part > 0) sums[((part - 1) * kTiles + i) * kApart] = mine;
    }
    __syncthreads();
    if (part > 0) return;
#pragma unroll
    for (int i = 0; i < (kParts - 1) * kTiles; ++i) {
      const float4 other = sums[i * kApart];
      float (&to)[4] = sum[i % kTiles];
      to[0] += other.x, to[1] += other.y, to[2] += other.z, to[3] += other.w;
    }
  }
  if (is_over) return;
#pragma unroll
  for (int i = 0; i < kTiles * 2; ++i) {
    const Index r = row + first + lane / 4 + i % 2 * 8, c = column + i / 2 * 8 + lane % 4 * 2;
    if (r < size.m && c < size.n) {
      *(unsigned*)(out + r * size.out_stride + c) = pair_of<Stored>(sum[i / 2][i % 2 * 2], sum[i / 2][i % 2 * 2 + 1]);
    }
  }
}
