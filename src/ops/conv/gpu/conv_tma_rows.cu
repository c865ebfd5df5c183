// SPDX-License-Identifier: Apache-2.0
// The factors of conv_tma_images.cu where an image has few channels: a tile is a row of windows, and a stage has all
// rows of the image that it reads, as conv_tap_rows.cu lays them out, 16 bytes a pixel, which come at once. Pixels a
// stride apart lie side by side there, so a tap's pixels of 8 windows are 128 bytes, as the tensor cores take a factor
// that is not in TMA tiles; the next tap's may be anywhere after. A CTA keeps the weights.

constexpr int kRowElements = kPlanes * kPlanePixels * 8, kBroughtElements = kRowsBrought * kRowElements;
constexpr int kTapElements = kColumns * kDepth, kKeptElements = kKernelRows * kTapElements;
constexpr int kZeros = 64 * 8;  // for a tap's pixels that are not there

struct Place {
  int n, h, w;
};
// Whose window row r of a tile is. False: there is none.
PD_DEVICE bool find_place(Place& place, int tile, int r, const Sizes& size) {
  place.n = tile, place.w = r;
  place.h = next_coordinate(place.n, size.window_rows);
  return place.n < size.images && r < size.window_columns;
}

PD_DEVICE void bring_blocks(const Map& image, const Map& weights, Stored* kept, Stored* stages, Mbarriers* mbarriers, Turn& turn,
                            int tile, int column, const Sizes& size) {
  const bool is_first = turn.round == 0;
  wait_for(&mbarriers->free[0], turn.round + 1);
  if (is_first) {
    const Pack<Stored, 8> zeros = {};
    for (int i = 0; i < kZeros; i += 8) store(stages + kZerosAt + i, zeros);
    fence_for_copies();
  }
  unsigned long long* const full = &mbarriers->full[0];
  mbarrier_arrive_expect_tx(full, (kBroughtElements + (is_first ? kKeptElements : 0)) * 2);
  int n = tile;
  const int row = next_coordinate(n, size.window_rows) * size.step_h;
  tma_load(stages, image, 0, (n * size.laid_rows + row) * (kRowElements / 64), full);
  for (int k = 0; is_first && k < kKernelRows; ++k) bring_weights(kept + k * kTapElements, weights, 0, k, column, full);
  turn.next();
}

PD_DEVICE void multiply_blocks(float (&sum)[kColumns / 2], const Stored* kept, const Stored* stages, Mbarriers* mbarriers,
                               Turn& turn, const Sizes&) {
  wait_for(&mbarriers->full[0], turn.round);
  const Stored* const windows = stages + (int)threadIdx.x / 128 * 64 * 8;
  products_begin();
#pragma unroll
  for (int k = 0; k < kKernelRows; ++k) {
#pragma unroll
    for (int l = 0; l < kKernelColumns; l += 2) {
      const auto tap = [&](int at) {
        return windows + k * kRowApart * kRowElements + (at % kPlanes * kPlanePixels + at / kPlanes) * 8;
      };
      const Stored* const next = l + 1 < kKernelColumns ? tap(l + 1) : stages + kZerosAt;
      add_row_product(sum, tap(l), next, kept + k * kTapElements, l / 2);
    }
  }
  products_start();
  products_wait(sum);
  if (threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(&mbarriers->free[0], 0);
  turn.next();
}
