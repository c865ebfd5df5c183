// SPDX-License-Identifier: Apache-2.0
// How weights [o, tap, channel] of one tap come, from depth `c` and column `column` on: in boxes that lie along what is
// added up, or, for gradients, which add up along o, across it, 64 columns a box.
PD_DEVICE void bring_weights(Stored* to, const Map& weights, int c, int tap, int column, unsigned long long* full) {
  if constexpr (kIsAcross) {
#pragma unroll
    for (int i = 0; i < kColumns; i += 64) bring_box(to + i * kDepth, weights, column + i, tap, c, full);
  } else {
    bring_box(to, weights, c, tap, column, full);
  }
}
