// SPDX-License-Identifier: Apache-2.0
// One unit of one row of a plain recurrence, from step to step.

struct Operands {
  const Stored *xw, *u, *h0;
  const int* lengths;
  const Bias* bias;
  Stored *states, *last_h;
};

struct Cell {
  float h;

  PD_DEVICE void start(const Operands& operands, const CellPlace& place) { h = load_one<true>(operands.h0 + place.at); }
  // Stores the start, as the entry of [steps, batch, hidden] that begins at `first`.
  PD_DEVICE void keep_start(const Operands& operands, const CellPlace& place, Index first) const {
    if (operands.states != nullptr) store_one(operands.states + first + place.at, h);
  }
  PD_DEVICE void advance(const float (&x)[1], const float (&sum)[1]) {
    const float total = x[0] + sum[0];
    h = kIsRelu ? (total <= 0.0f ? 0.0f : total) : cell_tanh(total);  // NaN stays NaN
  }
  PD_DEVICE void advance_by_fma(float, float, int, bool) {}  // it has one gate
  PD_DEVICE void keep(const Operands& operands, bool counts, Index after, Index, const CellPlace& place, int) const {
    if (operands.states != nullptr) store_one(operands.states + after + place.at, counts ? h : 0.0f);
  }
  PD_DEVICE void end(const Operands& operands, Index at) const {
    if (operands.last_h != nullptr) store_one(operands.last_h + at, h);
  }
};
