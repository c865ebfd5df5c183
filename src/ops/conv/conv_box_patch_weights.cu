// SPDX-License-Identifier: Apache-2.0
// The sums of conv_box_weights.cu where windows are next to each other: a stage has the gradient of a square of 8 x 8
// windows and what all taps read of them, which is brought once; kGroups groups of four warps share the taps, each of
// which begins at another pixel of it.

constexpr int kGroups = 3, kConsumers = kGroups * 128, kSide = 8, kTaps = kTapsH * kTapsW;
constexpr int kTapsOfGroup = (kTaps + kGroups - 1) / kGroups;
constexpr int kPatchColumns = kSide + (kTapsW - 1) * kTapW, kPatchRows = kSide + (kTapsH - 1) * kTapH;
constexpr int kGradientElements = kSide * kSide * 64;
constexpr int kStageElements = kGradientElements + (kPatchColumns * kPatchRows + 7) / 8 * 8 * 64;

PD_DEVICE void bring_squares(const Map& image, const Map& gradient, Stored* stages, Mailboxes* mail,
                             const Share& share, const Sizes& size) {
  Turn turn;
  for (int square = share.first; square < share.last; ++square, turn.next()) {
    wait_for(&mail->free[turn.stage], turn.round + 1);
    unsigned long long* const full = &mail->full[turn.stage];
    Stored* const to = stages + turn.stage * kStageElements;
    mailbox_expect(full, (kGradientElements + kPatchColumns * kPatchRows * 64) * 2);
    int n = square;
    const int w = next_coordinate(n, size.square_columns) * kSide, h = next_coordinate(n, size.square_rows) * kSide;
    bring_patch(to, gradient, share.row, w, h, n, full);
    bring_patch(to + kGradientElements, image, share.column, w + size.first_w, h + size.first_h, n, full);
  }
}

PD_DEVICE void multiply_squares(float (&sum)[kTapsOfGroup][32], const Stored* stages, Mailboxes* mail, int squares) {
  const int group = threadIdx.x / 128;
  const Stored* images[kTapsOfGroup];  // of the first stage; beyond the last tap, the last again
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
    const int tap = group * kTapsOfGroup + i < kTaps ? group * kTapsOfGroup + i : kTaps - 1;
    const int pixel = tap / kTapsW * kTapH * kPatchColumns + tap % kTapsW * kTapW;
    images[i] = stages + kGradientElements + pixel * 64;
  }
  Turn turn;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int square = 0; square < squares; ++square, turn.next()) {
    wait_for(&mail->full[turn.stage], turn.round);
    const int at = turn.stage * kStageElements;
    products_begin();
#pragma unroll
    for (int i = 0; i < kTapsOfGroup; ++i) {
#pragma unroll
      for (int step = 0; step < kSide * kSide / 16; ++step) add_product(sum[i], stages + at, images[i] + at, step);
    }
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mailbox_expect(before, 0);
    before = &mail->free[turn.stage];
  }
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) products_wait(sum[i]);
}

PD_DEVICE void add_up(const Map& image, const Map& gradient, float* partial, const Sizes& size) {
  PD_DYNAMIC_SHARED(Stored, dynamic);
  Stored* const stages = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024 / 2;  // boxes want that
  Mailboxes* const mail = (Mailboxes*)(stages + kStages * kStageElements);
  const Share share = share_of(blockIdx.x, size);
  open_stages(mail, image, gradient, kConsumers);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) bring_squares(image, gradient, stages, mail, share, size);
    return;
  }
  float sum[kTapsOfGroup][32];
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
#pragma unroll
    for (int k = 0; k < 32; ++k) sum[i][k] = 0;
  }
  multiply_squares(sum, stages, mail, share.last - share.first);
  const int first_tap = threadIdx.x / 128 * kTapsOfGroup;
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
    if (first_tap + i >= kTaps) break;
    leave_sums(partial, sum[i], share.part, share.row, first_tap + i, share.column, size);
  }
}
