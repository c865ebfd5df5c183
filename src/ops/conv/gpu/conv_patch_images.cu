// SPDX-License-Identifier: Apache-2.0
// out[window, o] = patch[window, (tap, channel)] weights[o, (tap, channel)]: a convolution, or its gradient for the
// image where windows are next to each other. A CTA has all weights in shared memory, and goes through tiles of kRows
// windows; each of its 4 warps has a quarter of them, and all columns. While the sums of a tile are stored the next
// patch comes. It may store the largest of each cell; it may read a pool's gradient, which its index spreads.

constexpr int kTilesM = kWarpRows / 16, kTilesN = kColumns / 8;
constexpr int kStep = 8 * kInWord;                                               // elements that are multiplied at once
constexpr int kDepth = (kTaps * kChannels + kStep - 1) / kStep * kStep;          // of (tap, channel)
constexpr int kWeightStride = kDepth + 4 * kInWord, kWeights = kColumns * kWeightStride;

// Weights [o, channel, tap], or for gradients [channel, o, tap] with the taps in their opposite order, in the order in
// which they lie, kWeightPiece at a time.
PD_DEVICE void bring_weights(Stored* to, const Stored* weights, const Sizes& size) {
  if constexpr (kFilled < kColumns || kTaps * kChannels < kDepth) {
    for (int at = threadIdx.x; at < kWeights * (int)sizeof(Stored) / 16; at += kThreads) {
      ((uint4*)to)[at] = make_uint4(0, 0, 0, 0);
    }
    __syncthreads();
  }
  constexpr int kInner = kIsBack ? kFilled : kChannels;
#pragma unroll 8
  for (int at = threadIdx.x * kWeightPiece; at < kFilled * kChannels * kTaps; at += kThreads * kWeightPiece) {
    Pack<Stored, kWeightPiece> pack;
    if constexpr (kAreWeightsDense) load<true>(pack, weights + at);
#pragma unroll
    for (int i = 0; i < kWeightPiece; ++i) {
      const int tap = (at + i) % kTaps, inner = (at + i) / kTaps % kInner, outer = (at + i) / kTaps / kInner;
      Pack<Stored, 1> one;
      if constexpr (kAreWeightsDense) {
        one.word[0] = sizeof(Stored) == 4 ? pack.word[i] : pack.word[i / 2] >> (16 * (i % 2)) & 0xffffu;
      } else {
        load<true>(one, weights + (outer * size.weight_n + inner * size.weight_c + tap / kKernelColumns * size.weight_h +
                                   tap % kKernelColumns * size.weight_w));
      }
      if constexpr (kSame<Stored, float>) one.word[0] = round_to_tf32(one.word[0]);
      const int n = kIsBack ? inner : outer, c = kIsBack ? outer : inner, k = kIsBack ? kTaps - 1 - tap : tap;
      store(to + n * kWeightStride + k * kChannels + c, one);
    }
  }
}

struct Fragments {
  Word rows[kTilesM][4], columns[kTilesN][2];

  // Loads the weights from element k on.
  PD_DEVICE void load_weights(const Stored* weights, int k) {
    const int lane = threadIdx.x % 32;
    if constexpr (kTilesN % 2 == 0) {
#pragma unroll
      for (int n = 0; n < kTilesN; n += 2) {
        Word words[4];
        const int row = n * 8 + lane / 16 * 8 + lane % 8;
        load_squares(words, weights + row * kWeightStride + k + lane / 8 % 2 * 4 * kInWord);
        columns[n][0] = words[0], columns[n][1] = words[1], columns[n + 1][0] = words[2], columns[n + 1][1] = words[3];
      }
    } else {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) {
        load_squares(columns[n], weights + (n * 8 + lane % 8) * kWeightStride + k + lane / 8 % 2 * 4 * kInWord);
      }
    }
  }
  PD_DEVICE void multiply(float (&sum)[kTilesM][kTilesN][4]) const {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) add_tile<Stored>(sum[m][n], rows[m], columns[n]);
    }
  }
};

// Channels in whole steps: squares of a tap's pixels.
PD_DEVICE void multiply_by_channels(float (&sum)[kTilesM][kTilesN][4], const Stored* patch, const Stored* weights,
                                    const Window* windows, const Sizes& size) {
  const int lane = threadIdx.x % 32;
  const Stored* from[kTilesM];
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
    from[m] = patch + windows[m * 16 + lane % 16].slot * kSlot + lane / 16 * 4 * kInWord;
  }
