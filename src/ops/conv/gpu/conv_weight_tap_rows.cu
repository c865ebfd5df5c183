// SPDX-License-Identifier: Apache-2.0
// Weights [o, channel, row, column] of few channels as [o, row, column, 8], zeros for channels that are not there. A thread
// has a tap.
PD_DEVICE void lay_weight_tap_rows(const Stored* weights, Stored* rows, const Sizes& size) {
  const int tap = blockIdx.x * kThreads + threadIdx.x;
  if (tap >= size.taps) return;
  int o = tap;
  const int l = next_coordinate(o, size.kernel_columns), k = next_coordinate(o, size.kernel_rows);
  const Stored* const from = weights + (o * size.weight_n + k * size.weight_h + l * size.weight_w);
  Pack<Stored, 8> pack;
#pragma unroll
  for (int c = 0; c < 8; ++c) pack.put(c, c < size.channels ? load_one<true>(from + c * size.weight_c) : 0.0f);
  store(rows + tap * 8, pack);
}
