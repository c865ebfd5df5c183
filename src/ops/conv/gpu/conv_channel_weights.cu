// SPDX-License-Identifier: Apache-2.0
// partial[part, o, tap, channel] = the sum over the part's windows of gradient[window, o] image[window, tap, channel]. A
// thread keeps the sums of its channels and of kTapRows rows of taps in registers; threads with the same channels, whose
// windows differ, are added up in the end.

PD_DEVICE void add_up(const Stored* images, const Stored* gradients, float* partial, const Sizes& size) {
  __shared__ float shared[kThreads / 32 * (kCtaChannels > 32 ? kCtaChannels : 32)];
  const int lane = threadIdx.x % kLanes;
  int part = blockIdx.x;
  const int first = next_coordinate(part, size.chunks) * kCtaChannels, channel = first + lane * kVector;
  const int first_tap_row = next_coordinate(part, size.tap_parts) * kTapRows;
  float sum[kTapRows][kKernelColumns][kGroupReads][kVector];
#pragma unroll
  for (int k = 0; k < kTapRows; ++k) clear<Sum>(sum[k]);

  int strip = part * kCtaRows + threadIdx.x / kLanes;
  if (channel >= size.channels) strip = size.strips;
  images += first_read(channel) * size.image_c, gradients += channel * size.of_window_c;
  for (; strip < size.strips; strip += size.parts * kCtaRows) {
    const Strip at = strip_at(strip, size);
    const Stored* const image = images + at.n * size.image_n;
    const Stored* const gradient =
        gradients + (at.n * size.of_window_n + at.i * size.of_window_h + at.j * size.of_window_w);
    Pack<Stored, kVector> of_window[kStrip];
#pragma unroll
    for (int p = 0; p < kStrip; ++p) {
      clear<Sum>(of_window[p].word);
      if (at.j + p < size.window_columns) load<true>(of_window[p], gradient + p * size.of_window_w);
    }
#pragma unroll
    for (int k = 0; k < kTapRows; ++k) {
      const int h = at.i * kStepH + size.first_h + (first_tap_row + k) * kTapH;
      const int w = at.j * kStepW + size.first_w;
      if (first_tap_row + k >= kKernelRows || h < 0 || h >= size.image_rows) continue;
      const auto add = [&](int p, int l, const Pixel& pixel) {
#pragma unroll
        for (int r = 0; r < kGroupReads; ++r) {
#pragma unroll
          for (int v = 0; v < kVector; ++v) sum[k][l][r][v] += of_window[p].get(v) * pixel.get(v, r);
        }
      };
      if constexpr (kStrip > 1) {
        Pixel pixels[kReach];
#pragma unroll
        for (int q = 0; q < kReach; ++q) read_pixel(pixels[q], image, h, w + q, true, size);
#pragma unroll
        for (int l = 0; l < kKernelColumns; ++l) {
#pragma unroll
          for (int p = 0; p < kStrip; ++p) add(p, l, pixels[p * kStepW + l * kTapW]);
        }
      } else {
#pragma unroll
        for (int l = 0; l < kKernelColumns; ++l) {
          Pixel pixel;
          read_pixel(pixel, image, h, w + l * kTapW, true, size);
          add(0, l, pixel);
        }
      }
    }
  }

  partial += (long long)part * size.channels * (kKernelRows * kKernelColumns * kGroupReads);
#pragma unroll
  for (int k = 0; k < kTapRows; ++k) {
#pragma unroll
    for (int l = 0; l < kKernelColumns; ++l) {
#pragma unroll
      for (int r = 0; r < kGroupReads; ++r) {
        combine_columns<Sum, kLanes, kCtaRows, kVector>(sum[k][l][r], shared);
        const int tap = (first_tap_row + k) * kKernelColumns + l;
        for (int c = threadIdx.x; c < kCtaChannels; c += kThreads) {
          if (first + c >= size.channels || first_tap_row + k >= kKernelRows) continue;
          partial[((first + c) * (kKernelRows * kKernelColumns) + tap) * kGroupReads + r] = shared[c];
        }
      }
    }
  }
}
