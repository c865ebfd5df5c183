// SPDX-License-Identifier: Apache-2.0
// How weights [o, tap, channel] of one tap come, from depth `c` and column `column` on: in TMA tiles that lie along the
// summed axis, or, for gradients, which add up along o, across it, 64 columns a TMA tile.
PD_DEVICE void bring_weights(Stored* to, const Map& weights, int c, int tap, int column, unsigned long long* full) {
  if constexpr (kIsAcross) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 64) tma_load(to + i * kDepth, weights, column + i, tap, c, full);
  } else {
    tma_load(to, weights, c, tap, column, full);
  }
}
