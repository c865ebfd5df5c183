// SPDX-License-Identifier: Apache-2.0
// partial[part, o, (tap, channel)] = the sum over the part's windows of gradient[window, o] image[window, (tap,
// channel)]: a convolution's gradient for its weights, whose results are few and whose sums are long. A CTA has kRows
// outputs by kColumns (tap, channel)s of one group, and a part of all windows. Each of its warps has all of a small
// tile, and a share of the windows of every block (kWarpsK), or a part of a large one. The sums of warps and parts are
// added up in their order.

constexpr int kStep = 32 / (int)sizeof(Stored);  // windows that a warp multiplies at once
constexpr int kWarpsK = kThreads / 32 / (kWarpsM * kWarpsN), kDepth = kWarpsK * kStep;
constexpr int kRowStride = kRows + 8, kColumnStride = kColumns % 32 == 8 ? kColumns : kColumns + 8;  // to other banks
constexpr int kStageElements = kDepth * (kRowStride + kColumnStride);
constexpr int kTilesM = kRows / kWarpsM / 16, kTilesN = kColumns / kWarpsN / 8;  // of a warp

PD_DEVICE void bring_image(Stored* to, const Stored* image, const Place* windows, const Place* taps, const Sizes& size) {
  constexpr int kInRow = kColumns / kPiece, kPieces = kDepth * kInRow;
#pragma unroll 4
  for (int at = threadIdx.x; at < kPieces; at += kThreads) {
    const int r = kPiece == 1 ? at % kDepth : at / kInRow, q = (kPiece == 1 ? at / kDepth : at % kInRow) * kPiece;
    gather_piece(to + r * kColumnStride + q, image, windows[r], taps[q], size);
  }
}

PD_DEVICE void bring_gradient(Stored* to, const Stored* gradient, const Place* windows, int first_row,
                              const Sizes& size) {
  constexpr int kInRow = kRows / kGradientPiece, kPieces = kDepth * kInRow;
#pragma unroll 4
  for (int at = threadIdx.x; at < kPieces; at += kThreads) {
    const int r = kGradientPiece == 1 ? at % kDepth : at / kInRow;
    const int q = (kGradientPiece == 1 ? at / kDepth : at % kInRow) * kGradientPiece;
    const bool is_there = first_row + q < size.rows && windows[r].h > kFar / 2;
    copy_piece<kGradientPiece>(to + r * kRowStride + q,
                               gradient + (windows[r].other + (first_row + q) * size.of_window_c), is_there);
  }
}

// The warp's products of a block; a and b are where its windows begin.
PD_DEVICE void multiply(float (&sum)[kTilesM][kTilesN][4], const Stored* a, const Stored* b) {
  const Lane lane;
  unsigned rows[kTilesM][4], columns[kTilesN][2];
  if constexpr (sizeof(Stored) == 4) {
    const unsigned *a_words = (const unsigned*)a, *b_words = (const unsigned*)b;
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows[m][i] = a_words[(lane.t + i / 2 * 4) * kRowStride + m * 16 + i % 2 * 8 + lane.g];
      }
    }
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) columns[n][i] = b_words[(lane.t + i * 4) * kColumnStride + n * 8 + lane.g];
    }
  } else {
    const int row = threadIdx.x % 8, square = threadIdx.x % 32 / 8;
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      load_transposed(rows[m], a + (square / 2 * 8 + row) * kRowStride + m * 16 + square % 2 * 8);
    }
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
      load_transposed(columns[n], b + (square % 2 * 8 + row) * kColumnStride + n * 8);
    }
  }
  add_tiles(sum, rows, columns);
}

// A sum over the windows from `first` to `last`, or where it is NaN, as it is when a non-finite factor was split
// (kIsExact), the sum without splitting, whose loop ends at the first NaN. `gradient`: of the sum's row.
PD_DEVICE float without_splitting(float sum, const Stored* image, const Stored* gradient, int first, int last, const Place& tap,
                         const Phase& phase, const Sizes& size) {
  if (!kIsExact || sum == sum) return sum;
  sum = 0;
  for (int i = first; i < last && i < size.windows && sum == sum; ++i) {
    const Place window = window_at(i, phase, size);
    if (!is_on_image(window, tap, size)) continue;
    sum += load_one<false>(gradient + window.other) * load_one<false>(image + (window.offset + tap.offset));
  }
  return sum;
}

