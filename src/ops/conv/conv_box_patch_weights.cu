// SPDX-License-Identifier: Apache-2.0
// The sums of conv_box_weights.cu where windows are next to each other: a stage has the gradient of a square of 8 x 8
// windows and what all taps read of them, which is brought once; kGroups groups of four warps share the taps, each of
// which begins at another pixel of it.

constexpr int kGroups = 3, kConsumers = kGroups * 128, kSide = 8, kTaps = kTapsH * kTapsW;
constexpr int kTapsOfGroup = (kTaps + kGroups - 1) / kGroups;
constexpr int kPatchColumns = kSide + (kTapsW - 1) * kTapW, kPatchRows = kSide + (kTapsH - 1) * kTapH;
constexpr int kGradientElements = kSide * kSide * 64;
constexpr int kStageElements = kGradientElements + (kPatchColumns * kPatchRows + 7) / 8 * 8 * 64;

PD_DEVICE void bring_squares(const Map& image, const Map& gradient, Stored* stages, Mailboxes* mail, int row, int channel,
                             int first, int last, const Sizes& size) {
  Turn turn;
  for (int square = first; square < last; ++square, turn.next()) {
    wait_for(&mail->free[turn.stage], turn.round + 1);
    unsigned long long* const full = &mail->full[turn.stage];
    Stored* const to = stages + turn.stage * kStageElements;
    mailbox_expect(full, (kGradientElements + kPatchColumns * kPatchRows * 64) * 2);
    int n = square;
    const int w = next_coordinate(n, size.square_columns) * kSide, h = next_coordinate(n, size.square_rows) * kSide;
    bring_patch(to, gradient, row, w, h, n, full);
    bring_patch(to + kGradientElements, image, channel, w + size.first_w, h + size.first_h, n, full);
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
  int part = blockIdx.x;
  const int row = next_coordinate(part, size.tiles_m) * 64, channel = next_coordinate(part, size.tiles_n) * 64;
  const int first = (int)((long long)part * size.squares / size.parts);
  const int last = (int)((long long)(part + 1) * size.squares / size.parts);
  open_stages(mail, image, gradient, kConsumers);
  if (threadIdx.x >= kConsumers) {
    if (threadIdx.x == kConsumers) bring_squares(image, gradient, stages, mail, row, channel, first, last, size);
    return;
  }
  float sum[kTapsOfGroup][32];
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
#pragma unroll
    for (int k = 0; k < 32; ++k) sum[i][k] = 0;
  }
  multiply_squares(sum, stages, mail, last - first);

  const int lane = threadIdx.x % 32, first_tap = threadIdx.x / 128 * kTapsOfGroup;
  const int first_row = row + threadIdx.x % 128 / 32 * 16 + lane / 4;
  float* const to = partial + part * size.elements_wide;
#pragma unroll
  for (int i = 0; i < kTapsOfGroup; ++i) {
    if (first_tap + i >= kTaps) break;
#pragma unroll
    for (int n = 0; n < 8; ++n) {
      const int c = channel + n * 8 + lane % 4 * 2;
#pragma unroll
      for (int more = 0; more < 2; ++more) {
        const int r = first_row + more * 8;
        if (r >= size.rows || c >= size.channels) continue;
        Draft<float, 2> made;
        made.put(0, sum[i][n * 4 + more * 2]), made.put(1, sum[i][n * 4 + more * 2 + 1]);
        store(to + ((r * kTaps + first_tap + i) * size.channels + c), made);
      }
    }
  }
}
