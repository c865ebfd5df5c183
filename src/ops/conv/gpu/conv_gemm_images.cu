// SPDX-License-Identifier: Apache-2.0
// out[window, o] = image[window, (tap, channel)] weights[o, (tap, channel)]: a convolution, or its gradient for the
// image. A CTA has kRows windows by kColumns columns o of one group; blocks of kDepth along (tap, channel) are on their
// way, kStages of them, while warps, which have kWarpRows by kWarpColumns each, multiply one. A row of a block is 64
// bytes in shared memory, and 16 more from row to row, so that a warp's words come from different banks. Where tiles
// are few, the blocks of one are shared out to CTAs, its parts, of which the last to be done adds up the sums of all,
// in their order.

constexpr int kDepth = 64 / (int)sizeof(Stored), kStride = 80 / (int)sizeof(Stored);
constexpr int kStageElements = (kRows + kColumns) * kStride;
constexpr int kTilesM = kWarpRows / 16, kTilesN = kWarpColumns / 8, kWarpsN = kColumns / kWarpColumns;

// A thread's part of the image: pieces of one column and some rows, or of one row and some columns if a piece is an
// element, as pixels, not channels, then lie side by side.
constexpr bool kIsByRows = kPiece == 1;
constexpr int kInRow = kDepth / kPiece, kPieces = kRows * kInRow / kThreads;
static_assert(kRows * kInRow % kThreads == 0 && (kIsByRows ? kThreads % kRows == 0 : kThreads % kInRow == 0));
constexpr int kRowsOfThread = kIsByRows ? 1 : kPieces;

PD_DEVICE void bring_image(Stored* to, const Stored* image, const Place (&rows)[kRowsOfThread], const Place* taps,
                           const Sizes& size) {
  const int at = threadIdx.x;
  if constexpr (kIsByRows) {
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      const int r = at % kRows, q = at / kRows + i * (kThreads / kRows);
      gather_piece(to + r * kStride + q, image, rows[0], taps[q], size);
    }
  } else {
    const int q = at % kInRow * kPiece;
    const Place column = taps[q];
#pragma unroll
    for (int i = 0; i < kPieces; ++i) {
      gather_piece(to + (at / kInRow + i * (kThreads / kInRow)) * kStride + q, image, rows[i], column, size);
    }
  }
}

// Brings pieces of the weights, of one (tap, channel) for some columns, or the other way round, whichever lies closer
// together. `weights` are those of the CTA's columns, of which `count` are there.
PD_DEVICE void bring_weights(Stored* to, const Stored* weights, const Place* taps, int count, const Sizes& size) {
  constexpr int kInRow = kDepth / kWeightPiece, kPieces = kColumns * kInRow;
  constexpr int kAcross = kAreWeightsByRows ? kColumns : kInRow, kTurns = (kPieces + kThreads - 1) / kThreads;
  static_assert(kThreads % kAcross == 0);
  const int at = threadIdx.x % kAcross, first = threadIdx.x / kAcross;
  if (kPieces < kThreads && (int)threadIdx.x >= kPieces) return;
  Place tap;
  if constexpr (!kAreWeightsByRows) tap = taps[at * kWeightPiece];
#pragma unroll
  for (int i = 0; i < kTurns; ++i) {
    const int other = first + i * (kThreads / kAcross);
    const int n = kAreWeightsByRows ? at : other, q = (kAreWeightsByRows ? other : at) * kWeightPiece;
    if constexpr (kAreWeightsByRows) tap = taps[q];
    copy_piece<kWeightPiece>(to + n * kStride + q, weights + (n * size.weight_n + tap.other),
                             n < count && tap.h > kFar / 2);
  }
}

// One block; a and b are where the warp's rows and columns of it begin.
PD_DEVICE void multiply(float (&sum)[kTilesM][kTilesN][4], const Stored* a, const Stored* b) {
  const Lane lane;
  const unsigned* const a_words = (const unsigned*)a + lane.g * 20 + lane.t;
  const unsigned* const b_words = (const unsigned*)b + lane.g * 20 + lane.t;
#pragma unroll
  for (int step = 0; step < 16; step += 8) {
    unsigned rows[kTilesM][4], columns[kTilesN][2];
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) rows[m][i] = a_words[(m * 16 + i % 2 * 8) * 20 + step + i / 2 * 4];
    }
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) {
#pragma unroll
      for (int i = 0; i < 2; ++i) columns[n][i] = b_words[n * 8 * 20 + step + i * 4];
    }
    add_tiles(sum, rows, columns);
  }
}

// False where another part of the tile is still under way.
PD_DEVICE bool add_parts(float (&sum)[kTilesM][kTilesN][4], float* of_tile, unsigned* ticket, int part, int parts) {
  constexpr int kPartElements = kTilesM * kTilesN * 4 * kThreads;
  float* const own = of_tile + threadIdx.x * 4;
#pragma unroll
  for (int i = 0; i < kTilesM * kTilesN; ++i) {
    const float (&from)[4] = sum[i / kTilesN][i % kTilesN];
    *(float4*)(own + part * kPartElements + i * (kThreads * 4)) = {from[0], from[1], from[2], from[3]};
  }
  if (!is_last_arriver(ticket, parts)) return false;
#pragma unroll
  for (int i = 0; i < kTilesM * kTilesN; ++i) {
    fold_parts<Sum>(sum[i / kTilesN][i % kTilesN], own + i * (kThreads * 4), parts, kPartElements);
  }
  return true;
}

