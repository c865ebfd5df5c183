// SPDX-License-Identifier: Apache-2.0
// partial[part, o, (tap, channel)] = the sum over the part's windows of gradient[window, o] patch[window, (tap,
// channel)]. A CTA goes through tiles of kRows windows, its part of them all, and keeps the sums of kOutputs outputs by
// kColumns (tap, channel)s in registers: kWarpsN warps share the columns, the others take turns along the windows. In
// the end these are added up in their order.

constexpr int kWarps = kThreads / 32, kWarpsK = kWarps / kWarpsN;
constexpr int kTilesM = kOutputs / 16, kTilesN = kColumns / kWarpsN / 8;
constexpr int kStep = 32 / (int)sizeof(Stored);  // windows that are multiplied at once
constexpr int kGradientStride = kOutputs + 8;
constexpr bool kReadsWords = sizeof(Stored) == 4 || kChannels % 16 != 0;

// Calls visit(where in shared memory, where in the gradient, whether it is there) for this thread's pieces of a tile.
// Pixels of a gradient that lies densely are as far apart as their windows: nothing has to be looked up.
template <class Visit>
PD_DEVICE void for_each_gradient(const Window* windows, int first_cell, int first_output, const Sizes& size,
                                 Visit visit) {
  constexpr int kInRow = kOutputs / kGradientPiece;
#pragma unroll 4
  for (int at = threadIdx.x; at < kRows * kInRow; at += kThreads) {
    const int r = at / kInRow, o = at % kInRow * kGradientPiece;
    const int pixel = kIsGradientDense ? (first_cell + r) * size.of_window_w : windows[r].out;
    visit(r * kGradientStride + o, pixel + (first_output + o) * size.of_window_c,
          first_cell + r < size.cells && first_output + o < size.rows);
  }
}

// In a pool's gradient a cell has one value and an index, which says which of its windows gets it: brought, rounded
// and spread. A thread always has the same outputs, and adds up the bias's gradient.
PD_DEVICE void bring_spread(Stored* to, const Stored* gradient, const unsigned char* index, const Window* windows,
                            int first_cell, int first_output, float (&of_bias)[kGradientPiece], const Sizes& size) {
  constexpr int kInRow = kOutputs / kGradientPiece;
  static_assert(kThreads % kInRow == 0);
  const int o = threadIdx.x % kInRow * kGradientPiece, output = first_output + o;
#pragma unroll 4
  for (int cell = threadIdx.x / kInRow; cell < kCells; cell += kThreads / kInRow) {
    const bool is_there = first_cell + cell < size.cells && output < size.rows;
    const Window window = windows[row_of(cell, 0, 0)];
    Pack<Stored, kGradientPiece> pack;
    Pack<unsigned char, kGradientPiece> chosen{};
    if (is_there) {
      load<true>(pack, gradient + (window.out + output * size.of_window_c));
      load<true>(chosen, index + (window.index + output * size.index_c));
    }
    float factor[kGradientPiece];
#pragma unroll
    for (int k = 0; k < kGradientPiece; ++k) {
      const float value = is_there && chosen.get(k) != kNoWindow ? pack.get(k) : 0.0f;
      of_bias[k] += value;
      factor[k] = as_factor(value);
    }
#pragma unroll
    for (int member = 0; member < kPoolRows * kPoolColumns; ++member) {
      Draft<Stored, kGradientPiece> own;
#pragma unroll
      for (int k = 0; k < kGradientPiece; ++k) own.put(k, chosen.get(k) == member ? factor[k] : 0.0f);
      store(to + row_of(cell, member / kPoolColumns, member % kPoolColumns) * kGradientStride + o, own);
    }
  }
}

// The sums of the threads that have an output, in their order.
PD_DEVICE void add_up_bias(float* partial, float* shared, const float (&of_bias)[kGradientPiece], int first_output,
                           const Sizes& size) {
  constexpr int kInRow = kOutputs / kGradientPiece;
#pragma unroll
  for (int k = 0; k < kGradientPiece; ++k) {
    shared[threadIdx.x / kInRow * kOutputs + threadIdx.x % kInRow * kGradientPiece + k] = of_bias[k];
  }
  __syncthreads();
  const int o = threadIdx.x;
  if (o >= kOutputs || first_output + o >= size.rows) return;
  float sum = 0;
  for (int i = 0; i < kThreads / kInRow; ++i) sum += shared[i * kOutputs + o];
  partial[first_output + o] = sum;
}

