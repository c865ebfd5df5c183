// SPDX-License-Identifier: Apache-2.0
// out[m, n] = a[m, k] b[k, n] of f32 by the tensor cores, its factors rounded to TF32 (10 bits of mantissa), its sums
// in f32; or (kIsExact) each factor as two of TF32, and three products, which leaves out 2^-21 of each. For few rows
// such a product waits for its operands. One warp has TMA load blocks of 32 along K, kStages under way; groups of four
// warps (kGroups) multiply 64 columns of b each by all kRows rows of a; and K is shared out over the CTAs of a cluster,
// and within one over kParts such sets of groups, which take its blocks in turn, so that one has its factors ready
// while another's are multiplied. Sums are then added up in one order, out of the shared memory of the cluster. The
// tensor cores want TF32 in shared memory with K innermost. b may have N there, so it is b that they get from
// registers, as the 64 rows of b^T a^T, and a that stays in shared memory as it came.
// A stage: kRows rows of a, then b's columns, or for b as [k, n] a TMA tile of 32 k's for every 32 columns.

constexpr int kOfPart = 128 * kGroups, kConsumers = kOfPart * kParts, kColumns = 64 * kGroups, kBlockK = 32;
constexpr int kStageFloats = (kRows + kColumns) * kBlockK, kLowPlaces = kIsExact ? 3 : 0;
constexpr int kOutStride = kColumns + 4;  // floats from row to row of the sums: a warp's go to different banks
constexpr int kLowFloats = kLowPlaces * kRows * kBlockK;  // of a part

// Where word `word` of row `row` of a TMA tile lies: pieces of 4 words have changed places.
PD_DEVICE int in_tma_tile(int row, int word) { return row * 32 + ((word / 4 ^ row % 8) * 4 + word % 4); }

// The thread that has blocks brought; b's before the launch in front has ended, where that does not write b.
PD_DEVICE void bring_blocks(const Map& a_map, const Map& b_map, float* stages, Mbarriers* mbarriers, Index row, Index column,
                            Index first, Index last, const LaunchScratch& scratch) {
  const auto bring_b = [&](Index block, int s) {
    float* const to = stages + s * kStageFloats + kRows * kBlockK;
    mbarrier_arrive_expect_tx(&mbarriers->full[s], kStageFloats * 4);
    if constexpr (kIsTransposedB) {
      tma_load(to, b_map, block * kBlockK, column, &mbarriers->full[s]);
    } else {
#pragma unroll
      for (int i = 0; i < kColumns / 32; ++i) {
        tma_load(to + i * 32 * kBlockK, b_map, column + i * 32, block * kBlockK, &mbarriers->full[s]);
      }
    }
  };
  const auto bring_a = [&](Index block, int s) {
    tma_load(stages + s * kStageFloats, a_map, block * kBlockK, row, &mbarriers->full[s]);
  };
  const Index ahead = first + kStages < last ? first + kStages : last;
  if constexpr (kIsBUnmodifiedByPrevious) {
    for (Index block = first; block < ahead; ++block) bring_b(block, block - first);
    grid_dependency_wait();
    leave_stamp(scratch);
    for (Index block = first; block < ahead; ++block) bring_a(block, block - first);
  } else {
    grid_dependency_wait();
    leave_stamp(scratch);
    for (Index block = first; block < ahead; ++block) bring_b(block, block - first), bring_a(block, block - first);
  }
  Turn turn;
  for (Index block = ahead; block < last; ++block, turn.next()) {
    wait_for(&mbarriers->free[turn.stage], turn.round);
    bring_b(block, turn.stage);
    bring_a(block, turn.stage);
  }
}

// A lane's operands of b's block: words (k, column) for the columns w * 16 + g of warp w = threadIdx.x / 32, g = lane /
// 4, and 8 more; of each step of 8 along K the words t = lane % 4 and t + 4. Their addresses are computed once: a warp
// has no other beside it to hide such arithmetic behind.
struct Words {
  static constexpr int kOffsets = kIsTransposedB ? 8 : 4;
  int offset[kOffsets];

  PD_DEVICE Words() {
    const int t = threadIdx.x % 4, column = threadIdx.x % kOfPart / 32 * 16 + threadIdx.x % 32 / 4;
#pragma unroll
    for (int i = 0; i < kOffsets; ++i) {
      offset[i] = kIsTransposedB ? in_tma_tile(column, i * 4 + t)  // 4 k's each
                                 : column / 32 * (32 * kBlockK) + in_tma_tile(i % 2 * 4 + t, column % 32 + i / 2 * 8);
      keep(offset[i]);
    }
  }
  PD_DEVICE void load(unsigned (&words)[4][4], const float* b) const {
#pragma unroll
    for (int i = 0; i < 16; ++i) {
      const int step = i / 4, half = i / 2 % 2, more = i % 2;  // k = step * 8 + half * 4 + t; 8 columns more
      const int at = kIsTransposedB ? offset[step * 2 + half] + more * 8 * 32 : offset[more * 2 + half] + step * 8 * 32;
      words[step][i % 4] = __float_as_uint(b[at]);
    }
  }
};

