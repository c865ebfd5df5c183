// SPDX-License-Identifier: Apache-2.0
// A max pool in 16 bits: a thread has 8 channels of kWindows windows below each other, and keeps the largest of rows
// that two of them share. The image may go through a group first (gpu/conv_epilogue.h), whose result nobody writes, nor
// rounds.

constexpr int kShared = kKernelH > kStrideH ? kKernelH - kStrideH : 0;  // rows of a window that the next reads too

// The largest elements of a row of taps, or of a window, and where they are.
struct Largest {
  float value[8];
  int tap[8];
};
PD_DEVICE void begin(Largest& best, int first_tap) {
#pragma unroll
  for (int v = 0; v < 8; ++v) best.value[v] = least<float>(), best.tap[v] = first_tap;
}
// A NaN is larger than any number, and no other NaN is larger than it.
PD_DEVICE void look(Largest& best, int v, float candidate, int tap) {
  if (best.value[v] != best.value[v] || candidate <= best.value[v]) return;
  best.value[v] = candidate, best.tap[v] = tap;
}

// The pixels under the taps of a row.
struct RowOfTaps {
  Pack<Stored, 8> image[kKernelW];
  EpiloguePixel pixel[kKernelW];
};

PD_DEVICE void pool(const Stored* image, const EpilogueOperands& prologue, Stored* to, unsigned char* choice, const Sizes& size) {
  int rest = blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  const int channel = next_coordinate(rest, size.pieces) * 8, column = next_coordinate(rest, size.window_columns);
  const int first_row = next_coordinate(rest, size.parts) * kWindows, left = column * kStrideW - kBeforeW;
  const int first_l = left < 0 ? -left : 0;
  EpilogueChannels channels;
  read_channels(channels, prologue, channel, size);
  float no_sum[kSums + 1][8];
  Largest rows[kKernelH];
  for (int i = 0; i < kWindows; ++i) {
    const int row = first_row + i, top = row * kStrideH - kBeforeH;
    if (row >= size.window_rows) break;
    RowOfTaps taps[kKernelH];
    Place place;
    place.n = rest;
#pragma unroll
    for (int k = 0; k < kKernelH; ++k) {
      if (k < kShared && i > 0) continue;
      place.h = top + k;
      if (place.h < 0 || place.h >= size.rows) continue;
#pragma unroll
      for (int l = 0; l < kKernelW; ++l) {
        place.w = left + l;
        if (place.w < 0 || place.w >= size.image_columns) continue;
        const int at = place.n * size.from_n + place.h * size.from_h + place.w * size.from_w + channel;
        load<true>(taps[k].image[l], image + at);
        read_pixel(taps[k].pixel[l], prologue, at);
      }
    }
    Largest best;
    begin(best, (top < 0 ? -top : 0) * kKernelW + first_l);
#pragma unroll
    for (int k = 0; k < kKernelH; ++k) {
      place.h = top + k;
      const bool is_there = place.h >= 0 && place.h < size.rows;
      if (k >= kShared || i == 0) begin(rows[k], first_l);
      if (is_there && (k >= kShared || i == 0)) {
#pragma unroll
        for (int l = 0; l < kKernelW; ++l) {
          place.w = left + l;
          if (place.w < 0 || place.w >= size.image_columns) continue;
          EpilogueResults made;
          make_pixel(made, taps[k].image[l], taps[k].pixel[l], channels, place, channel, no_sum, size);
#pragma unroll
          for (int v = 0; v < 8; ++v) look(rows[k], v, made.out0.value[v], l);
        }
      }
      if (!is_there) continue;
#pragma unroll
      for (int v = 0; v < 8; ++v) look(best, v, rows[k].value[v], k * kKernelW + rows[k].tap[v]);
    }
#pragma unroll
    for (int k = 0; k < kShared; ++k) rows[k] = rows[k + kStrideH];
    Draft<Stored, 8> made;
    Draft<unsigned char, 8> chosen;
#pragma unroll
    for (int v = 0; v < 8; ++v) made.put(v, best.value[v]), chosen.put(v, best.tap[v]);
    store(to + (place.n * size.to_n + row * size.to_h + column * size.to_w + channel), made);
    store(choice + (place.n * size.index_n + row * size.index_h + column * size.index_w + channel), chosen);
  }
}
