// SPDX-License-Identifier: Apache-2.0
// Weights as [group, column, tap, channel], so that a convolution's products bring several channels at once. A thread has
// the taps of one column and channel, which mostly lie side by side.
PD_DEVICE void pack_weights(const Stored* weights, Stored* packed, const Sizes& size) {
  int rest = blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.pairs) return;
  const int c = next_coordinate(rest, size.channels), n = next_coordinate(rest, size.columns);
  const Stored* const from = weights + (rest * size.weight_group + n * size.weight_n + c * size.weight_c);
  const int channels = (int)size.channels.count, columns = (int)size.columns.count;
  Stored* const to = packed + ((rest * columns + n) * size.kernel_rows * size.kernel_columns * channels + c);
  for (int k = 0; k < size.kernel_rows; ++k) {
    for (int l = 0; l < size.kernel_columns; ++l) {
      to[(k * size.kernel_columns + l) * channels] = from[k * size.weight_h + l * size.weight_w];
    }
  }
}
