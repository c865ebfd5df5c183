// SPDX-License-Identifier: Apache-2.0
// Convolutions whose groups have few channels, one by one: they are bound by memory. A thread has kVector channels,
// which lie side by side, of kStrip neighbouring windows, and reads the pixels of an image's row that those share once.
// Lanes have channels, so that neighbouring threads read side by side; a CTA has kLanes * kVector channels.

constexpr int kCtaRows = kThreads / kLanes, kCtaChannels = kLanes * kVector;
constexpr int kReadPieces = kVector > 1 ? 1 : kGroupReads;  // that a window's pixel is read in
// Pixels of a row in the reach of several windows; one window reads tap by tap.
constexpr int kReach = kStrip > 1 ? (kStrip - 1) * kStepW + (kKernelColumns - 1) * kTapW + 1 : 1;

// Channels of a pixel: those of the thread, or the group's one by one.
struct Pixel {
  Pack<Stored, kVector> piece[kReadPieces];
  PD_DEVICE float get(int v, int r) const {
    if constexpr (kVector > 1) return piece[0].get(v / kGroupReads * kGroupReads + r);
    else return piece[r].get(0);
  }
};

PD_DEVICE void read_pixel(Pixel& pixel, const Stored* image, int h, int w, bool is_row, const Sizes& size) {
  const bool is_there = is_row && w >= 0 && w < size.image_columns;
#pragma unroll
  for (int r = 0; r < kReadPieces; ++r) {
    clear<Sum>(pixel.piece[r].word);
    if (is_there) load<true>(pixel.piece[r], image + (h * size.image_h + w * size.image_w + r * size.image_c));
  }
}

// kStrip windows of one row of an image.
struct Strip {
  int n, i, j;
};
PD_DEVICE Strip strip_at(int strip, const Sizes& size) {
  Strip at;
  at.j = next_coordinate(strip, size.row_strips) * kStrip, at.i = next_coordinate(strip, size.window_rows);
  at.n = strip;
  return at;
}
PD_DEVICE int first_read(int channel) { return kVector > 1 ? channel : channel / kGroupMade * kGroupReads; }
