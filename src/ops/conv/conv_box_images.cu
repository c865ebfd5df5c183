// SPDX-License-Identifier: Apache-2.0
// out[window, column] = image[window, (tap, channel)] weights[column, (tap, channel)] of 16 bits: a convolution, or a phase
// of its gradient for the image. One warp has the copy engine bring what one tap of kRows windows reads, 64 channels of
// it, and the weights of that; two groups of four warps multiply 64 windows each by all kColumns columns.

constexpr int kRows = 128, kDepth = 64, kConsumers = 256;
constexpr int kStageElements = (kRows + kColumns) * kDepth;
constexpr int kOutStride = kColumns + 8;  // a warp's words go to different banks

PD_DEVICE void bring_blocks(const Map& image, const Map& weights, Stored* stages, Mailboxes* mail, int window, int column,
                            const Sizes& size) {
  const int w = next_coordinate(window, size.window_columns) * size.step_w + size.first_w;
  const int h = next_coordinate(window, size.window_rows) * size.step_h + size.first_h;  // leaves the image
  Turn turn;
  for (int k = 0; k < size.taps_h; ++k) {
    for (int l = 0; l < size.taps_w; ++l) {
      const int tap = size.first_tap + k * size.next_tap_h + l * size.next_tap_w;
      for (int c = 0; c < size.channels; c += kDepth, turn.next()) {
        wait_for(&mail->free[turn.stage], turn.round + 1);
        unsigned long long* const full = &mail->full[turn.stage];
        Stored* const to = stages + turn.stage * kStageElements;
        mailbox_expect(full, kStageElements * 2);
        bring_windows(to, image, c, w, h, window, l * size.tap_w, k * size.tap_h, full);
        bring_box(to + kRows * kDepth, weights, c, tap, column, full);
      }
    }
  }
}

PD_DEVICE void multiply_blocks(float (&sum)[kColumns / 2], const Stored* stages, Mailboxes* mail, const Sizes& size) {
  const int group = threadIdx.x / 128;
  Turn turn;
  unsigned long long* before = nullptr;  // the stage whose products may be under way
  for (int block = 0; block < size.blocks; ++block, turn.next()) {
    wait_for(&mail->full[turn.stage], turn.round);
    const Stored* const image = stages + turn.stage * kStageElements + group * 64 * kDepth;
    const Stored* const weights = stages + turn.stage * kStageElements + kRows * kDepth;
    products_begin();
#pragma unroll
    for (int step = 0; step < kDepth / 16; ++step) add_product(sum, image, weights, step);
    products_start();
    products_wait_but_one();
    if (before != nullptr && threadIdx.x % 32 == 0) mailbox_expect(before, 0);
    before = &mail->free[turn.stage];
  }
  products_wait(sum);
}

PD_DEVICE void convolve(const Map& image, const Map& weights, const Stored* bias, const Stored* added, Stored* out,
                        const Sizes& size) {
  PD_DYNAMIC_SHARED(Stored, dynamic);
  Stored* const stages = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024 / 2;  // boxes want that
  Mailboxes* const mail = (Mailboxes*)(stages + kStages * kStageElements);
  int tile = blockIdx.x;
  const int first_column = next_coordinate(tile, size.tiles_n) * kColumns, first_window = tile * kRows;
  if (threadIdx.x == kConsumers) fetch_map(image), fetch_map(weights);
  if (threadIdx.x < kStages) {
    mailbox_init(&mail->full[threadIdx.x], 1);
    mailbox_init(&mail->free[threadIdx.x], kConsumers / 32);
  }
  __syncthreads();

  const bool is_consumer = threadIdx.x < kConsumers;
  float sum[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
  if (is_consumer) multiply_blocks(sum, stages, mail, size);
  else if (threadIdx.x == kConsumers) bring_blocks(image, weights, stages, mail, first_window, first_column, size);
  __syncthreads();

  if (is_consumer) {
    const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
    Stored* const to = stages + (threadIdx.x / 32 * 16 + g) * kOutStride + t * 2;
#pragma unroll
    for (int n = 0; n < kColumns / 8; ++n) {
      float of_bias[2] = {0, 0};
      if constexpr (kHasBias) {
        const int column = first_column + n * 8 + t * 2;
#pragma unroll
        for (int k = 0; k < 2; ++k) of_bias[k] = column < size.columns ? load_one<true>(bias + column + k) : 0.0f;
      }
#pragma unroll
      for (int more = 0; more < 2; ++more) {
        Draft<Stored, 2> made;
#pragma unroll
        for (int k = 0; k < 2; ++k) {
          const float value = sum[n * 4 + more * 2 + k] + of_bias[k];
          made.put(k, kHasRelu && !kHasAdded && value < 0 ? 0.0f : value);
        }
        store(to + more * 8 * kOutStride + n * 8, made);
      }
    }
  }
  __syncthreads();

  constexpr int kPieces = kColumns / 8;
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int r = i / kPieces, column = first_column + i % kPieces * 8;
    int window = first_window + r;
    if (window >= size.windows || column >= size.columns) continue;
    const int w = next_coordinate(window, size.window_columns), h = next_coordinate(window, size.window_rows);
    const int to = size.out_first + window * size.out_n + h * size.out_h + w * size.out_w + column;
    Pack<Stored, 8> pack;
    load<false>(pack, stages + r * kOutStride + i % kPieces * 8);
    if constexpr (kHasAdded) {
      Pack<Stored, 8> other;
      load<true>(other, added + to);
      Draft<Stored, 8> made;
#pragma unroll
      for (int k = 0; k < 8; ++k) {
        const float value = pack.get(k) + other.get(k);
        made.put(k, kHasRelu && value < 0 ? 0.0f : value);
      }
      store(out + to, made);
    } else {
      store(out + to, pack);
    }
  }
}
