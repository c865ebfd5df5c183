// SPDX-License-Identifier: Apache-2.0
// out[window, o] = the sum over taps and the channels of o's group of image[window, tap, channel] weights[o, channel, tap];
// or the gradient for the image, whose windows are a step of one apart and read the taps in their opposite order. Where
// the convolution has a step, a pixel of its gradient is read by some of the taps only (kIsSpread).

constexpr int kTaps = kKernelRows * kKernelColumns;

// Brings the weights of the CTA's channels, as [tap, channel read, channel].
PD_DEVICE void bring_weights(float* to, const Stored* weights, int first, const Sizes& size) {
  for (int at = threadIdx.x; at < kTaps * kGroupReads * kCtaChannels; at += kThreads) {
    const int channel = first + at % kCtaChannels, r = at / kCtaChannels % kGroupReads;
    const int tap = at / kCtaChannels / kGroupReads;
    if (channel >= size.channels) continue;
    const int group = channel / kGroupMade, inside = channel % kGroupMade;
    const int o = kIsBack ? group * kGroupReads + r : channel, c = kIsBack ? inside : r;
    const int k = kIsBack && !kIsSpread ? kTaps - 1 - tap : tap;
    to[at] = load_one<true>(weights + (o * size.weight_n + c * size.weight_c + k / kKernelColumns * size.weight_h +
                                       k % kKernelColumns * size.weight_w));
  }
}

PD_DEVICE void add_tap(float (&sum)[kVector], const Pixel& pixel, const float* weights) {
#pragma unroll
  for (int r = 0; r < kGroupReads; ++r) {
    Pack<float, kVector> factors;
    load<false>(factors, weights + r * kCtaChannels);
#pragma unroll
    for (int v = 0; v < kVector; ++v) sum[v] += pixel.get(v, r) * factors.get(v);
  }
}

// The row of the image that row i of windows reads with tap k, -1 for none.
PD_DEVICE int row_of(int i, int k, const Sizes& size) {
  int h = i * kStepH + size.first_h + k * kTapH;
  if constexpr (kIsSpread) {
    if (h < 0 || h % kSpreadH != 0) return -1;
    h /= kSpreadH;
  }
  return h < size.image_rows ? h : -1;
}

PD_DEVICE void convolve(const Stored* images, const Stored* weights, const Stored* bias, Stored* out, const Sizes& size) {
  PD_DYNAMIC_SHARED(float, own_weights);
  const int lane = threadIdx.x % kLanes;
  int part = blockIdx.x;
  const int first = next_coordinate(part, size.chunks) * kCtaChannels, channel = first + lane * kVector;
  bring_weights(own_weights, weights, first, size);
  __syncthreads();
  if (channel >= size.channels) return;
  images += first_read(channel) * size.image_c, out += channel * size.of_window_c;
  const float* const factors = own_weights + lane * kVector;
  float added[kVector];
#pragma unroll
  for (int v = 0; v < kVector; ++v) added[v] = kHasBias ? load_one<true>(bias + (channel + v) * size.bias) : 0.0f;

  for (int strip = part * kCtaRows + threadIdx.x / kLanes; strip < size.strips; strip += size.parts * kCtaRows) {
    const Strip at = strip_at(strip, size);
    const Stored* const image = images + at.n * size.image_n;
    float sum[kStrip][kVector];
    clear<Sum>(sum);
#pragma unroll kRowsAtOnce
    for (int k = 0; k < kKernelRows; ++k) {
      const int h = row_of(at.i, k, size), w = at.j * kStepW + size.first_w;
      if (h < 0) continue;
      const float* const row_factors = factors + k * kKernelColumns * kGroupReads * kCtaChannels;
      if constexpr (kStrip > 1) {
        Pixel pixels[kReach];
#pragma unroll
        for (int q = 0; q < kReach; ++q) read_pixel(pixels[q], image, h, w + q, true, size);
#pragma unroll
        for (int l = 0; l < kKernelColumns; ++l) {
#pragma unroll
          for (int p = 0; p < kStrip; ++p) {
            add_tap(sum[p], pixels[p * kStepW + l * kTapW], row_factors + l * kGroupReads * kCtaChannels);
          }
        }
      } else {
#pragma unroll kColumnsAtOnce
        for (int l = 0; l < kKernelColumns; ++l) {
          int column = w + l * kTapW;
          bool is_there = true;
          if constexpr (kIsSpread) is_there = column >= 0 && column % kSpreadW == 0, column /= kSpreadW;
          Pixel pixel;
          read_pixel(pixel, image, h, column, is_there, size);
          add_tap(sum[0], pixel, row_factors + l * kGroupReads * kCtaChannels);
        }
      }
    }
    Stored* const to = out + (at.n * size.of_window_n + at.i * size.of_window_h + at.j * size.of_window_w);
#pragma unroll
    for (int p = 0; p < kStrip; ++p) {
      if (at.j + p >= size.window_columns) break;
      Draft<Stored, kVector> made;
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        const float value = sum[p][v] + added[v];
        made.put(v, activated(value));
      }
      store(to + p * size.of_window_w, made);
    }
  }
}
