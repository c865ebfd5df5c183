// SPDX-License-Identifier: Apache-2.0
// Convolutions of few channels: what a CTA's windows read of the images is brought into shared memory once, as a patch,
// and every tap reads it there. The images are taken as one tall image: the rows that windows read, padding included, of
// one after the other, size.tall_rows each. A patch is some of those rows, whole. A slot is a pixel's place in it.
using Word = unsigned;

struct alignas(16) Window { int slot, out, row, unused; };  // where it begins in the patch, and where its result lies

// The first row of the tall image that window `pixel` reads, and the rest of what there is to know about the window.
PD_DEVICE Window window_at(int pixel, const Sizes& size) {
  if (pixel >= size.windows) pixel = size.windows - 1;
  const int j = next_coordinate(pixel, size.window_columns), i = next_coordinate(pixel, size.window_rows);
  return {j * size.step_w, pixel * size.of_window_n + i * size.of_window_h + j * size.of_window_w,
          pixel * (int)size.tall_rows.count + i * size.step_h, 0};
}

template <int kCount> PD_DEVICE void round_words(Stored* at) {
  Pack<Stored, kCount> pack;
  load<false>(pack, at);
#pragma unroll
  for (int i = 0; i < kCount; ++i) pack.word[i] = round_to_tf32(pack.word[i]);
  store(at, pack);
}

// Calls visit(where in the patch, where in the images, whether it is there) for the pieces of rows [first, last] of the
// tall image that this thread has. Warps have rows, lanes what lies side by side in them.
template <class Visit> PD_DEVICE void for_each_piece(int first, int last, const Sizes& size, Visit visit) {
  constexpr int kInSlot = kChannels / kPiece;
  const int pieces = size.patch_columns * kInSlot, lane = threadIdx.x % 32;
  for (int row = first + threadIdx.x / 32; row <= last; row += kThreads / 32) {
    int n = row;
    const int h = next_coordinate(n, size.tall_rows) + size.first_h;
    const bool is_row = h >= 0 && h < size.image_rows;
    const int from = n * size.image_n + h * size.image_h, to = (row - first) * size.patch_columns * kSlot;
    for (int at = lane; at < pieces; at += 32) {
      const int q = at / kInSlot, c = at % kInSlot * kPiece, w = q + size.first_w;
      visit(to + q * kSlot + c, from + w * size.image_w + c, is_row && w >= 0 && w < size.image_columns);
    }
  }
}

PD_DEVICE void bring_patch(Stored* patch, const Stored* images, int first, int last, const Sizes& size) {
  for_each_piece(first, last, size, [&](int to, int from, bool is_there) {
    copy_beside<kPiece * (int)sizeof(Stored)>(patch + to, images + from, is_there);
  });
  copies_end_group();
}

// Rounds what this thread has brought, once for all taps.
PD_DEVICE void finish_patch(Stored* patch, int first, int last, const Sizes& size) {
  copies_wait<0>();
  if constexpr (kSame<Stored, float>) {
    for_each_piece(first, last, size, [&](int to, int, bool) { round_words<kPiece>(patch + to); });
  }
}

// Where tap (k, l) of a window at slot 0 is, in elements.
PD_DEVICE int tap_offset(int k, int l, const Sizes& size) { return (k * size.tap_h + l * size.tap_w) * kSlot; }
