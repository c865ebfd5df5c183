// SPDX-License-Identifier: Apache-2.0
// A convolution as a product of matrices, one of which is never laid out: its rows are windows of an image, its columns
// are (tap, channel), and its elements are gathered from the image when they are wanted. The place of an element, and
// whether it is on the image at all, follows from its row and its column.
constexpr int kFar = -(1 << 30);  // no position along an axis

struct alignas(16) Place { int offset, h, w, other; };

// In the gradient for the image of a convolution with a stride, pixels a stride apart are read by the same taps, so they
// are windows next to each other: a phase of the image, one of as many as the strides have steps. Else all is one phase.
struct Phase {
  int row, column;            // its first pixel
  int first_h, first_w;       // where the window of that begins
  int tap_row, tap_column;    // its first tap
  int tap_columns, depth;     // how many taps side by side; (tap, channel)s
};

// Along one axis: the first tap that reads pixels of phase `phase`, -1 for none; the others are so many `apart`.
PD_DEVICE int first_tap(int phase, int before, int dilation, int stride, int apart) {
  for (int k = 0; k < apart; ++k) {
    if ((phase + before - k * dilation) % stride == 0) return k;
  }
  return -1;
}
PD_DEVICE int taps_from(int first, int kernel, int apart) {
  return first < 0 || first >= kernel ? 0 : (kernel - first + apart - 1) / apart;
}

PD_DEVICE Phase phase_at(int phase, const Sizes& size) {
  Phase p{0, 0, size.first_h, size.first_w, 0, 0, 0, size.depth};
  if constexpr (kHasPhases) {
    p.column = phase % size.stride_w, p.row = phase / size.stride_w;
    p.tap_row = first_tap(p.row, size.first_h, size.dilation_h, size.stride_h, size.apart_h);
    p.tap_column = first_tap(p.column, size.first_w, size.dilation_w, size.stride_w, size.apart_w);
    const int tap_rows = taps_from(p.tap_row, size.kernel_h, size.apart_h);
    p.tap_columns = taps_from(p.tap_column, size.kernel_w, size.apart_w);
    p.depth = tap_rows * p.tap_columns * (int)size.channels.count;
    p.first_h = (p.row + size.first_h - p.tap_row * size.dilation_h) / size.stride_h;
    p.first_w = (p.column + size.first_w - p.tap_column * size.dilation_w) / size.stride_w;
  }
  return p;
}

// Pixel `pixel` of `rows` (n, i, j): a window, and where it begins. `other` is where it lies in the image of windows.
PD_DEVICE Place window_at(int pixel, const Phase& phase, const Sizes& size) {
  if (pixel >= size.windows) return {0, kFar, kFar, 0};
  int j = next_coordinate(pixel, size.window_columns), i = next_coordinate(pixel, size.window_rows);
  const int h = i * size.step_h + phase.first_h, w = j * size.step_w + phase.first_w;
  if constexpr (kHasPhases) {
    i = i * size.stride_h + phase.row, j = j * size.stride_w + phase.column;
    if (i >= size.pixel_rows || j >= size.pixel_columns) return {0, kFar, kFar, 0};
  }
  const int offset = pixel * size.image_n + h * size.image_h + w * size.image_w;
  return {offset, h, w, pixel * size.of_window_n + i * size.of_window_h + j * size.of_window_w};
}

// (tap, channel) number k; `other` is where it lies in a row of the weights.
PD_DEVICE Place tap_at(int k, const Phase& phase, const Sizes& size) {
  if (k >= phase.depth) return {0, kFar, kFar, 0};
  const int c = next_coordinate(k, size.channels);
  int l, row, column;
  if constexpr (kHasPhases) {
    l = k % phase.tap_columns, k /= phase.tap_columns;
    row = phase.tap_row + k * size.apart_h, column = phase.tap_column + l * size.apart_w;
  } else {
    l = next_coordinate(k, size.kernel_columns), row = k, column = l;
  }
  const int h = k * size.tap_h, w = l * size.tap_w;
  const int offset = c * size.image_c + h * size.image_h + w * size.image_w;
  return {offset, h, w, row * size.weight_h + column * size.weight_w + c * size.weight_c};
}

// Elements that lie side by side, or zeros where !is_there, into shared memory; there when copies are waited for.
template <int kCount> PD_DEVICE void copy_piece(Stored* to, const Stored* from, bool is_there) {
  if constexpr (kCount * sizeof(Stored) >= 4) copy_beside<kCount * (int)sizeof(Stored)>(to, from, is_there);
  else *to = is_there ? *from : Stored{};
}

PD_DEVICE bool is_on_image(const Place& row, const Place& column, const Sizes& size) {
  const int h = row.h + column.h, w = row.w + column.w;
  return (unsigned)h < (unsigned)size.image_rows && (unsigned)w < (unsigned)size.image_columns;
}
// The piece of the image that row and column say.
PD_DEVICE void gather_piece(Stored* to, const Stored* image, const Place& row, const Place& column, const Sizes& size) {
  copy_piece<kPiece>(to, image + (row.offset + column.offset), is_on_image(row, column, size));
}

// The sums of a warp's tile: of every 16 by 8 a lane has rows g and g + 8, columns 2 t and 2 t + 1.
struct Lane {
  int g = threadIdx.x % 32 / 4, t = threadIdx.x % 4;
};

template <int kTilesM, int kTilesN> PD_DEVICE void clear_sums(float (&sum)[kTilesM][kTilesN][4]) {
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) clear<Sum>(sum[m][n]);
  }
}

// Three products each (exact_factors.cu), the small ones first, as the tensor cores cut off their sums; for the same
// reason they add up the products of one step alone.
template <int kTilesM, int kTilesN>
PD_DEVICE void add_exact_tiles(float (&sum)[kTilesM][kTilesN][4], unsigned (&a)[kTilesM][4], unsigned (&b)[kTilesN][2]) {
  const auto split = [](unsigned& word) {
    float rest = __uint_as_float(word);
    word = __float_as_uint(take_high(rest));
    return __float_as_uint(rest);
  };
  unsigned b_low[kTilesN][2];
#pragma unroll
  for (int n = 0; n < kTilesN; ++n) b_low[n][0] = split(b[n][0]), b_low[n][1] = split(b[n][1]);
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
    unsigned a_low[4];
#pragma unroll
    for (int i = 0; i < 4; ++i) a_low[i] = split(a[m][i]);
    float part[kTilesN][4] = {};
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) add_tile<float>(part[n], a_low, b[n]);
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) add_tile<float>(part[n], a[m], b_low[n]);
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) add_tile<float>(part[n], a[m], b[n]);
#pragma unroll
    for (int i = 0; i < kTilesN * 4; ++i) sum[m][i / 4][i % 4] += part[i / 4][i % 4];
  }
}

template <int kTilesM, int kTilesN>
PD_DEVICE void add_tiles(float (&sum)[kTilesM][kTilesN][4], unsigned (&a)[kTilesM][4], unsigned (&b)[kTilesN][2]) {
  if constexpr (kIsExact) return add_exact_tiles(sum, a, b);
  if constexpr (kSame<Stored, float>) {
#pragma unroll
    for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
      for (int i = 0; i < 4; ++i) a[m][i] = round_to_tf32(a[m][i]);
    }
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) b[n][0] = round_to_tf32(b[n][0]), b[n][1] = round_to_tf32(b[n][1]);
  }
#pragma unroll
  for (int m = 0; m < kTilesM; ++m) {
#pragma unroll
    for (int n = 0; n < kTilesN; ++n) add_tile<Stored>(sum[m][n], a[m], b[n]);
  }
}
