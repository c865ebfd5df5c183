// SPDX-License-Identifier: Apache-2.0
// The factors of conv_tma_images.cu tap by tap: a stage has one tap's pixels of kRows windows, 64 channels of them, and
// its weights. Windows follow each other along rows, and from image to image.

constexpr int kStageElements = (kRows + kColumns) * kDepth, kKeptElements = 0;

struct Place {
  int n, h, w;
};
// Whose window row r of a tile is. False: there is none.
PD_DEVICE bool find_place(Place& place, int tile, int r, const Sizes& size) {
  place.n = tile * kRows + r;
  if (place.n >= size.windows) return false;
  place.w = next_coordinate(place.n, size.window_columns);
  place.h = next_coordinate(place.n, size.window_rows);
  return true;
}

PD_DEVICE void bring_blocks(const Map& image, const Map& weights, Stored*, Stored* stages, Mbarriers* mbarriers, Turn& turn,
                            int tile, int column, const Sizes& size) {
  int window = tile * kRows;
  const int w = next_coordinate(window, size.window_columns) * size.step_w + size.first_w;
  const int h = next_coordinate(window, size.window_rows) * size.step_h + size.first_h;  // leaves the image
  for (int k = 0; k < size.taps_h; ++k) {
    for (int l = 0; l < size.taps_w; ++l) {
      const int tap = size.first_tap + k * size.next_tap_h + l * size.next_tap_w;
      for (int c = 0; c < size.channels; c += kDepth, turn.next()) {
        wait_for(&mbarriers->free[turn.stage], turn.round + 1);
        unsigned long long* const full = &mbarriers->full[turn.stage];
        Stored* const to = stages + turn.stage * kStageElements;
        mbarrier_arrive_expect_tx(full, kStageElements * 2);
        bring_windows(to, image, c, w, h, window, l * size.tap_w, k * size.tap_h, full);
        bring_weights(to + kRows * kDepth, weights, c, tap, column, full);
      }
    }
  }
}

PD_DEVICE void multiply_blocks(float (&sum)[kColumns / 2], const Stored*, const Stored* stages, Mbarriers* mbarriers,
                               Turn& turn, const Sizes& size) {
  const int group = threadIdx.x / 128;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int block = 0; block < size.blocks; ++block, turn.next()) {
    wait_for(&mbarriers->full[turn.stage], turn.round);
    const Stored* const image = stages + turn.stage * kStageElements + group * 64 * kDepth;
    const Stored* const weights = stages + turn.stage * kStageElements + kRows * kDepth;
    products_begin();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) add_product(sum, image, weights, step);
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(before, 0);
    before = &mbarriers->free[turn.stage];
  }
  products_wait(sum);
  if (before != nullptr && threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(before, 0);
}

