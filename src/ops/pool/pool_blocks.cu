// SPDX-License-Identifier: Apache-2.0
// The gradient of a max pool in 16 bits: a thread has 8 channels of a block of kStrideH x kStrideW pixels, which the
// same windows read, and brings the gradient of each window, and its choice, once for all of them. Where a group stands
// after it (gpu/conv_epilogue.h) that goes on from it, and nobody writes it. CTAs stay, so that sums go on from block
// to block.

constexpr int kPieces = kColumns / 8, kRows = kThreads / kPieces;
constexpr int kWindowsH = 1 + (kKernelH - 1) / kStrideH, kWindowsW = 1 + (kKernelW - 1) / kStrideW;

// The windows that may read pixels of a block; of one that is not there, a choice that none of its taps is.
struct BlockWindows {
  Pack<Stored, 8> gradient[kWindowsH][kWindowsW];
  Pack<unsigned char, 8> chosen[kWindowsH][kWindowsW];
};
PD_DEVICE void read_windows(BlockWindows& windows, const Stored* dy, const unsigned char* chosen, const Place& block,
                            int channel, const Sizes& size) {
#pragma unroll
  for (int i = 0; i < kWindowsH; ++i) {
#pragma unroll
    for (int j = 0; j < kWindowsW; ++j) {
      const int h = block.h - i, w = block.w - j;
      Pack<unsigned char, 8>& of_window = windows.chosen[i][j];
      of_window.word[0] = of_window.word[1] = ~0u;
      if (h < 0 || h >= size.window_rows || w < 0 || w >= size.window_columns) continue;
      load<true>(windows.gradient[i][j], dy + (block.n * size.from_n + h * size.from_h + w * size.from_w + channel));
      load<true>(of_window, chosen + (block.n * size.index_n + h * size.index_h + w * size.index_w + channel));
    }
  }
}

// The gradient of pixel (r, q) of the block, added up from the first window on.
PD_DEVICE Pack<Stored, 8> gathered(const BlockWindows& windows, int r, int q) {
  Draft<Stored, 8> made;
  clear<Sum>(made.value);
#pragma unroll
  for (int i = kWindowsH - 1; i >= 0; --i) {
#pragma unroll
    for (int j = kWindowsW - 1; j >= 0; --j) {
      const int k = r + i * kStrideH, l = q + j * kStrideW;
      if (k >= kKernelH || l >= kKernelW) continue;
#pragma unroll
      for (int v = 0; v < 8; ++v) {
        if ((int)windows.chosen[i][j].get(v) == k * kKernelW + l) made.value[v] += windows.gradient[i][j].get(v);
      }
    }
  }
  return made.pack();
}

PD_DEVICE void spread(const Stored* dy, const unsigned char* chosen, const EpilogueOperands& epilogue, const LaunchScratch& scratch,
                      const Sizes& size) {
  int which = blockIdx.x;
  const int tile_n = next_coordinate(which, size.tiles_n), channel = tile_n * kColumns + threadIdx.x % kPieces * 8;
  float sum[kSums + 1][8] = {};
  if (channel < size.columns) {
    EpilogueChannels channels;
    read_channels(channels, epilogue, channel, size);
    for (int i = which * kRows + threadIdx.x / kPieces; i < size.blocks; i += size.ctas_apart * kRows) {
      Place block;
      block.n = i;
      block.w = next_coordinate(block.n, size.block_columns), block.h = next_coordinate(block.n, size.block_rows);
      BlockWindows windows;
      read_windows(windows, dy, chosen, block, channel, size);
      EpiloguePixel pixels[kStrideH * kStrideW];
      Place places[kStrideH * kStrideW];
      int at[kStrideH * kStrideW];
#pragma unroll
      for (int p = 0; p < kStrideH * kStrideW; ++p) {
        Place& place = places[p];
        place.n = block.n, place.h = block.h * kStrideH + p / kStrideW - kBeforeH;
        place.w = block.w * kStrideW + p % kStrideW - kBeforeW;
        const bool is_there = place.h >= 0 && place.h < size.rows && place.w >= 0 && place.w < size.image_columns;
        at[p] = is_there ? place.n * size.to_n + place.h * size.to_h + place.w * size.to_w + channel : -1;
        if (is_there) read_pixel(pixels[p], epilogue, at[p]);
      }
#pragma unroll
      for (int p = 0; p < kStrideH * kStrideW; ++p) {
        if (at[p] < 0) continue;
        finish_pixel(gathered(windows, p / kStrideW, p % kStrideW), pixels[p], channels, epilogue, at[p], places[p], channel,
                     sum, size);
      }
    }
  }
  if constexpr (kSums > 0) {
    PD_DYNAMIC_SHARED(float, dynamic);
    add_up_epilogues(sum, dynamic, tile_n, which, size.ctas_apart, epilogue, scratch, size);
  }
}
