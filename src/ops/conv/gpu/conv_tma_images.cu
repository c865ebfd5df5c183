// SPDX-License-Identifier: Apache-2.0
// out[window, column] = image[window, (tap, channel)] weights[column, (tap, channel)] of 16 bits: a convolution, or a
// phase of its gradient for the image. One warp has TMA load factors of kRows windows, by taps (conv_tma_windows.cu) or
// once for all of them (conv_tma_patches.cu); groups of four warps multiply 64 windows each by all kColumns columns.
// The convolution's epilogue (gpu/conv_epilogue.h) goes over the tile while it is in shared memory; a CTA has tile
// after tile then, and the last CTA of its columns adds up the sums of all.

constexpr int kOutStride = kColumns + 8;  // a warp's words go to different banks

// The bias of two neighbouring columns.
PD_DEVICE void read_bias(float (&of_bias)[2], const Stored* bias, int column, const Sizes& size) {
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    of_bias[k] = 0;
    if constexpr (kHasBias) of_bias[k] = column < size.columns ? load_one<true>(bias + column + k) : 0.0f;
  }
}

// Sums of two neighbouring columns as they are stored.
PD_DEVICE Pack<Stored, 2> rounded(const float* sum, const float (&of_bias)[2]) {
  Draft<Stored, 2> made;
#pragma unroll
  for (int k = 0; k < 2; ++k) {
    const float value = sum[k] + of_bias[k];
    made.put(k, kHasAdded ? value : activated(value));
  }
  return made.pack();
}

// Leaves a warp's sums in the tile, rounded.
PD_DEVICE void lay_down(const float (&sum)[kColumns / 2], Stored* tile, const Stored* bias, int first_column,
                        const Sizes& size) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Stored* const to = tile + (threadIdx.x / 32 * 16 + g) * kOutStride + t * 2;
#pragma unroll
  for (int n = 0; n < kColumns / 8; ++n) {
    float of_bias[2];
    read_bias(of_bias, bias, first_column + n * 8 + t * 2, size);
#pragma unroll
    for (int more = 0; more < 2; ++more) {
      store(to + more * 8 * kOutStride + n * 8, rounded(sum + n * 4 + more * 2, of_bias));
    }
  }
}

// Where a window's result begins.
PD_DEVICE int offset_of(const Place& place, const Sizes& size) {
  return size.out_first + place.n * size.out_n + place.h * size.out_h + place.w * size.out_w;
}

constexpr int kPieces = kColumns / 8;

PD_DEVICE void write_piece(const Pack<Stored, 8>& pack, int to, const Stored* added, Stored* out) {
  if constexpr (kHasAdded) {
    Pack<Stored, 8> other;
    load<true>(other, added + to);
    Draft<Stored, 8> made;
#pragma unroll
    for (int k = 0; k < 8; ++k) {
      const float value = pack.get(k) + other.get(k);
      made.put(k, activated(value));
    }
    store(out + to, made);
  } else {
    store(out + to, pack);
  }
}

PD_DEVICE void write_out(const Stored* laid, int tile, int first_column, const Stored* added, Stored* out,
                         const Sizes& size) {
  for (int i = threadIdx.x; i < kRows * kPieces; i += kConsumers) {
    const int r = i / kPieces, column = first_column + i % kPieces * 8;
    Place place;
    if (column >= size.columns || !find_place(place, tile, r, size)) continue;
    Pack<Stored, 8> pack;
    load<false>(pack, laid + r * kOutStride + i % kPieces * 8);
    write_piece(pack, offset_of(place, size) + column, added, out);
  }
}

// Four lanes have four words each; lane t gets word t of each.
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