// The rows of a in a stage become their high parts (kIsExact), and their low parts come to `low`, all in the same
// places.
PD_DEVICE void split_rows(float* rows, float* low) {
#pragma unroll
  for (int i = 0; i < kRows * 8 / kOfPart; ++i) {
    const int piece = i * kOfPart + threadIdx.x % kOfPart;
    float4* const at = (float4*)rows + piece;
    float4 rest = *at;
    float4 high;
    high.x = take_high(rest.x), high.y = take_high(rest.y), high.z = take_high(rest.z), high.w = take_high(rest.w);
    *at = high, ((float4*)low)[piece] = rest;
  }
  copies_follow_stores();
  barrier_wait(1 + threadIdx.x / kOfPart, kOfPart);
}
PD_DEVICE void split_words(unsigned (&words)[4][4], unsigned (&low)[4][4]) {
#pragma unroll
  for (int i = 0; i < 16; ++i) {
    float value = __uint_as_float(words[i / 4][i % 4]);
    words[i / 4][i % 4] = __float_as_uint(take_high(value));
    low[i / 4][i % 4] = __float_as_uint(value);
  }
}

// The 64 columns of a group of warps, times all rows: a lane gets its columns for rows 2 t and 2 t + 1 of each 8, of
// the blocks that are its part's. While the tensor cores work on a block, the words of the next one are loaded. Exact
// products add up each block by itself, as the tensor cores truncate their sums; a block's low rows have places after
// the stages, kLowPlaces in turn: a warp may be at the products of a block while another has waited for them and makes
// the rows of the block after the next.
PD_DEVICE void multiply_blocks(float (&sum)[kRows / 2], float* stages, Mbarriers* mbarriers, int all_blocks) {
  const int of_part = threadIdx.x / kOfPart, blocks = (all_blocks - of_part + kParts - 1) / kParts;
  const Words lane;
  unsigned words[2][4][4], low[2][4][4];
  float part[kRows / 2];
  float* const low_places = stages + kStages * kStageFloats + of_part * kLowFloats;
  float* low_rows = low_places;
  Turn turn;
  if (blocks <= 0) return;
  turn.next(of_part);
  const auto load = [&](int i, int block) {
    float* const stage = stages + turn.stage * kStageFloats;
    wait_for(&mbarriers->full[turn.stage], turn.round);
    lane.load(words[i], stage + kRows * kBlockK);
    if constexpr (kIsExact) {
      split_words(words[i], low[i]);
      low_rows = low_places + block % kLowPlaces * (kRows * kBlockK);
      split_rows(stage, low_rows);
    }
  };
  load(0, 0);
  for (int pair = 0; pair < blocks; pair += 2) {
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      if (pair + i == blocks) break;
      if constexpr (kIsExact) {
#pragma unroll
        for (int k = 0; k < kRows / 2; ++k) part[k] = 0;
      }
      products_begin();
      const TmaTile a = tma_tile_of(stages + turn.stage * kStageFloats), a_low = tma_tile_of(low_rows);
      if constexpr (kIsExact) {  // small terms first, as less of them is cut off
#pragma unroll
        for (int step = 0; step < 4; ++step) {
          add_product(part, low[i][step], a, step), add_product(part, words[i][step], a_low, step);
        }
      }
#pragma unroll
      for (int step = 0; step < 4; ++step) add_product(kIsExact ? part : sum, words[i][step], a, step);
      products_start();
      unsigned long long* const free = &mbarriers->free[turn.stage];
      turn.next(kParts);
      if (pair + i + 1 < blocks) load(1 - i, pair + i + 1);
      if constexpr (kIsExact) {
        products_wait(part);
#pragma unroll
        for (int k = 0; k < kRows / 2; ++k) sum[k] += part[k];
      } else {
        products_wait(sum);
      }
      if (threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(free, 0);
    }
  }
}