// A sum, or where it is NaN, as it is when a non-finite factor was split (kIsExact), the sum without splitting. NaN
// stays NaN whatever is added, so the loop ends there.
PD_DEVICE float without_splitting(float sum, const Stored* image, const Stored* weights, const Place& window, const Phase& phase,
                         const Sizes& size) {
  if (!kIsExact || sum == sum) return sum;
  sum = 0;
  for (int k = 0; k < phase.depth && sum == sum; ++k) {
    const Place tap = tap_at(k, phase, size);
    if (!is_on_image(window, tap, size)) continue;
    sum += load_one<false>(image + (window.offset + tap.offset)) * load_one<false>(weights + tap.other);
  }
  return sum;
}

PD_DEVICE void convolve(const Stored* image, const Stored* weights, const Stored* bias, const Stored* added, Stored* out,
                        const LaunchScratch& scratch, const Sizes& size) {
  __shared__ uint4 stages[kStages * kStageElements * sizeof(Stored) / 16];
  __shared__ Place windows[kRows], taps[2][kDepth];
  int tile = blockIdx.x;
  const int part = kHasParts ? next_coordinate(tile, size.parts) : 0, whole = tile;
  const int first_column = next_coordinate(tile, size.tiles_n) * kColumns, group = next_coordinate(tile, size.groups);
  const Phase phase = phase_at(kHasPhases ? next_coordinate(tile, size.phases) : 0, size);
  const int all_blocks = kHasPhases ? (phase.depth + kDepth - 1) / kDepth : size.blocks;
  const int first_block = kHasParts ? part * all_blocks / (int)size.parts.count : 0;
  const int blocks = kHasParts ? (part + 1) * all_blocks / (int)size.parts.count : all_blocks;
  const int first_row = tile * kRows, warp = threadIdx.x / 32;
  const int warp_row = warp / kWarpsN * kWarpRows, warp_column = warp % kWarpsN * kWarpColumns;
  image += group * size.image_group, weights += group * size.weight_group + first_column * size.weight_n;

  for (int r = threadIdx.x; r < kRows; r += kThreads) windows[r] = window_at(first_row + r, phase, size);
  const auto find_taps = [&](int block) {
    const int k = threadIdx.x - block * 32 % kThreads;  // warps take turns
    if (k >= 0 && k < kDepth) taps[block % 2][k] = tap_at(block * kDepth + k, phase, size);
  };
  find_taps(first_block);
  __syncthreads();
  Place rows[kRowsOfThread];
#pragma unroll
  for (int i = 0; i < kRowsOfThread; ++i) {
    rows[i] = windows[kIsByRows ? threadIdx.x % kRows : threadIdx.x / kInRow + i * (kThreads / kInRow)];
  }
  const auto stage = [&](int block) { return (Stored*)stages + block % kStages * kStageElements; };
  const auto bring = [&](int block) {
    if (block < blocks) {
      bring_image(stage(block), image, rows, taps[block % 2], size);
      bring_weights(stage(block) + kRows * kStride, weights, taps[block % 2], size.columns - first_column, size);
    }
    copies_end_group();
    find_taps(block + 1);
  };
  for (int i = 0; i < kStages - 1; ++i) {
    bring(first_block + i);
    __syncthreads();
  }
  float sum[kTilesM][kTilesN][4];
  clear_sums(sum);
  for (int block = first_block; block < blocks; ++block) {
    copies_wait<kStages - 2>();
    __syncthreads();
    bring(block + kStages - 1);
    const Stored* const from = stage(block);
    multiply(sum, from + warp_row * kStride, from + (kRows + warp_column) * kStride);
  }
  if constexpr (kHasParts) {
    const int parts = (int)size.parts.count;
    float* const of_tiles = (float*)((char*)scratch.workspace + size.parts_at_wide);
    float* const of_tile = of_tiles + (long long)whole * parts * (kRows * kColumns);
    if (!add_parts(sum, of_tile, scratch.tickets + whole, part, parts)) return;
  }

  const Lane lane;
  out += group * size.out_group;
  if constexpr (kHasAdded) added += group * size.out_group;
  if constexpr (kHasBias) bias += group * size.columns * size.bias;
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) {
    const int column = first_column + warp_column + n * 8 + lane.t * 2, count = size.columns - column;
    float of_bias[2] = {0, 0};
    if constexpr (kHasBias) {
      if (count > 0) of_bias[0] = load_one<true>(bias + column * size.bias);
      if (count > 1) of_bias[1] = load_one<true>(bias + (column + 1) * size.bias);
    }
#pragma unroll
    for (int i = 0; i < kTilesM * 2; ++i) {
      const int row = warp_row + i / 2 * 16 + i % 2 * 8 + lane.g;
      if (windows[row].h < kFar / 2 || count <= 0) continue;
      const int at = windows[row].other + column * size.of_window_c;
      Draft<Stored, 2> made;
#pragma unroll
      for (int k = 0; k < 2; ++k) {
        const Stored* const of_column = weights + (column - first_column + k) * size.weight_n;
        float value = of_bias[k];
        if (k < count) {
          value += without_splitting(sum[i / 2][n][i % 2 * 2 + k], image, of_column, windows[row], phase, size);
        }
        if constexpr (kHasAdded) {
          if (k < count) value += load_one<true>(added + (at + k * size.of_window_c));
        }
        made.put(k, activated(value));
      }
      Stored* const to = out + at;
      if constexpr (kIsOutInPairs) store(to, made);
      else store_each(to, size.of_window_c, count < 2 ? count : 2, made);
    }
  }
}
