// SPDX-License-Identifier: Apache-2.0
// What a recurrence takes from its input, of all steps: xw[row, column] = x[row, :] w[:, column], in 16 bits, rows in
// the order in which steps need them. The recurrence begins while this launch runs: all CTAs make some tiles, and then
// those leave whose multiprocessor the recurrence's clusters want, while the others go on beside it, and tell what is
// there (Beside). Nobody waits here for the recurrence, so whatever else runs on the chip, this launch ends.
// One warp has the copy engine bring factors, two groups of four warps multiply 64 rows each by all columns of a tile.

constexpr int kStageElements = (kTileRows + kColumns) * kDepth, kSums = kColumns / 2;

// Which tile a stage is of; kNone: there are no more.
constexpr int kNone = -1;
struct TileNumbers {
  int of_stage[kStages];
};

PD_DEVICE int row_of(int tile, const Sizes& size) {
  const int in_order = tile / kTilesAcross;
  return (size.is_reverse != 0 ? (int)size.row_tiles - 1 - in_order : in_order) * kTileRows;
}

// Whether the CTA is where the run before had one of the recurrence's: so many leave, and as many as the recurrence leaves
// room for stay.
PD_DEVICE bool is_in_the_way(const Beside& beside) {
  const unsigned run = *beside.runs;
  return run > 0 && beside.places[multiprocessor()] == run && (int)atomicAdd(beside.left, 1u) < (int)gridDim.x - kStaying;
}

// For one thread.
PD_DEVICE void bring_tiles(const Map& x, const Map& w, Stored* stages, Mailboxes* mail, TileNumbers* numbers,
                           const Beside& beside, const Sizes& size) {
  Turn turn;
  const int ctas = gridDim.x, tiles = size.row_tiles * kTilesAcross;
  const bool leaves = is_in_the_way(beside);
  int made = 0;
  for (int tile = blockIdx.x; tile < tiles;) {
    // The number of the next one is on its way while this one is brought.
    int next = tiles;
    if (++made < size.first_tiles) next = tile + ctas;
    else if (!leaves) next = size.first_tiles * ctas + (int)atomicAdd(beside.taken, 1u);
    const int row = row_of(tile, size), column = tile % kTilesAcross * kColumns;
    for (int k = 0; k < size.depth; k += kDepth, turn.next()) {
      wait_for(&mail->free[turn.stage], turn.round + 1);
      numbers->of_stage[turn.stage] = tile;
      unsigned long long* const full = &mail->full[turn.stage];
      Stored* const to = stages + turn.stage * kStageElements;
      mailbox_expect(full, kStageElements * (int)sizeof(Stored));
      bring_box(to, x, k, row, full);
#pragma unroll
      for (int n = 0; n < kColumns; n += kDepth) bring_box(to + (kTileRows + n) * kDepth, w, column + n, k, full);
    }
    tile = next;
  }
  wait_for(&mail->free[turn.stage], turn.round + 1);
  numbers->of_stage[turn.stage] = kNone;
  mailbox_expect(&mail->full[turn.stage], 0);
}

PD_DEVICE void multiply_tile(float (&sum)[kSums], const Stored* stages, Mailboxes* mail, Turn& turn, int depth) {
  const int group = threadIdx.x / 128;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int k = 0; k < depth; k += kDepth, turn.next()) {
    wait_for(&mail->full[turn.stage], turn.round);
    const Stored* const rows = stages + turn.stage * kStageElements + group * 64 * kDepth;
    const Stored* const columns = stages + turn.stage * kStageElements + kTileRows * kDepth;
    products_begin();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) add_product(sum, rows, columns, step);
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mailbox_expect(before, 0);
    before = &mail->free[turn.stage];
  }
  products_wait(sum);
  if (threadIdx.x % 32 == 0) mailbox_expect(before, 0);
}

// Of words that four lanes have, four each, lane t gets word t of each.
PD_DEVICE void turn_words(unsigned (&word)[4]) {
#pragma unroll
  for (int apart = 1; apart < 4; apart *= 2) {
    const bool is_upper = threadIdx.x & apart;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (i & apart) continue;
      const unsigned got = __shfl_xor_sync(0xffffffffu, is_upper ? word[i] : word[i + apart], apart);
      (is_upper ? word[i] : word[i + apart]) = got;
    }
  }
}

// A warp's sums as they are in registers: of every four times 8 columns of a row, of which four lanes have two each, a
// lane writes 8.
PD_DEVICE void write_sums(const float (&sum)[kSums], int first_row, int first_column, Stored* xw, const Sizes& size) {
  const int lane = threadIdx.x % 32, t = lane % 4;
  const int row = first_row + threadIdx.x / 32 * 16 + lane / 4, column = first_column + t * 8;
  Stored* const to = xw + (Index)row * kAllColumns + column;
#pragma unroll
  for (int n = 0; n < kColumns / 8; n += 4) {
#pragma unroll
    for (int more = 0; more < 2; ++more) {
      Pack<Stored, 8> pack;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const float* const two = sum + (n + i) * 4 + more * 2;
        pack.word[i] = pair_of<Stored>(two[0], two[1]);
      }
      turn_words(pack.word);
      const bool is_there = row + more * 8 < size.rows && column + n * 8 < kAllColumns;
      if (is_there) store(to + more * 8 * kAllColumns + n * 8, pack);
    }
  }
}

PD_DEVICE void multiply_tiles(const Stored* stages, Mailboxes* mail, const TileNumbers* numbers, Stored* xw,
                              const Beside& beside, const Sizes& size) {
  for (Turn turn;;) {
    wait_for(&mail->full[turn.stage], turn.round);
    const int tile = numbers->of_stage[turn.stage];
    if (tile == kNone) return;
    float sum[kSums];
#pragma unroll
    for (int i = 0; i < kSums; ++i) sum[i] = 0;
    multiply_tile(sum, stages, mail, turn, size.depth);
    write_sums(sum, row_of(tile, size), tile % kTilesAcross * kColumns, xw, size);
    barrier_wait(1, kConsumers);
    if (threadIdx.x == 0) add_release(&beside.there[tile / kTilesAcross / (int)size.tiles_of_stretch], 1);
  }
}

PD_DEVICE void multiply_input(const Map& x, const Map& w, Stored* xw, const Room& room, const Sizes& size) {
  Stored* const stages = shared_for_boxes<Stored>();
  Mailboxes* const mail = (Mailboxes*)(stages + kStages * kStageElements);
  TileNumbers* const numbers = (TileNumbers*)(mail + 1);
  const Beside beside(room);
  open_stages(mail, x, w, kConsumers);
  if (threadIdx.x < kConsumers) multiply_tiles(stages, mail, numbers, xw, beside, size);
  else if (threadIdx.x == kConsumers) bring_tiles(x, w, stages, mail, numbers, beside, size);
  __syncthreads();
  if (threadIdx.x == 0) add_release(beside.ended, 1);
}