// Sums of four columns, and where one is NaN, as it is when a non-finite factor was split (kIsExact), the product
// without splitting. Factors are loaded kAhead at a time, since each comes from L2 at best. NaN stays NaN whatever is
// added, so the loop ends as soon as all four are: operands that are NaN all over cost a few loads more.
PD_DEVICE float4 without_splitting(const float4& sums, const float* a, const float* b, Index row, Index column,
                                   const Sizes& size) {
  constexpr int kAhead = 16;
  const auto are_numbers = [](const float4& of) { return of.x == of.x && of.y == of.y && of.z == of.z && of.w == of.w; };
  const auto are_nan = [](const float4& of) { return of.x != of.x && of.y != of.y && of.z != of.z && of.w != of.w; };
  if (!kIsExact || are_numbers(sums)) return sums;
  a += row * size.a_stride_wide, b += column * (kIsTransposedB ? size.b_stride_wide : 1);
  float4 plain = {0, 0, 0, 0};
  for (Index begin = 0; begin < size.k && !are_nan(plain); begin += kAhead) {
    float of_a[kAhead];
    float4 of_b[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      const Index k = begin + i;
      of_a[i] = 0, of_b[i] = {0, 0, 0, 0};
      if (k >= size.k) continue;
      of_a[i] = a[k];
      if constexpr (kIsTransposedB) {
        const auto stride = size.b_stride_wide;
        of_b[i] = {b[k], b[stride + k], b[2 * stride + k], b[3 * stride + k]};
      } else {
        of_b[i] = *(const float4*)(b + k * size.b_stride_wide);
      }
    }
#pragma unroll
    for (int i = 0; i < kAhead; ++i) {
      plain.x += of_a[i] * of_b[i].x, plain.y += of_a[i] * of_b[i].y;
      plain.z += of_a[i] * of_b[i].z, plain.w += of_a[i] * of_b[i].w;
    }
  }
  const auto chosen = [](float sum, float instead) { return sum == sum ? sum : instead; };
  return {chosen(sums.x, plain.x), chosen(sums.y, plain.y), chosen(sums.z, plain.z), chosen(sums.w, plain.w)};
}

PD_DEVICE void product(const float* a, const float* b, float* out, const Map& a_map, const Map& b_map, const LaunchScratch& scratch, const Sizes& size) {
  float* const stages = shared_for_tma<float>();
  Mbarriers* const mbarriers = (Mbarriers*)(stages + kStages * kStageFloats + kParts * kLowFloats);
  const int rank = kCluster > 1 ? cluster_rank() : 0;
  Index tile = blockIdx.x / kCluster;
  const Index row = next_coordinate(tile, size.tiles_m) * kRows, column = tile * kColumns;
  const Index first = rank * size.blocks / kCluster, last = (rank + 1) * size.blocks / kCluster;
  open_stages(mbarriers, a_map, b_map, kConsumers, kParts);

  const bool is_consumer = threadIdx.x < kConsumers;
  float sum[kRows / 2];
#pragma unroll
  for (int i = 0; i < kRows / 2; ++i) sum[i] = 0;
  if (is_consumer) multiply_blocks(sum, stages, mbarriers, last - first);
  else if (threadIdx.x == kConsumers) bring_blocks(a_map, b_map, stages, mbarriers, row, column, first, last, scratch);
  const unsigned called_off = is_consumer ? called_off_word(scratch) : 0;
  __syncthreads();

  if (is_consumer) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    float* const to = stages + threadIdx.x / kOfPart * (kRows * kOutStride) + threadIdx.x % kOfPart / 32 * 16 + g;
#pragma unroll
    for (int i = 0; i < kRows / 2; ++i) to[(i / 4 * 8 + t * 2 + i % 2) * kOutStride + i / 2 % 2 * 8] = sum[i];
  }
  if constexpr (kCluster > 1) cluster_barrier();
  else __syncthreads();

  constexpr int kInRow = kColumns / 4, kShare = kRows * kInRow / kCluster;
  if (is_consumer && called_off == 0) {
#pragma unroll
    for (int i = threadIdx.x; i < kShare; i += kConsumers) {
      const int r = (rank * kShare + i) / kInRow, c = (rank * kShare + i) % kInRow * 4;
      const float* const from = stages + r * kOutStride + c;
      float4 parts[kCluster * kParts];
#pragma unroll
      for (int i = 0; i < kCluster * kParts; ++i) {
        const float* const part = from + i % kParts * (kRows * kOutStride);
        parts[i] = kCluster > 1 ? load_remote(part, i / kParts) : *(const float4*)part;
      }
#pragma unroll
      for (int i = 1; i < kCluster * kParts; ++i) parts[0] = parts[0] + parts[i];
      if (row + r < size.m && column + c < size.n) {
        const float4 sums = without_splitting(parts[0], a, b, row + r, column + c, size);
        *(float4*)(out + (row + r) * size.out_stride_wide + column + c) = sums;
      }
    }
  }
  if constexpr (kCluster > 1) cluster_leave();  // others may still read this CTA's sums
}
