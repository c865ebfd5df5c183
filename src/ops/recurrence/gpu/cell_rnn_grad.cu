// SPDX-License-Identifier: Apache-2.0
// Backward cell of a plain recurrence: one thread steps one unit of one row from its last step to its first.

struct Operands {
  const Stored *u, *states, *dstates, *dlast_h;
  const int* lengths;
  Stored *dxw, *dh0;
  Summed* sums;
};

struct Cell {
  static constexpr int kSums = 1;
  float dh;                   // gradient of the step's new state
  Pack<Stored, 1> h, dstate;  // loads in flight for the next step: its new state, and that state's given gradient
  float of_h, slope;          // for the prepared step: that gradient; the activation's slope, for ReLU the state

  PD_DEVICE void start(const Operands& operands, Index at) {
    dh = operands.dlast_h != nullptr ? load_one<true>(operands.dlast_h + at) : 0.0f;
  }
  PD_DEVICE void fetch_end(const Operands&, Index, const CellPlace&) {}
  PD_DEVICE void fetch(const Operands& operands, bool counts, const StepElements& step, const CellPlace& place, int) {
    if (!counts) return;
    load<true>(h, operands.states + step.after + place.at);
    if (operands.dstates != nullptr) load<true>(dstate, operands.dstates + step.here + place.at);
  }
  PD_DEVICE void take_back(float sum) { dh = sum; }
  PD_DEVICE void prepare(const Operands& operands) {
    const float y = h.get(0);
    of_h = prepared(operands.dstates != nullptr ? dstate.get(0) : 0.0f);
    slope = prepared(kIsRelu ? y : 1.0f - y * y);
  }
  // Computes the gradient of the activation's argument.
  PD_DEVICE void retreat(const Operands&, float (&gradients)[1], bool counts) {
    if (counts) gradients[0] = !kIsRelu ? (dh + of_h) * slope : slope > 0.0f ? dh + of_h : 0.0f;
  }
  PD_DEVICE void keep(const Operands& operands, const float (&gradients)[1], Index here, const CellPlace& place,
                      int) const {
    if (operands.dxw != nullptr) store_one(operands.dxw + here + place.at, gradients[0]);
  }
  // The k-th gradient that is summed over steps and rows.
  PD_DEVICE float summed(const float (&gradients)[1], int k) const { return gradients[k]; }
  PD_DEVICE void end(const Operands& operands, Index at) const {
    if (operands.dh0 != nullptr) store_one(operands.dh0 + at, dh);
  }
};
