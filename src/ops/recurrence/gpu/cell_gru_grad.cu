// SPDX-License-Identifier: Apache-2.0
// One unit of one row of a GRU, from its last step to its first; gates are r, z, n. The weights multiply the gradients
// of r, z and m.

struct Operands {
  const Stored *u, *saved, *states, *dstates, *dlast_h;
  const int* lengths;
  Stored *dxw, *dhu, *dh0;
  Summed* sums;
};

struct Cell {
  static constexpr int kSums = 4;
  float dh, kept, d_n;  // the gradient of the step's result; its part that goes past the gates; n's
  // The values of the next step, as stored until they are there: its r, z, n, m, the state it began with.
  Pack<Stored, 1> saved[4], h, dstate;
  // The values of the prepared step: its state's gradient; the factors of dh past the gates, and to n; the gates'
  // slopes.
  float of_h, left, of_n, gate_r, slopes[2];

  PD_DEVICE void start(const Operands& operands, Index at) {
    dh = operands.dlast_h != nullptr ? load_one<true>(operands.dlast_h + at) : 0.0f;
  }
  PD_DEVICE void fetch_end(const Operands&, Index, const CellPlace&) {}
  PD_DEVICE void fetch(const Operands& operands, bool counts, const StepElements& step, const CellPlace& place,
                       int hidden) {
    if (!counts) return;
    const Stored* const from = operands.saved + step.here * 4 + place.in_gates(4);
#pragma unroll
    for (int i = 0; i < 4; ++i) load<true>(saved[i], from + i * hidden);
    load<true>(h, operands.states + step.began + place.at);
    if (operands.dstates != nullptr) load<true>(dstate, operands.dstates + step.here + place.at);
  }
  PD_DEVICE void take_back(float sum) { dh = sum + kept; }
  PD_DEVICE void prepare(const Operands& operands) {
    const float r = saved[0].get(0), z = saved[1].get(0), n = saved[2].get(0);
    of_h = prepared(operands.dstates != nullptr ? dstate.get(0) : 0.0f), left = prepared(z);
    of_n = prepared((1.0f - z) * (1.0f - n * n)), gate_r = prepared(r);
    slopes[0] = prepared(saved[3].get(0) * (r * (1.0f - r))), slopes[1] = prepared((h.get(0) - n) * (z * (1.0f - z)));
  }
  // Computes the gradients of the products' sums.
  PD_DEVICE void retreat(const Operands&, float (&gradients)[3], bool counts) {
    d_n = 0;
    if (!counts) return;
    const float d_h = dh + of_h;
    kept = d_h * left, d_n = d_h * of_n;
    gradients[0] = d_n * slopes[0], gradients[1] = d_h * slopes[1], gradients[2] = d_n * gate_r;
  }
  PD_DEVICE void keep(const Operands& operands, const float (&gradients)[3], Index here, const CellPlace& place,
                      int hidden) const {
    const Index at = here * 3 + place.in_gates(3);
#pragma unroll
    for (int gate = 0; gate < 3; ++gate) {
      if (operands.dhu != nullptr) store_one(operands.dhu + at + gate * hidden, gradients[gate]);
      if (operands.dxw != nullptr) store_one(operands.dxw + at + gate * hidden, gate < 2 ? gradients[gate] : d_n);
    }
  }
  // The k-th gradient to add up over steps and rows: for xw, and for the product of the last gate.
  PD_DEVICE float summed(const float (&gradients)[3], int k) const {
    return k < 2 ? gradients[k] : k == 2 ? d_n : gradients[2];
  }
  PD_DEVICE void end(const Operands& operands, Index at) const {
    if (operands.dh0 != nullptr) store_one(operands.dh0 + at, dh);
  }
};
