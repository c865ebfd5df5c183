// SPDX-License-Identifier: Apache-2.0
// The sums of conv_tma_weights.cu where windows are next to each other: a stage has the gradient of a square of 8 x 8
// windows and the pixels that all taps read of them, which are brought once; kGroups groups of four warps share the
// taps, each of which begins at another pixel of them.

constexpr int kGroups = 3, kConsumers = kGroups * 128, kSide = 8, kTaps = kTapsH * kTapsW;
constexpr int kTapsOfGroup = (kTaps + kGroups - 1) / kGroups;
constexpr int kPatchColumns = kSide + (kTapsW - 1) * kTapW, kPatchRows = kSide + (kTapsH - 1) * kTapH;
constexpr int kGradientElements = kSide * kSide * 64;
constexpr int kStageElements = kGradientElements + (kPatchColumns * kPatchRows + 7) / 8 * 8 * 64;

PD_DEVICE void bring_squares(const Map& image, const Map& gradient, const Cta& cta, const Sizes& size) {
  Turn turn;
  for (int square = cta.share.first; square < cta.share.last; ++square, turn.next()) {
    wait_for(&cta.mbarriers->free[turn.stage], turn.round + 1);
    unsigned long long* const full = &cta.mbarriers->full[turn.stage];
    Stored* const to = cta.stages + turn.stage * kStageElements;
    mbarrier_arrive_expect_tx(full, (kGradientElements + kPatchColumns * kPatchRows * 64) * 2);
    int n = square;
    const int w = next_coordinate(n, size.square_columns) * kSide, h = next_coordinate(n, size.square_rows) * kSide;
    bring_patch(to, gradient, cta.share.row, w, h, n, full);
    bring_patch(to + kGradientElements, image, cta.share.column, w + size.first_w, h + size.first_h, n, full);
  }
}

PD_DEVICE void multiply_squares(float (&sum)[kTapsOfGroup][32], const Cta& cta) {
  const int squares = cta.share.last - cta.share.first;
  const int group = threadIdx.x / 128;
  const Stored* images[kTapsOfGroup];  // of the first stage; beyond the last tap, the last again
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
    const int tap = group * kTapsOfGroup + i < kTaps ? group * kTapsOfGroup + i : kTaps - 1;
    const int pixel = tap / kTapsW * kTapH * kPatchColumns + tap % kTapsW * kTapW;
    images[i] = cta.stages + kGradientElements + pixel * 64;
  }
  Turn turn;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int square = 0; square < squares; ++square, turn.next()) {
    wait_for(&cta.mbarriers->full[turn.stage], turn.round);
    const int at = turn.stage * kStageElements;
    products_begin();
#pragma unroll
    for (int i = 0; i < kTapsOfGroup; ++i) {
#pragma unroll
      for (int step = 0; step < kSide * kSide / 16; ++step) add_product(sum[i], cta.stages + at, images[i] + at, step);
    }
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mbarrier_arrive_expect_tx(before, 0);
    before = &cta.mbarriers->free[turn.stage];
  }
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) products_wait(sum[i]);
}

PD_DEVICE void add_up(const Map& image, const Map& gradient, float* partial, const Sizes& size) {
  const Cta cta = open_cta<kConsumers, kStageElements>(image, gradient, size);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) bring_squares(image, gradient, cta, size);
    return;
  }
  float sum[kTapsOfGroup][32];
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
#pragma unroll
    for (int k = 0; k < 32; ++k) sum[i][k] = 0;
  }
  multiply_squares(sum, cta);
  const int first_tap = threadIdx.x / 128 * kTapsOfGroup;
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
    if (first_tap + i >= kTaps) break;
    leave_sums(partial, sum[i], cta.share.part, cta.share.row, first_tap + i, cta.share.column, size);
  }
}
