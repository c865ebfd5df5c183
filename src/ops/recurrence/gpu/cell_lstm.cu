// SPDX-License-Identifier: Apache-2.0
// One unit of one row of an LSTM, from step to step; gates are i, f, g, o.

struct Operands {
  const Stored *xw, *u, *h0;
  const State* c0;
  const int* lengths;
  const Bias* bias;
  Stored* states;
  State* cells;
  Stored *gates, *last_h;
  State* last_c;
};

struct Cell {
  float h, c, gates[4];

  PD_DEVICE void start(const Operands& operands, const CellPlace& place) {
    h = load_one<true>(operands.h0 + place.at), c = load_one<true>(operands.c0 + place.at);
  }
  // Stores the start, as the entry of [steps, batch, hidden] that begins at `first`.
  PD_DEVICE void keep_start(const Operands& operands, const CellPlace& place, Index first) const {
    if (operands.states != nullptr) store_one(operands.states + first + place.at, h);
    if (operands.cells != nullptr) store_one(operands.cells + first + place.at, c);
  }
  PD_DEVICE void advance(const float (&x)[4], const float (&sum)[4]) {
    gates[0] = cell_sigmoid(x[0] + sum[0]), gates[1] = cell_sigmoid(x[1] + sum[1]);
    gates[2] = cell_tanh(x[2] + sum[2]), gates[3] = cell_sigmoid(x[3] + sum[3]);
    finish();
  }
  // The same where lane / 8 is the gate that a lane has: of every warp's threads together.
  PD_DEVICE void advance_by_fma(float x, float sum, int lane, bool counts) {
    const float activated = cell_sigmoid_or_tanh(x + sum, lane / 8 == 2);
    float of_lanes[4];
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) of_lanes[gate] = __shfl_sync(~0u, activated, gate * 8 + lane % 8);
    if (!counts) return;
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) gates[gate] = of_lanes[gate];
    finish();
  }
  // The same of lanes that have two, below 16 the gates 0 and 2, the others 1 and 3: those below have the cell.
  PD_DEVICE void advance_by_pairs(const float (&x)[2], const float (&sum)[2], int lane, bool counts) {
    const float first = cell_sigmoid(x[0] + sum[0]), second = cell_sigmoid_or_tanh(x[1] + sum[1], lane < 16);
    const float other_first = __shfl_xor_sync(~0u, first, 16), other_second = __shfl_xor_sync(~0u, second, 16);
    if (!counts) return;
    gates[0] = first, gates[1] = other_first, gates[2] = second, gates[3] = other_second;
    finish();
  }
  PD_DEVICE void finish() {
    c = gates[1] * c + gates[0] * gates[2];
    h = gates[3] * cell_tanh(c);
  }
  // Stores the step's results, in the elements of [steps, batch, hidden] from `after` and `here` on: after the row's
  // last one zeros, and the cell state as it was.
  PD_DEVICE void keep(const Operands& operands, bool counts, Index after, Index here, const CellPlace& place,
                      int hidden) const {
    if (operands.states != nullptr) store_one(operands.states + after + place.at, counts ? h : 0.0f);
    if (operands.cells != nullptr) store_one(operands.cells + after + place.at, c);
    if (operands.gates == nullptr) return;
    Stored* const to = operands.gates + here * 4 + place.in_gates(4);
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) store_one(to + gate * hidden, counts ? gates[gate] : 0.0f);
  }
  PD_DEVICE void end(const Operands& operands, Index at) const {
    if (operands.last_h != nullptr) store_one(operands.last_h + at, h);
    if (operands.last_c != nullptr) store_one(operands.last_c + at, c);
  }
};
