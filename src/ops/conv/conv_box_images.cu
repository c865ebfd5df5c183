// SPDX-License-Identifier: Apache-2.0
// out[window, column] = image[window, (tap, channel)] weights[column, (tap, channel)] of 16 bits: a convolution, or a phase
// of its gradient for the image. One warp has the copy engine bring what one tap of kRows windows reads, 64 channels of
// it, and the weights of that; two groups of four warps multiply 64 windows each by all kColumns columns. What stands
// behind the convolution (conv_end_gpu.h) goes over the tile while it is in shared memory; a CTA has tile after tile then,
// and the last CTA of its columns adds up what all of them found.

constexpr int kRows = 128, kDepth = 64, kConsumers = 256;
constexpr int kStageElements = (kRows + kColumns) * kDepth;
constexpr int kOutStride = kColumns + 8;  // a warp's words go to different banks

PD_DEVICE void bring_blocks(const Map& image, const Map& weights, Stored* stages, Mailboxes* mail, Turn& turn, int window,
                            int column, const Sizes& size) {
  const int w = next_coordinate(window, size.window_columns) * size.step_w + size.first_w;
  const int h = next_coordinate(window, size.window_rows) * size.step_h + size.first_h;  // leaves the image
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

PD_DEVICE void multiply_blocks(float (&sum)[kColumns / 2], const Stored* stages, Mailboxes* mail, Turn& turn,
                               const Sizes& size) {
  const int group = threadIdx.x / 128;
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
  if (before != nullptr && threadIdx.x % 32 == 0) mailbox_expect(before, 0);
}

// Leaves a warp's sums in the tile, rounded.
PD_DEVICE void lay_down(const float (&sum)[kColumns / 2], Stored* tile, const Stored* bias, int first_column,
                        const Sizes& size) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Stored* const to = tile + (threadIdx.x / 32 * 16 + g) * kOutStride + t * 2;
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

// Where what the window (h, w) of image n gives begins.
PD_DEVICE int offset_of(int n, int h, int w, const Sizes& size) {
  return size.out_first + n * size.out_n + h * size.out_h + w * size.out_w;
}

constexpr int kPieces = kColumns / 8;

PD_DEVICE void write_out(const Stored* tile, int first_window, int first_column, const Stored* added, Stored* out,
                         const Sizes& size) {
  for (int i = threadIdx.x; i < kRows * kPieces; i += kThreads) {
    const int r = i / kPieces, column = first_column + i % kPieces * 8;
    int window = first_window + r;
    if (window >= size.windows || column >= size.columns) continue;
    const int w = next_coordinate(window, size.window_columns), h = next_coordinate(window, size.window_rows);
    const int to = offset_of(window, h, w, size) + column;
    Pack<Stored, 8> pack;
    load<false>(pack, tile + r * kOutStride + i % kPieces * 8);
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

#if PD_HAS_END
// A thread stays at its 8 channels, and has what kAtOnce pixels read on the way together.
PD_DEVICE void end_tile(const Stored* tile, int first_window, int first_column, const End& end, Stored* out,
                        float (&ended)[kSums + 1][8], const Sizes& size) {
  constexpr int kApart = kConsumers / kPieces;
  const int column = first_column + threadIdx.x % kPieces * 8;
  if (column >= size.columns) return;
  EndChannels channels;
  read_channels(channels, end, column, size);
  for (int r = threadIdx.x / kPieces; r < kRows; r += kApart * kAtOnce) {
    EndPixel pixels[kAtOnce];
    Place places[kAtOnce];
    int at[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      const int window = first_window + r + u * kApart;
      places[u].n = window;
      places[u].w = next_coordinate(places[u].n, size.window_columns);
      places[u].h = next_coordinate(places[u].n, size.window_rows);
      at[u] = window < size.windows ? offset_of(places[u].n, places[u].h, places[u].w, size) + column : -1;
      if (at[u] >= 0) read_pixel(pixels[u], end, at[u]);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (at[u] < 0) continue;
      Pack<Stored, 8> result;
      load<false>(result, tile + (r + u * kApart) * kOutStride + threadIdx.x % kPieces * 8);
      if constexpr (kIsKept) store(out + at[u], result);
      finish_pixel(result, pixels[u], channels, end, at[u], places[u], column, ended, size);
    }
  }
}

// As is_last_arriver, by shared memory that is this CTA's own where the emulation runs all at once.
PD_DEVICE bool is_last_of_columns(unsigned* ticket, unsigned of_columns, int* shared) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    *shared = atomicAdd(ticket, 1u) == of_columns - 1;
    if (*shared) {
      *ticket = 0;
      __threadfence();
    }
  }
  __syncthreads();
  const bool is_last = *shared;
  __syncthreads();
  return is_last;
}

// `of_columns`: the CTAs that have these columns; `which` of them this one is.
PD_DEVICE void add_up_ends(const float (&ended)[kSums + 1][8], float* shared, int tile_n, int which, int of_columns,
                           const End& end, const Room& room, const Sizes& size) {
  constexpr int kElements = kSums * kColumns, kWidth = 64;
  float* const parts = (float*)((char*)room.workspace + size.parts_at_wide) + (long long)tile_n * of_columns * kElements;
  for (int s = 0; s < kSums; ++s) {
    combine_columns<Sum, kPieces, kConsumers / kPieces>(ended[s], shared);
    if (threadIdx.x < kColumns) parts[which * kElements + s * kColumns + threadIdx.x] = shared[threadIdx.x];
  }
  if (!is_last_of_columns(room.tickets + tile_n, (unsigned)of_columns, (int*)shared)) return;
  for (int first = 0; first < kElements; first += kWidth) {
    const int e = first + threadIdx.x % kWidth;
    const float sum =
        combine_parts<Sum, kConsumers>(parts + e, of_columns, kElements, threadIdx.x < kConsumers, kWidth, shared);
    const int column = tile_n * kColumns + e % kColumns;
    if (threadIdx.x < kWidth && column < size.columns) store_sum(end, e / kColumns, column, sum, size);
  }
}
#endif

PD_DEVICE void convolve(const Map& image, const Map& weights, const Stored* bias, const Stored* added, Stored* out,
                        const End& end, const Room& room, const Sizes& size) {
  PD_DYNAMIC_SHARED(Stored, dynamic);
  Stored* const stages = dynamic + (1024 - shared_address(dynamic) % 1024) % 1024 / 2;  // boxes want that
  Mailboxes* const mail = (Mailboxes*)(stages + kStages * kStageElements);
  int tile = blockIdx.x;
  const int tile_n = next_coordinate(tile, size.tiles_n), first_column = tile_n * kColumns;
  if (threadIdx.x == kConsumers) fetch_map(image), fetch_map(weights);
  if (threadIdx.x < kStages) {
    mailbox_init(&mail->full[threadIdx.x], 1);
    mailbox_init(&mail->free[threadIdx.x], kConsumers / 32);
  }
  __syncthreads();

  const bool is_consumer = threadIdx.x < kConsumers;
  Turn turn;
#if PD_HAS_END
  // Where the tile has a place of its own, boxes of the next are on their way while it is gone over; else it lies where
  // boxes come, of which there are more then.
  Stored* const own = kIsAhead ? (Stored*)(mail + 1) : stages;
  const auto meet = [&] {
    if constexpr (!kIsAhead) __syncthreads();
    else if (is_consumer) barrier_wait(1, kConsumers);
  };
  const int which = tile;
  float ended[kSums + 1][8] = {};
  for (; tile * kRows < size.windows; tile += size.tiles_apart) {
    float sum[kColumns / 2];
#pragma unroll
    for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
    if (is_consumer) multiply_blocks(sum, stages, mail, turn, size);
    else if (threadIdx.x == kConsumers) bring_blocks(image, weights, stages, mail, turn, tile * kRows, first_column, size);
    meet();
    if (is_consumer) lay_down(sum, own, bias, first_column, size);
    meet();
    if (is_consumer) end_tile(own, tile * kRows, first_column, end, out, ended, size);
    if constexpr (!kIsAhead) {
      fence_for_copies();
      meet();
    }
  }
  if constexpr (kSums > 0) add_up_ends(ended, (float*)own, tile_n, which, size.tiles_apart, end, room, size);
#else
  const int first_window = tile * kRows;
  float sum[kColumns / 2];
#pragma unroll
  for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
  if (is_consumer) multiply_blocks(sum, stages, mail, turn, size);
  else if (threadIdx.x == kConsumers) bring_blocks(image, weights, stages, mail, turn, first_window, first_column, size);
  __syncthreads();
  if (is_consumer) lay_down(sum, stages, bias, first_column, size);
  __syncthreads();
  write_out(stages, first_window, first_column, added, out, size);
#endif
}