#pragma unroll 1
  for (int k = 0; k < kTaps / kKernelColumns; ++k) {
#pragma unroll 4
    for (int l = 0; l < kKernelColumns; ++l) {
      const int tap = tap_offset(k, l, size);
#pragma unroll
      for (int c = 0; c < kChannels; c += kStep) {
        Fragments f;
        f.load_weights(weights, (k * kKernelColumns + l) * kChannels + c);
#pragma unroll
        for (int m = 0; m < kTilesM; ++m) load_squares(f.rows[m], from[m] + tap + c);
        f.multiply(sum);
      }
    }
  }
}

// Channels that are no whole step: element by element; `offsets` says where (tap, channel) k is, -1 after the last.
PD_DEVICE void multiply_by_words(float (&sum)[kTilesM][kTilesN][4], const Stored* patch, const Stored* weights,
                                 const Window* windows, const int* offsets) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  const Stored* from[kTilesM * 2];
#pragma unroll
  for (int m = 0; m < kTilesM * 2; ++m) from[m] = patch + windows[m * 8 + g].slot * kSlot;
#pragma unroll 4
  for (int k = 0; k < kDepth; k += kStep) {
    Fragments f;
    f.load_weights(weights, k);
    int at[2][kInWord];
#pragma unroll
    for (int i = 0; i < 2 * kInWord; ++i) {
      at[i / kInWord][i % kInWord] = offsets[k + (i / kInWord * 4 + t) * kInWord + i % kInWord];
    }
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        f.rows[m][i] = 0;
#pragma unroll
        for (int j = 0; j < kInWord; ++j) {
          const int offset = at[i / 2][j];
          f.rows[m][i] |= offset < 0 ? 0u : bits_at(from[m * 2 + i % 2] + offset) << (16 * j);
        }
      }
    }
    f.multiply(sum);
  }
}

PD_DEVICE void store_sums(const float (&sum)[kTilesM][kTilesN][4], const Stored* bias, Stored* out,
                          const Window* windows, int first_cell, const Sizes& size) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    const int column = n * 8 + t * 2, count = kFilled - column;
    float added[2] = {0, 0};
    if constexpr (kHasBias) {
      if (count > 0) added[0] = load_one<true>(bias + column * size.bias);
      if (count > 1) added[1] = load_one<true>(bias + (column + 1) * size.bias);
    }
#pragma unroll
    for (int i = 0; i < kTilesM * 2; ++i) {
      if (first_cell + i * 8 + g >= size.cells || count <= 0) continue;
      Draft<Stored, 2> made;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const float value = sum[i / 2][n][i % 2 * 2 + k] + added[k];
        made.put(k, activated(value));
      }
      Stored* const to = out + windows[i * 8 + g].out + column * size.of_window_c;
      if constexpr (kIsOutInPairs) store(to, made);
      else store_each(to, size.of_window_c, count < 2 ? count : 2, made);
    }
  }
}

// NaN is larger than any number; of equal ones the first counts.
PD_DEVICE bool is_larger(float a, int member, float b, int other) {
  const bool is_nan = a != a, is_other_nan = b != b;
  if (is_nan || is_other_nan) return is_nan && (!is_other_nan || member < other);
  return a > b || (a == b && member < other);
}

// Stores each cell's largest, and which of its windows that is. A lane has windows below each other; lanes 4 apart have
// those beside them.
PD_DEVICE void store_largest(const float (&sum)[kTilesM][kTilesN][4], const Stored* bias, Stored* out,
                             unsigned char* index, const Window* windows, int first_cell, const Sizes& size) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    const int column = n * 8 + t * 2, count = kFilled - column;
    float added[2] = {0, 0};
    if (count > 0) added[0] = load_one<true>(bias + column * size.bias);
    if (count > 1) added[1] = load_one<true>(bias + (column + 1) * size.bias);
#pragma unroll
    for (int first = 0; first < kTilesM * 2; first += kPoolRows) {
      Draft<Stored, 2> made;
      Draft<unsigned char, 2> chosen;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        float value = 0;
        int member = g % kPoolColumns;
#pragma unroll
        for (int row = 0; row < kPoolRows; ++row) {
          const int i = first + row, other = row * kPoolColumns + g % kPoolColumns;
          const float candidate = convert_to<Stored>(sum[i / 2][n][i % 2 * 2 + k] + added[k]);
          if (row == 0 || is_larger(candidate, other, value, member)) value = candidate, member = other;
        }
#pragma unroll
        for (int beside = 1; beside < kPoolColumns; beside *= 2) {
          const float candidate = __shfl_xor_sync(0xffffffffu, value, 4 * beside);
          const int other = __shfl_xor_sync(0xffffffffu, member, 4 * beside);
          if (is_larger(candidate, other, value, member)) value = candidate, member = other;
        }
        made.put(k, activated(value));
        chosen.put(k, kHasRelu && value <= 0 ? kNoWindow : member);
      }
      const int r = first * 8 + g;
      if (g % kPoolColumns != 0 || first_cell + member_at(r).cell >= size.cells || count <= 0) continue;
      Stored* const to = out + windows[r].out + column * size.of_window_c;
      if constexpr (kIsOutInPairs) store(to, made);
      else if constexpr (kHasResult) store_each(to, size.of_window_c, count < 2 ? count : 2, made);
      if constexpr (kHasIndex) {
        unsigned char* const where = index + windows[r].index + column * size.index_c;
        if constexpr (kIsIndexInPairs) store(where, chosen);
        else store_each(where, size.index_c, count < 2 ? count : 2, chosen);
      }
    }
  }
}

