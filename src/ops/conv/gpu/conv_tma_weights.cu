// SPDX-License-Identifier: Apache-2.0
// partial[part, o, tap, channel] = gradient[window, o] image[window, (tap, channel)] of 16 bits, added up over the
// windows of a part, the sums in f32. One warp has TMA load 64 windows of both, as they lie, which is across the summed
// axis; groups of four warps multiply. Columns are chunks of 64 channels of one tap, kChunks to a tile.

constexpr int kDepth = 64, kChunk = 64 * kDepth;
constexpr int kGroupsN = kGroupsM == 1 ? 2 : 1, kConsumers = kGroupsM * kGroupsN * 128;
constexpr int kChunksOfGroup = kChunks / kGroupsN;  // of a group, which has 64 rows
constexpr int kStageElements = (kGroupsM + kChunks) * kChunk;

// Where a chunk of columns is.
struct Chunk {
  int channel, tap_row, tap_column, tap;
};
PD_DEVICE Chunk chunk_at(int chunk, const Sizes& size) {
  Chunk at;
  at.channel = next_coordinate(chunk, size.chunks_of_tap) * 64;
  at.tap = chunk;
  at.tap_column = next_coordinate(chunk, size.kernel_columns), at.tap_row = chunk;
  return at;
}

PD_DEVICE void bring_blocks(const Map& image, const Map& gradient, const Cta& cta, const Sizes& size) {
  // Beyond the last chunk, the last again: nobody reads it.
  Chunk at[kChunks];
#pragma unroll
  for (int i = 0; i < kChunks; ++i) {
    at[i] = chunk_at(cta.share.column + i < size.chunks ? cta.share.column + i : size.chunks - 1, size);
  }
  Turn turn;
  for (int block = cta.share.first; block < cta.share.last; ++block, turn.next()) {
    wait_for(&cta.mbarriers->free[turn.stage], turn.round + 1);
    unsigned long long* const full = &cta.mbarriers->full[turn.stage];
    Stored* const to = cta.stages + turn.stage * kStageElements;
    mbarrier_arrive_expect_tx(full, kStageElements * 2);
    int window = block * kDepth;
    const int w = next_coordinate(window, size.window_columns), h = next_coordinate(window, size.window_rows);
#pragma unroll
    for (int i = 0; i < kGroupsM; ++i) bring_windows(to + i * kChunk, gradient, cta.share.row + i * 64, w, h, window, 0, 0, full);
#pragma unroll
    for (int i = 0; i < kChunks; ++i) {
      bring_windows(to + (kGroupsM + i) * kChunk, image, at[i].channel, w * size.step_w + size.first_w,
                    h * size.step_h + size.first_h, window, at[i].tap_column * size.tap_w, at[i].tap_row * size.tap_h,
                    full);
    }
  }
}

PD_DEVICE void multiply_blocks(float (&sum)[kChunksOfGroup * 32], const Cta& cta) {
  const int blocks = cta.share.last - cta.share.first;
  const int group = threadIdx.x / 128, group_m = group / kGroupsN, group_n = group % kGroupsN;
  Turn turn;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int block = 0; block < blocks; ++block, turn.next()) {
    wait_for(&cta.mbarriers->full[turn.stage], turn.round);
    const Stored* const gradient = cta.stages + turn.stage * kStageElements + group_m * kChunk;
    const Stored* const image =
        cta.stages + turn.stage * kStageElements + (kGroupsM + group_n * kChunksOfGroup) * kChunk;
    products_begin();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) add_product(sum, gradient, image, step);
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(before, 0);
    before = &cta.mbarriers->free[turn.stage];
  }
  products_wait(sum);
}

PD_DEVICE void add_up(const Map& image, const Map& gradient, float* partial, const Sizes& size) {
  const Cta cta = open_cta<kConsumers, kStageElements>(image, gradient, size);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) bring_blocks(image, gradient, cta, size);
    return;
  }
  float sum[kChunksOfGroup * 32];
#pragma unroll
  for (int i = 0; i < kChunksOfGroup * 32; ++i) sum[i] = 0;
  multiply_blocks(sum, cta);
  const int group = threadIdx.x / 128;
#pragma unroll
  for (int i = 0; i < kChunksOfGroup; ++i) {
    const int mine = cta.share.column + group % kGroupsN * kChunksOfGroup + i;
    if (mine >= size.chunks) break;
    const Chunk at = chunk_at(mine, size);
    leave_sums(partial, sum + i * 32, cta.share.part, cta.share.row + group / kGroupsN * 64, at.tap, at.channel, size);
  }
}
