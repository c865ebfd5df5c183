// SPDX-License-Identifier: Apache-2.0
// A convolution as a product of matrices, one of which is never laid out: its rows are windows of an image, its columns
// are (tap, channel), and what is in it is gathered from the image when it is wanted. Where an element lies, and whether
// it is on the image at all, follows from what is known of its row and of its column.
constexpr int kFar = -(1 << 30);  // no position along an axis

struct alignas(16) Place { int offset, h, w, other; };

// Pixel `pixel` of `rows` (n, i, j): a window, and where it begins. `other` is where it lies in the image of windows.
PD_DEVICE Place window_at(int pixel, const Sizes& size) {
  if (pixel >= size.windows) return {0, kFar, kFar, 0};
  const int j = next_coordinate(pixel, size.window_columns), i = next_coordinate(pixel, size.window_rows);
  const int h = i * size.step_h + size.first_h, w = j * size.step_w + size.first_w;
  const int offset = pixel * size.image_n + (kIsSpread ? 0 : h * size.image_h + w * size.image_w);
  return {offset, h, w, pixel * size.of_window_n + i * size.of_window_h + j * size.of_window_w};
}

// (tap, channel) number k; `other` is where it lies in a row of the weights.
PD_DEVICE Place tap_at(int k, const Sizes& size) {
  if (k >= size.depth) return {0, kFar, kFar, 0};
  const int c = next_coordinate(k, size.channels), l = next_coordinate(k, size.kernel_columns);
  const int h = k * size.tap_h, w = l * size.tap_w;
  const int offset = c * size.image_c + (kIsSpread ? 0 : h * size.image_h + w * size.image_w);
  return {offset, h, w, k * size.weight_h + l * size.weight_w + c * size.weight_c};
}

// Elements that lie side by side, or zeros where !is_there, into shared memory; there when copies are waited for.
template <int kCount> PD_DEVICE void copy_piece(Stored* to, const Stored* from, bool is_there) {
  if constexpr (kCount * sizeof(Stored) >= 4) copy_beside<kCount * (int)sizeof(Stored)>(to, from, is_there);
  else *to = is_there ? *from : Stored{};
}

// The piece of the image that row and column say. Where a result's windows are `stride` apart, their gradients lie spread
// out, and in between there is nothing.
PD_DEVICE void gather_piece(Stored* to, const Stored* image, const Place& row, const Place& column, const Sizes& size) {
  const int h = row.h + column.h, w = row.w + column.w;
  int offset = row.offset + column.offset;
  bool is_there;
  if constexpr (kIsSpread) {
    is_there = h >= 0 && w >= 0;
    const int i = divide(is_there ? h : 0, size.spread_h), j = divide(is_there ? w : 0, size.spread_w);
    is_there = is_there && i * (int)size.spread_h.count == h && j * (int)size.spread_w.count == w;
    is_there = is_there && i < size.image_rows && j < size.image_columns;
    offset += i * size.image_h + j * size.image_w;
  } else {
    is_there = (unsigned)h < (unsigned)size.image_rows && (unsigned)w < (unsigned)size.image_columns;
  }
  copy_piece<kPiece>(to, image + offset, is_there);
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

template <int kTilesM, int kTilesN>
PD_DEVICE void add_tiles(float (&sum)[kTilesM][kTilesN][4], unsigned (&a)[kTilesM][4], unsigned (&b)[kTilesN][2]) {
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