// Writes a warp's sums as they are in registers: of every four times 8 columns of a row, of which four lanes have two
// each, a lane writes 8.
PD_DEVICE void write_sums(const float (&sum)[kColumns / 2], int tile, int first_column, const Stored* bias,
                          const Stored* added, Stored* out, const Sizes& size) {
  const int lane = threadIdx.x % 32, g = lane / 4, t = lane % 4;
  Place places[2];
  bool are_there[2];
#pragma unroll
  for (int more = 0; more < 2; ++more) {
    are_there[more] = find_place(places[more], tile, threadIdx.x / 32 * 16 + g + more * 8, size);
  }
#pragma unroll
  for (int n = 0; n < kPieces; n += 4) {
    Pack<Stored, 8> packs[2];
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      float of_bias[2];
      read_bias(of_bias, bias, first_column + (n + i) * 8 + t * 2, size);
#pragma unroll
      for (int more = 0; more < 2; ++more) {
        packs[more].word[i] = rounded(sum + (n + i) * 4 + more * 2, of_bias).word[0];
      }
    }
    const int column = first_column + (n + t) * 8;
#pragma unroll
    for (int more = 0; more < 2; ++more) {
      turn_words(packs[more].word);
      if (are_there[more] && column < size.columns) {
        write_piece(packs[more], offset_of(places[more], size) + column, added, out);
      }
    }
  }
}

#if PD_HAS_END
constexpr int kApart = kConsumers / kPieces, kTurns = kRows / kApart;

// Where the pixel is that a thread has in a turn of a tile, from its column on; -1: there is none.
PD_DEVICE int pixel_at(Place& place, int tile, int turn, int column, const Sizes& size) {
  return find_place(place, tile, threadIdx.x / kPieces + turn * kApart, size) ? offset_of(place, size) + column : -1;
}

PD_DEVICE void finish_epilogue_pixel(const Stored* laid, int turn, const EpiloguePixel& pixel, const EpilogueChannels& channels, const EpilogueOperands& epilogue,
                         int at, const Place& place, int column, Stored* out, float (&sum)[kSums + 1][8],
                         const Sizes& size) {
  Pack<Stored, 8> result;
  const int row = threadIdx.x / kPieces + turn * kApart;
  load<false>(result, laid + row * kOutStride + threadIdx.x % kPieces * 8);
  if constexpr (kIsKept) store(out + at, result);
  finish_pixel(result, pixel, channels, epilogue, at, place, column, sum, size);
}

#if PD_AHEAD > 0
// The epilogue's operands of PD_AHEAD pixels ahead are on their way while those before are gone over and products are
// made, from tile to tile: each thread asks for them and takes them.
struct Ahead {
  char* slots;  // this thread's pieces of the first
  int slot = 0;

  PD_DEVICE char* place() const { return slots + slot * (kImages * kConsumers * 16); }
  PD_DEVICE void next() {
    if (++slot == PD_AHEAD) slot = 0;
  }
  // Into the place of now.
  PD_DEVICE void ask(const EpilogueOperands& epilogue, int tile, int turn, int column, const Sizes& size) const {
    if (turn >= kTurns) turn -= kTurns, tile += size.tiles_apart;
    Place pixel;
    const int at = column < size.columns ? pixel_at(pixel, tile, turn, column, size) : -1;
    if (at >= 0) ask_pixel(place(), epilogue, at);
    copies_end_group();
  }
};
#else
struct Ahead {};
#endif

// A thread stays at its 8 channels, and reads the operands of kAtOnce pixels together, where nothing is ahead. It adds
// up the tile's sums by themselves, as there are registers for them while no products are under way.
PD_DEVICE void finish_tile(const Stored* laid, int tile, int column, const EpilogueOperands& epilogue, Stored* out, Ahead& ahead,
                        float (&ended)[kSums + 1][8], const Sizes& size) {
  if (column >= size.columns) return;
  EpilogueChannels channels;
  read_channels(channels, epilogue, column, size);
  float of_tile[kSums + 1][8] = {};
#if PD_AHEAD > 0
  for (int turn = 0; turn < kTurns; ++turn, ahead.next()) {
    Place place;
    const int at = pixel_at(place, tile, turn, column, size);
    copies_wait<PD_AHEAD - 1>();
    if (at >= 0) {
      EpiloguePixel pixel;
      take_pixel(pixel, ahead.place());
      finish_epilogue_pixel(laid, turn, pixel, channels, epilogue, at, place, column, out, of_tile, size);
    }
    ahead.ask(epilogue, tile, turn + PD_AHEAD, column, size);
  }
#else
  for (int first = 0; first < kTurns; first += kAtOnce) {
    EpiloguePixel pixels[kAtOnce];
    Place places[kAtOnce];
    int at[kAtOnce];
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      at[u] = pixel_at(places[u], tile, first + u, column, size);
      if (at[u] >= 0) read_pixel(pixels[u], epilogue, at[u]);
    }
#pragma unroll
    for (int u = 0; u < kAtOnce; ++u) {
      if (at[u] < 0) continue;
      finish_epilogue_pixel(laid, first + u, pixels[u], channels, epilogue, at[u], places[u], column, out, of_tile, size);
    }
  }
