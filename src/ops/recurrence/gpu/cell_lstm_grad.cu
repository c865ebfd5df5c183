// SPDX-License-Identifier: Apache-2.0
// One unit of one row of an LSTM, from its last step to its first; gates are i, f, g, o.

struct Operands {
  const Stored *u, *gates;
  const State* cells;
  const Stored *dstates, *dlast_h;
  const State* dlast_c;
  const int* lengths;
  Stored *dxw, *dh0;
  State* dc0;
  Summed* sums;
};

struct Cell {
  static constexpr int kSums = 4;
  float dh, dc;            // gradients of the step's results
  // The values of the next step, as stored until they are there: the cell state after it and in front of it, and so
  // on.
  Pack<State, 1> c, next_c;
  Pack<Stored, 1> gates[4], dstate;
  // The values of the prepared step: its state's gradient; the factors of dh for c and of dc for the c before; the
  // gates' slopes.
  float of_h, of_c, left, slopes[4];

  PD_DEVICE void start(const Operands& operands, Index at) {
    dh = operands.dlast_h != nullptr ? load_one<true>(operands.dlast_h + at) : 0.0f;
    dc = operands.dlast_c != nullptr ? load_one<true>(operands.dlast_c + at) : 0.0f;
  }
  PD_DEVICE void fetch_end(const Operands& operands, Index after, const CellPlace& place) {
    load<true>(next_c, operands.cells + after + place.at);
  }
  PD_DEVICE void fetch(const Operands& operands, bool counts, const StepElements& step, const CellPlace& place,
                       int hidden) {
    c = next_c;
    load<true>(next_c, operands.cells + step.before + place.at);
    if (!counts) return;
    const Stored* const from = operands.gates + step.here * 4 + place.in_gates(4);
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) load<true>(gates[gate], from + gate * hidden);
    if (operands.dstates != nullptr) load<true>(dstate, operands.dstates + step.here + place.at);
  }
  PD_DEVICE void take_back(float sum) { dh = sum; }
  PD_DEVICE void prepare(const Operands& operands) {
    const float i = gates[0].get(0), f = gates[1].get(0), g = gates[2].get(0), o = gates[3].get(0);
    const float activated = cell_tanh(c.get(0));
    of_h = prepared(operands.dstates != nullptr ? dstate.get(0) : 0.0f);
    of_c = prepared(o * (1.0f - activated * activated)), left = prepared(f);
    slopes[0] = prepared(g * (i * (1.0f - i))), slopes[1] = prepared(next_c.get(0) * (f * (1.0f - f)));
    slopes[2] = prepared(i * (1.0f - g * g)), slopes[3] = prepared(activated * (o * (1.0f - o)));
  }
  // Computes the gradients of the gates' sums.
  PD_DEVICE void retreat(const Operands&, float (&gradients)[4], bool counts) {
    if (!counts) return;
    const float d_h = dh + of_h;
    gradients[3] = d_h * slopes[3];
    dc += d_h * of_c;
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) gradients[gate] = dc * slopes[gate];
    dc *= left;
  }
  PD_DEVICE void keep(const Operands& operands, const float (&gradients)[4], Index here, const CellPlace& place,
                      int hidden) const {
    if (operands.dxw == nullptr) return;
    Stored* const to = operands.dxw + here * 4 + place.in_gates(4);
#pragma unroll
    for (int gate = 0; gate < 4; ++gate) store_one(to + gate * hidden, gradients[gate]);
  }
  // The k-th gradient to add up over steps and rows.
  PD_DEVICE float summed(const float (&gradients)[4], int k) const { return gradients[k]; }
  PD_DEVICE void end(const Operands& operands, Index at) const {
    if (operands.dh0 != nullptr) store_one(operands.dh0 + at, dh);
    if (operands.dc0 != nullptr) store_one(operands.dc0 + at, dc);
  }
};
