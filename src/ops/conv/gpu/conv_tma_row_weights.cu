// SPDX-License-Identifier: Apache-2.0
// The sums of conv_tma_weights.cu where an image has few channels: a stage has the gradient of a row of windows and all
// rows of the image that it reads, as conv_tap_rows.cu lays them out, where the factors of one plane's taps lie a pixel
// apart. kGroups groups of four warps share the rows of taps.

constexpr int kGroups = 3, kConsumers = kGroups * 128, kRowsOfGroup = (kKernelRows + kGroups - 1) / kGroups;
constexpr int kRowElements = kPlanes * kPlanePixels * 8, kBroughtElements = kRowsBrought * kRowElements;
constexpr int kGradientElements = kWindows * 64;
constexpr int kStageElements = kGradientElements + (kBroughtElements + 511) / 512 * 512;
constexpr int kSumsOfPlane = 32 / kPlanes;

PD_DEVICE void bring_rows(const Map& image, const Map& gradient, const Cta& cta, const Sizes& size) {
  Turn turn;
  for (int row = cta.share.first; row < cta.share.last; ++row, turn.next()) {
    wait_for(&cta.mbarriers->free[turn.stage], turn.round + 1);
    unsigned long long* const full = &cta.mbarriers->full[turn.stage];
    Stored* const to = cta.stages + turn.stage * kStageElements;
    mbarrier_arrive_expect_tx(full, (kGradientElements + kBroughtElements) * 2);
    int n = row;
    const int h = next_coordinate(n, size.window_rows);
    bring_patch(to, gradient, cta.share.row, 0, h, n, full);
    tma_load(to + kGradientElements, image, 0, (n * size.laid_rows + h * size.step_h) * (kRowElements / 64), full);
  }
}

PD_DEVICE void multiply_rows(float (&sum)[kRowsOfGroup][kPlanes][kSumsOfPlane], const Cta& cta) {
  const int rows = cta.share.last - cta.share.first;
  const int first = (int)threadIdx.x / 128 * kRowsOfGroup;
  Turn turn;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int row = 0; row < rows; ++row, turn.next()) {
    wait_for(&cta.mbarriers->full[turn.stage], turn.round);
    const Stored* const gradient = cta.stages + turn.stage * kStageElements;
    products_begin();
#pragma unroll
    for (int i = 0; i < kRowsOfGroup; ++i) {
      const int k = first + i < kKernelRows ? first + i : kKernelRows - 1;  // beyond the last, the last again
#pragma unroll
      for (int p = 0; p < kPlanes; ++p) {
        const Stored* const image = gradient + kGradientElements + k * kRowApart * kRowElements + p * kPlanePixels * 8;
#pragma unroll
        for (int step = 0; step < kWindows / 16; ++step) {
          add_rows_product(sum[i][p], gradient, image + step * 16 * 8, step);
        }
      }
    }
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(before, 0);
    before = &cta.mbarriers->free[turn.stage];
  }
#pragma unroll
  for (int i = 0; i < kRowsOfGroup; ++i) {
#pragma unroll
    for (int p = 0; p < kPlanes; ++p) rows_wait(sum[i][p]);
  }
}

PD_DEVICE void add_up(const Map& image, const Map& gradient, float* partial, const Sizes& size) {
  const Cta cta = open_cta<kConsumers, kStageElements>(image, gradient, size);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) bring_rows(image, gradient, cta, size);
    return;
  }
  float sum[kRowsOfGroup][kPlanes][kSumsOfPlane];
#pragma unroll
  for (int i = 0; i < kRowsOfGroup; ++i) {
#pragma unroll
    for (int k = 0; k < 32; ++k) sum[i][k / kSumsOfPlane][k % kSumsOfPlane] = 0;
  }
  multiply_rows(sum, cta);
  const int first = (int)threadIdx.x / 128 * kRowsOfGroup;
#pragma unroll
  for (int i = 0; i < kRowsOfGroup; ++i) {
    if (first + i >= kKernelRows) break;
    float ordered[32];  // tap after tap, of either plane
#pragma unroll
    for (int k = 0; k < 32; ++k) ordered[k] = sum[i][k / 4 % kPlanes][k / 4 / kPlanes * 4 + k % 4];
    leave_sums(partial, ordered, cta.share.part, cta.share.row, first + i, 0, size);
  }
}