// A step of windows: the factors are `offsets` of their (tap, channel)s, a lane's column of each tile. A lane reads
// them itself, or, in 16 bits and whole steps of channels, says where rows of 8 begin, which the squares are transposed
// out of.
PD_DEVICE void multiply(float (&sum)[kTilesM][kTilesN][4], const Stored* gradient, const Stored* patch,
                        const Window* windows, const int (&offsets)[kTilesN]) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Word rows[kTilesM][4], columns[kTilesN][2];
  if constexpr (sizeof(Stored) == 4) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        rows[m][i] = *(const Word*)(gradient + (t + i / 2 * 4) * kGradientStride + m * 16 + i % 2 * 8 + g);
      }
    }
  } else {
    const int row = lane % 8, square = lane / 8;
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
      load_transposed(rows[m], gradient + (square / 2 * 8 + row) * kGradientStride + m * 16 + square % 2 * 8);
    }
  }
  if constexpr (kReadsWords) {
    const Stored* from[2][kInWord];
#pragma unroll
    for (int i = 0; i < 2 * kInWord; ++i) {
      const Window& window = windows[(i / kInWord * 4 + t) * kInWord + i % kInWord];
      from[i / kInWord][i % kInWord] = patch + window.slot * kSlot;
    }
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) {
        columns[n][i] = 0;
#pragma unroll
        for (int j = 0; j < kInWord; ++j) columns[n][i] |= bits_at(from[i][j] + offsets[n]) << (16 * j);
      }
    }
  } else {
    const Stored* const from = patch + windows[lane / 8 % 2 * 8 + lane % 8].slot * kSlot;
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) load_transposed(columns[n], from + offsets[n]);
  }
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) add_tile<Stored>(sum[m][n], rows[m], columns[n]);
  }
}

PD_DEVICE void add_up(const Stored* images, const Stored* gradient, const unsigned char* index, float* partial,
                      const Sizes& size) {
  PD_DYNAMIC_SHARED(Stored, own_gradient);
  Window* const windows = (Window*)(own_gradient + kRows * kGradientStride);
  Stored* const patch = (Stored*)(windows + kRows);
  int rest = blockIdx.x;
  const int first_column = next_coordinate(rest, size.tiles_n) * kColumns;
  const int first_output = next_coordinate(rest, size.tiles_m) * kOutputs, part = rest;
  const int warp = threadIdx.x / 32, lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const int warp_column = warp % kWarpsN * kTilesN * 8, turn = warp / kWarpsN;

  int offsets[kTilesN];
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    const int k = first_column + warp_column + n * 8 + (kReadsWords ? g : 0), tap = k / kChannels;
    offsets[n] = tap < kTaps ? tap_offset(tap / kKernelColumns, tap % kKernelColumns, size) + k % kChannels : 0;
  }
  float sum[kTilesM][kTilesN][4], of_bias[kGradientPiece];
  clear<Sum>(of_bias);
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) clear<Sum>(sum[m][n]);
  }
  for (int tile = part; tile < size.tiles; tile += size.parts) {
    const int first_cell = tile * kCells;
    const int first = window_at(first_cell, 0, size).row;
    const int last = window_at(first_cell, kRows - 1, size).row + size.reach_h;
    const auto bring_gradient = [&] {
      for_each_gradient(windows, first_cell, first_output, size, [&](int to, int from, bool is_there) {
        bring_piece<kGradientPiece>(own_gradient + to, gradient + from, is_there);
      });
    };
    if constexpr (kIsGradientDense && !kIsPooled) bring_gradient();
    bring_patch(patch, images, first, last, size);
    for (int r = threadIdx.x; r < kRows; r += kThreads) {
      Window window = window_at(first_cell, r, size);
      window.slot += (window.row - first) * size.patch_columns;
      windows[r] = window;
    }
    if constexpr (kIsPooled) {
      __syncthreads();
      bring_spread(own_gradient, gradient, index, windows, first_cell, first_output, of_bias, size);
    } else if constexpr (!kIsGradientDense) {
      __syncthreads();
      bring_gradient();
      copies_end_group();
    }
    finish_patch(patch, first, last, size);
    if constexpr (kSame<Stored, float> && !kIsPooled) {
      for_each_gradient(windows, first_cell, first_output, size,
                        [&](int to, int, bool) { round_words<kGradientPiece>(own_gradient + to); });
    }
    __syncthreads();
#pragma unroll 1
    for (int step = turn * kStep; step < kRows; step += kWarpsK * kStep) {
      multiply(sum, own_gradient + step * kGradientStride, patch, windows + step, offsets);
    }
    __syncthreads();
  }

  float* const sums = (float*)own_gradient;
  for (int k = 0; k < kWarpsK; ++k) {
    if (turn == k) {
#pragma unroll
      for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
        for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
          for (int i = 0; i < 4; ++i) {
            float* const to = sums + (m * 16 + i / 2 * 8 + g) * kColumns + warp_column + n * 8 + t * 2 + i % 2;
            *to = k == 0 ? sum[m][n][i] : *to + sum[m][n][i];
          }
        }
      }
    }
    __syncthreads();
  }
  partial += (long long)part * size.rows * (size.depth + (kHasBiasGradient ? 1 : 0));
  for (int i = threadIdx.x; i < kOutputs * kColumns; i += kThreads) {
    const int row = first_output + i / kColumns, column = first_column + i % kColumns;
    if (row < size.rows && column < size.depth) partial[row * size.depth + column] = sums[i];
  }
  if constexpr (kHasBiasGradient) {
    if (first_column != 0) return;
    __syncthreads();
    add_up_bias(partial + size.rows * size.depth, sums, of_bias, first_output, size);
  }
}
