// SPDX-License-Identifier: Apache-2.0
// partial[part, o, tap, channel] = gradient[window, o] image[window, (tap, channel)] of 16 bits, added up over the windows
// of a part, the sums in f32. One warp has the copy engine bring 64 windows of both, as they lie, which is across what is
// added up; groups of four warps multiply. Columns are chunks of 64 channels of one tap, two to a tile.

constexpr int kDepth = 64, kChunk = 64 * kDepth, kConsumers = 256;
constexpr int kColumnsOfGroup = 128 / (2 / kGroupsM);  // a group has 64 rows, and all of the tile's columns or one chunk
constexpr int kStageElements = (kGroupsM + 2) * kChunk;

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

PD_DEVICE void bring_blocks(const Map& image, const Map& gradient, Stored* stages, Mailboxes* mail, int row, int chunk,
                            int first, int last, const Sizes& size) {
  // Beyond the last chunk, the last again: nobody reads it.
  const Chunk at[2] = {chunk_at(chunk, size), chunk_at(chunk + 1 < size.chunks ? chunk + 1 : chunk, size)};
  Turn turn;
  for (int block = first; block < last; ++block, turn.next()) {
    wait_for(&mail->free[turn.stage], turn.round + 1);
    unsigned long long* const full = &mail->full[turn.stage];
    Stored* const to = stages + turn.stage * kStageElements;
    mailbox_expect(full, kStageElements * 2);
    int window = block * kDepth;
    const int w = next_coordinate(window, size.window_columns), h = next_coordinate(window, size.window_rows);
#pragma unroll
    for (int i = 0; i < kGroupsM; ++i) bring_windows(to + i * kChunk, gradient, row + i * 64, w, h, window, 0, 0, full);
#pragma unroll
    for (int i = 0; i < 2; ++i) {
      bring_windows(to + (kGroupsM + i) * kChunk, image, at[i].channel, w * size.step_w + size.first_w,
                    h * size.step_h + size.first_h, window, at[i].tap_column * size.tap_w, at[i].tap_row * size.tap_h,
                    full);
    }
  }
}

PD_DEVICE void multiply_blocks(float (&sum)[kColumnsOfGroup / 2], const Stored* stages, Mailboxes* mail, int blocks) {
  const int group = threadIdx.x / 128;
  Turn turn;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int block = 0; block < blocks; ++block, turn.next()) {
    wait_for(&mail->full[turn.stage], turn.round);
    const Stored* const gradient = stages + turn.stage * kStageElements + (kGroupsM == 2 ? group : 0) * kChunk;
    const Stored* const image =
        stages + turn.stage * kStageElements + (kGroupsM == 2 ? kGroupsM : kGroupsM + group) * kChunk;
    products_begin();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) add_product(sum, gradient, image, step);
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mailbox_expect(before, 0);
    before = &mail->free[turn.stage];
  }
  products_wait(sum);
}

PD_DEVICE void add_up(const Map& image, const Map& gradient, float* partial, const Sizes& size) {
  PD_DYNAMIC_SHARED(Stored, dynamic);
  Stored* const stages = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024 / 2;  // boxes want that
  Mailboxes* const mail = (Mailboxes*)(stages + kStages * kStageElements);
  int tile = blockIdx.x;
  const int row = next_coordinate(tile, size.tiles_m) * (64 * kGroupsM), chunk = next_coordinate(tile, size.tiles_n) * 2;
  const int first = (int)((long long)tile * size.blocks / size.parts);
  const int last = (int)((long long)(tile + 1) * size.blocks / size.parts);
  open_stages(mail, image, gradient, kConsumers);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) bring_blocks(image, gradient, stages, mail, row, chunk, first, last, size);
    return;
  }
  float sum[kColumnsOfGroup / 2];
#pragma unroll
  for (int i = 0; i < kColumnsOfGroup / 2; ++i) sum[i] = 0;
  multiply_blocks(sum, stages, mail, last - first);

  const int lane = threadIdx.x % 32, group = threadIdx.x / 128;
  const int first_row = row + (kGroupsM == 2 ? group * 64 : 0) + threadIdx.x % 128 / 32 * 16 + lane / 4;
  float* const to = partial + tile * size.elements_wide;
#pragma unroll
  for (int i = 0; i < kColumnsOfGroup / 64; ++i) {
    const int mine = chunk + i + (kGroupsM == 2 ? 0 : group);
    if (mine >= size.chunks) break;
    const Chunk at = chunk_at(mine, size);
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int channel = at.channel + n * 8 + lane % 4 * 2;
#pragma unroll
      for (int more = 0; more < 2; ++more) {
        const int r = first_row + more * 8;
        if (r >= size.rows || channel >= size.channels) continue;
        Draft<float, 2> made;
        made.put(0, sum[i * 32 + n * 4 + more * 2]), made.put(1, sum[i * 32 + n * 4 + more * 2 + 1]);
        store(to + ((r * size.taps + at.tap) * size.channels + channel), made);
      }
    }
  }
}
