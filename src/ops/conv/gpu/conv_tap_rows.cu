// SPDX-License-Identifier: Apache-2.0
// An image [n, channel, row, column] of few channels as [n, row, plane, column, 8], plane 0 with every `planes`-th
// column from the first on, with zeros for windows' pixels beside it and channels that are not there. A thread has a
// pixel.
PD_DEVICE void lay_tap_rows(const Stored* image, Stored* rows, const Sizes& size) {
  const int pixel = blockIdx.x * kThreads + threadIdx.x;
  if (pixel >= size.pixels) return;
  int n = pixel;
  const int in_plane = next_coordinate(n, size.columns), plane = next_coordinate(n, size.planes);
  const int column = in_plane * (int)size.planes.count + plane - size.before;
  const int row = next_coordinate(n, size.rows) - size.before_h;
  const Stored* const from = image + (n * size.image_n + row * size.image_h + column * size.image_w);
  const bool is_there = (unsigned)column < (unsigned)size.image_columns && (unsigned)row < (unsigned)size.image_rows;
  Pack<Stored, 8> pack;
#pragma unroll
  for (int c = 0; c < 8; ++c) pack.put(c, is_there && c < size.channels ? load_one<true>(from + c * size.image_c) : 0.0f);
  store(rows + (long long)pixel * 8, pack);
}