#endif
#pragma unroll
  for (int s = 0; s < kSums; ++s) {
#pragma unroll
    for (int v = 0; v < 8; ++v) ended[s][v] += of_tile[s][v];
  }
}
#endif

PD_DEVICE void convolve(const Map& image, const Map& weights, const Stored* bias, const Stored* added, Stored* out,
                        const EpilogueOperands& epilogue, const LaunchScratch& scratch, const Sizes& size) {
  Stored* const kept = shared_for_tma<Stored>();
  Stored* const stages = kept + kKeptElements;
  Mbarriers* const mbarriers = (Mbarriers*)(stages + kStages * kStageElements);
  int tile = blockIdx.x;
  const int tile_n = next_coordinate(tile, size.tiles_n), first_column = tile_n * kColumns;
  open_stages(mbarriers, image, weights, kConsumers);

  // Where the tile has a place of its own, TMA tiles of the next are on their way while it is gone over; else it lies
  // where TMA tiles come, of which there are more then.
  Stored* const own = kIsAhead ? (Stored*)(mbarriers + 1) : stages;
  Turn turn;
#if PD_HAS_END
  constexpr bool kIsLaidDown = true;
  const int which = tile, column = first_column + (int)threadIdx.x % kPieces * 8;
  float ended[kSums + 1][8] = {};
  Ahead ahead;
#if PD_AHEAD > 0
  ahead.slots = (char*)(mbarriers + 1) + threadIdx.x * 16;
  for (int turn = 0; threadIdx.x < kConsumers && turn < PD_AHEAD; ++turn, ahead.next()) {
    ahead.ask(epilogue, tile, turn, column, size);
  }
#endif
#else
  constexpr bool kIsLaidDown = !kStays;  // else nobody waits but for the factors
#endif
  if (threadIdx.x < kConsumers) {
    if constexpr (kRegisters > 0) take_registers<kRegisters>();
    do {
      float sum[kColumns / 2];
#pragma unroll
      for (int i = 0; i < kColumns / 2; ++i) sum[i] = 0;
      multiply_blocks(sum, kept, stages, mbarriers, turn, size);
      if constexpr (kIsLaidDown) {
        barrier_wait(1, kConsumers);
        lay_down(sum, own, bias, first_column, size);
        barrier_wait(1, kConsumers);
#if PD_HAS_END
        finish_tile(own, tile, column, epilogue, out, ahead, ended, size);
#else
        write_out(own, tile, first_column, added, out, size);
#endif
        if constexpr (kStays && !kIsAhead) {
          fence_for_copies();
          __syncthreads();
        }
      } else {
        write_sums(sum, tile, first_column, bias, added, out, size);
      }
      tile += size.tiles_apart;
    } while (kStays && tile < size.tiles);
  } else {
    if constexpr (kRegisters > 0) give_registers<kFewRegisters>();
    do {
      if (threadIdx.x == kConsumers) bring_blocks(image, weights, kept, stages, mbarriers, turn, tile, first_column, size);
      if constexpr (kIsLaidDown && kStays && !kIsAhead) __syncthreads();
      tile += size.tiles_apart;
    } while (kStays && tile < size.tiles);
  }
#if PD_HAS_END
  if constexpr (kSums > 0) add_up_epilogues(ended, (float*)own, tile_n, which, size.tiles_apart, epilogue, scratch, size);
#endif
}