// Does the work of bring_patch() and finish_patch() where the image is a pool's gradient: a pixel has its cell's
// gradient if the index says so.
PD_DEVICE void bring_spread(Stored* patch, const Stored* gradient, const unsigned char* index, int first, int last,
                            const Sizes& size) {
  for_each_piece(first, last, size, [&](int to, int n, int h, int w, int c, bool is_there) {
    Pack<Stored, kPiece> pack;
    Pack<unsigned char, kPiece> chosen{};
    if (is_there) {
      const int i = h / kSpreadRows, j = w / kSpreadColumns;
      load<true>(pack, gradient + (n * size.image_n + i * size.image_h + j * size.image_w + c * size.image_c));
      load<true>(chosen, index + (n * size.index_n + i * size.index_h + j * size.index_w + c * size.index_c));
    }
    const int member = h % kSpreadRows * kSpreadColumns + w % kSpreadColumns;
    Draft<Stored, kPiece> made;
#pragma unroll
    for (int k = 0; k < kPiece; ++k) made.put(k, is_there && chosen.get(k) == member ? as_factor(pack.get(k)) : 0.0f);
    store(patch + to, made);
  });
}

// `index` is read where a gradient is spread, written where cells are pooled.
PD_DEVICE void convolve(const Stored* images, const Stored* weights, const Stored* bias, unsigned char* index,
                        Stored* out, const Sizes& size) {
  PD_DYNAMIC_SHARED(Stored, own_weights);
  Window* const all_windows = (Window*)(own_weights + kWeights);
  int* const offsets = (int*)(all_windows + 2 * kRows);
  Stored* const patch = (Stored*)(offsets + (kIsByChannels ? 0 : kDepth));
  int first = 0, last = 0;  // rows of the patch
  const auto bring = [&](int tile) {
    first = window_at(tile * kCells, 0, size).row;
    last = window_at(tile * kCells, kRows - 1, size).row + size.reach_h;
    if constexpr (kIsSpread) bring_spread(patch, images, index, first, last, size);
    else bring_patch(patch, images, first, last, size);
  };
  bring(blockIdx.x);
  bring_weights(own_weights, weights, size);
  if constexpr (!kIsByChannels) {
    for (int k = threadIdx.x; k < kDepth; k += kThreads) {
      const int tap = k / kChannels;
      offsets[k] = tap < kTaps ? tap_offset(tap / kKernelColumns, tap % kKernelColumns, size) + k % kChannels : -1;
    }
  }
  const int warp = threadIdx.x / 32, warp_row = warp * kWarpRows;
  int turn = 0;
  for (int tile = blockIdx.x; tile < size.tiles; tile += gridDim.x, turn ^= 1) {
    Window* const windows = all_windows + turn * kRows;
    for (int r = threadIdx.x; r < kRows; r += kThreads) {
      Window window = window_at(tile * kCells, r, size);
      window.slot += (window.row - first) * size.patch_columns;
      windows[r] = window;
    }
    if constexpr (!kIsSpread) finish_patch(patch, first, last, size);
    __syncthreads();
    float sum[kTilesM][kTilesN][4];
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int n = 0; n < kTilesN; ++n) clear<Sum>(sum[m][n]);
    }
    const Window* const own = windows + warp_row;
    if constexpr (kIsByChannels) multiply_by_channels(sum, patch, own_weights, own, size);
    else multiply_by_words(sum, patch, own_weights, own, offsets);
    __syncthreads();
    if (tile + (int)gridDim.x < size.tiles) bring(tile + gridDim.x);
    const int first_cell = tile * kCells + warp * kWarpCells;
    if constexpr (kIsPooled) store_largest(sum, bias, out, index, own, first_cell, size);
    else store_sums(sum, bias, out, own, first_cell, size);
  }
}
