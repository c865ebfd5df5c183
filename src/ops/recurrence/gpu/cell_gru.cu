// SPDX-License-Identifier: Apache-2.0
// One unit of one row of a GRU, from step to step; gates are r, z, n, and r multiplies m = h u_n + bm on its way to n.

struct Operands {
  const Stored *xw, *u, *bm, *h0;
  const int* lengths;
  const Bias* bias;
  Stored *states, *saved, *last_h;
};

struct Cell {
  float h, bm, saved[4];

  PD_DEVICE void start(const Operands& operands, const CellPlace& place) {
    h = load_one<true>(operands.h0 + place.at), bm = load_one<true>(operands.bm + place.unit);
  }
  // Stores the start, as the entry of [steps, batch, hidden] that begins at `first`.
  PD_DEVICE void keep_start(const Operands& operands, const CellPlace& place, Index first) const {
    if (operands.states != nullptr) store_one(operands.states + first + place.at, h);
  }
  PD_DEVICE void advance(const float (&x)[3], const float (&sum)[3]) {
    saved[0] = cell_sigmoid(x[0] + sum[0]), saved[1] = cell_sigmoid(x[1] + sum[1]), saved[3] = sum[2] + bm;
    finish(x[2]);
  }
  // The same where lane / 8 is the gate that a lane has: of every warp's threads together.
  PD_DEVICE void advance_by_fma(float x, float sum, int lane, bool counts) {
    const float activated = cell_sigmoid(x + sum);
    const float r = __shfl_sync(~0u, activated, lane % 8), z = __shfl_sync(~0u, activated, 8 + lane % 8);
    const float of_m = __shfl_sync(~0u, sum, 16 + lane % 8), of_n = __shfl_sync(~0u, x, 16 + lane % 8);
    if (!counts) return;
    saved[0] = r, saved[1] = z, saved[3] = of_m + bm;
    finish(of_n);
  }
  // The same of lanes that have two, below 16 the gates 0 and 2, the others 1: those below have the cell.
  PD_DEVICE void advance_by_pairs(const float (&x)[2], const float (&sum)[2], int, bool counts) {
    const float activated = cell_sigmoid(x[0] + sum[0]), other = __shfl_xor_sync(~0u, activated, 16);
    if (!counts) return;
    saved[0] = activated, saved[1] = other, saved[3] = sum[1] + bm;
    finish(x[1]);
  }
  PD_DEVICE void finish(float of_n) {
    saved[2] = cell_tanh(of_n + saved[0] * saved[3]);
    h = saved[2] + saved[1] * (h - saved[2]);
  }
  PD_DEVICE void keep(const Operands& operands, bool counts, Index after, Index here, const CellPlace& place,
                      int hidden) const {
    if (operands.states != nullptr) store_one(operands.states + after + place.at, counts ? h : 0.0f);
    if (operands.saved == nullptr) return;
    Stored* const to = operands.saved + here * 4 + place.in_gates(4);
#pragma unroll
    for (int i = 0; i < 4; ++i) store_one(to + i * hidden, counts ? saved[i] : 0.0f);
  }
  PD_DEVICE void end(const Operands& operands, Index at) const {
    if (operands.last_h != nullptr) store_one(operands.last_h + at, h);
  }
};