PD_DEVICE void add_up(const Stored* image, const Stored* gradient, float* partial, const Sizes& size) {
  constexpr int kSumElements = kWarpsK > 1 ? kRows * kColumns * 4 / (int)sizeof(Stored) : 0;
  constexpr int kElements = kStages * kStageElements > kSumElements ? kStages * kStageElements : kSumElements;
  __shared__ uint4 stages[(kElements * sizeof(Stored) + 15) / 16];
  __shared__ Place taps[kColumns], windows[2][kDepth];
  int tile = blockIdx.x;
  const int first_column = next_coordinate(tile, size.tiles_n) * kColumns;
  const int first_row = next_coordinate(tile, size.tiles_m) * kRows, group = next_coordinate(tile, size.groups);
  const Phase phase = phase_at(0, size);
  const int part = tile, warp = threadIdx.x / 32, turn = warp / (kWarpsM * kWarpsN);
  const int warp_row = warp / kWarpsN % kWarpsM * (kRows / kWarpsM), warp_column = warp % kWarpsN * (kColumns / kWarpsN);
  const int first = (int)((long long)part * size.blocks / size.parts);
  const int last = (int)((long long)(part + 1) * size.blocks / size.parts);
  image += group * size.image_group, gradient += group * size.rows * size.of_window_c;

  for (int k = threadIdx.x; k < kColumns; k += kThreads) taps[k] = tap_at(first_column + k, phase, size);
  const auto find_windows = [&](int block) {
    if (threadIdx.x < kDepth) windows[block % 2][threadIdx.x] = window_at(block * kDepth + threadIdx.x, phase, size);
  };
  find_windows(first);
  __syncthreads();
  const auto stage = [&](int block) { return (Stored*)stages + block % kStages * kStageElements; };
  const auto bring = [&](int block) {
    if (block < last) {
      bring_gradient(stage(block), gradient, windows[block % 2], first_row, size);
      bring_image(stage(block) + kDepth * kRowStride, image, windows[block % 2], taps, size);
    }
    copies_end_group();
    find_windows(block + 1);
  };
  for (int i = 0; i < kStages - 1; ++i) {
    bring(first + i);
    __syncthreads();
  }
  float sum[kTilesM][kTilesN][4];
  clear_sums(sum);
  for (int block = first; block < last; ++block) {
    copies_wait<kStages - 2>();
    __syncthreads();
    bring(block + kStages - 1);
    const Stored* const from = stage(block);
    multiply(sum, from + turn * kStep * kRowStride + warp_row,
             from + kDepth * kRowStride + turn * kStep * kColumnStride + warp_column);
  }
  copies_wait<0>();
  __syncthreads();

  const Lane lane;
  partial += ((long long)part * size.groups.count + group) * size.rows * size.depth;
  // Calls visit(row, column, sum) for this lane's sums, by their place in the tile.
  const auto for_each_sum = [&](auto visit) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
        for (int i = 0; i < 4; ++i) {
          visit(warp_row + m * 16 + i / 2 * 8 + lane.g, warp_column + n * 8 + lane.t * 2 + i % 2, sum[m][n][i]);
        }
      }
    }
  };
  const auto store_sum = [&](int row, int column, float value) {
    const Place& tap = taps[column];
    row += first_row, column += first_column;
    if (row >= size.rows || column >= size.depth) return;
    partial[row * size.depth + column] =
        without_splitting(value, image, gradient + row * size.of_window_c, first * kDepth, last * kDepth, tap, phase, size);
  };
  if constexpr (kWarpsK == 1) {
    for_each_sum(store_sum);
  } else {
    float* const sums = (float*)stages;
    for (int k = 0; k < kWarpsK; ++k) {
      if (turn == k) {
        for_each_sum([&](int row, int column, float value) {
          float* const to = sums + row * kColumns + column;
          *to = k == 0 ? value : *to + value;
        });
      }
      __syncthreads();
    }
    for (int i = threadIdx.x; i < kRows * kColumns; i += kThreads) store_sum(i / kColumns, i % kColumns, sums[i]);
  }
}
