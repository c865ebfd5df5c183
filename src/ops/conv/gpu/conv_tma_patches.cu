// SPDX-License-Identifier: Apache-2.0
// The factors of conv_tma_images.cu where windows are next to each other and channels few: a CTA keeps the weights of
// all taps, and a stage has all their pixels of two squares of 8 x 8 windows, each brought once. Every tap's rows begin
// at another pixel of it, and are eight and eight, a row of the square each.

constexpr int kSquares = 2, kSide = 8;
constexpr int kPatchColumns = kSide + (kTapsW - 1) * kTapW, kPatchRows = kSide + (kTapsH - 1) * kTapH;
constexpr int kPatchElements = (kPatchColumns * kPatchRows + 7) / 8 * 8 * kDepth;
constexpr int kTapElements = kColumns * kDepth;
constexpr int kStageElements = kSquares * kPatchElements, kKeptElements = kTapsH * kTapsW * kTapElements;

struct Place {
  int n, h, w;
};
// Whose window row r of a tile is. False: there is none.
PD_DEVICE bool find_place(Place& place, int tile, int r, const Sizes& size) {
  place.n = tile * kSquares + r / (kSide * kSide);
  place.w = next_coordinate(place.n, size.square_columns) * kSide + r % kSide;
  place.h = next_coordinate(place.n, size.square_rows) * kSide + r / kSide % kSide;
  return place.n < size.images && place.h < size.window_rows && place.w < size.window_columns;
}

PD_DEVICE void bring_blocks(const Map& image, const Map& weights, Stored* kept, Stored* stages, Mbarriers* mbarriers, Turn& turn,
                            int tile, int column, const Sizes& size) {
  const bool is_first = turn.round == 0 && turn.stage == 0;
  wait_for(&mbarriers->free[turn.stage], turn.round + 1);
  unsigned long long* const full = &mbarriers->full[turn.stage];
  mbarrier_arrive_expect_tx(full, (kSquares * kPatchColumns * kPatchRows * kDepth + (is_first ? kKeptElements : 0)) * 2);
#pragma unroll
  for (int i = 0; i < kSquares; ++i) {
    int n = tile * kSquares + i;
    const int w = next_coordinate(n, size.square_columns) * kSide + size.first_w;
    const int h = next_coordinate(n, size.square_rows) * kSide + size.first_h;  // leaves the image
    bring_patch(stages + turn.stage * kStageElements + i * kPatchElements, image, 0, w, h, n, full);
  }
  if (is_first) {
    for (int k = 0; k < kTapsH; ++k) {
      for (int l = 0; l < kTapsW; ++l) {
        const int tap = size.first_tap + k * size.next_tap_h + l * size.next_tap_w;
        bring_weights(kept + (k * kTapsW + l) * kTapElements, weights, 0, tap, column, full);
      }
    }
  }
  turn.next();
}

PD_DEVICE void multiply_blocks(float (&sum)[kColumns / 2], const Stored* kept, const Stored* stages, Mbarriers* mbarriers,
                               Turn& turn, const Sizes&) {
  wait_for(&mbarriers->full[turn.stage], turn.round);
  const Stored* const patch = stages + turn.stage * kStageElements + (int)threadIdx.x / 128 * kPatchElements;
  products_begin();
#pragma unroll
  for (int k = 0; k < kTapsH; ++k) {
#pragma unroll
    for (int l = 0; l < kTapsW; ++l) {
      const Stored* const image = patch + (k * kTapH * kPatchColumns + l * kTapW) * kDepth;
#pragma unroll
      for (int step = 0; step < kDepth / 16; ++step) {
        add_product(sum, image, kept + (k * kTapsW + l) * kTapElements, step);
      }
    }
  }
  products_start();
  products_wait(sum);
  if (threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(&mbarriers->free[turn.stage], 0);
  turn.next();
}
