// SPDX-License-Identifier: Apache-2.0
// The gradient's products by tensor cores. The CTA multiplies the gradients of its cells' gates by its own units'
// weights, now transposed, which gives a part of the gradient of every unit of the CTA group; and each CTA gets its
// parts of all (PartExchange), which it adds up in the order of the CTAs.

constexpr int kFactorBytes = kDepthPieces * kRows * 16;

struct BackwardProducts {
  const Shared& shared;
  unsigned char* factors;  // gradients of the gates: kDepthPieces pieces by kRows rows
  PartExchange exchange;
  WarpWeights weights;
  int rank;

  PD_DEVICE BackwardProducts(const Shared& shared, const LaunchScratch& scratch, unsigned cta)
      : shared(shared), factors(shared.work), exchange(shared, shared.work + kFactorBytes, scratch, cta), rank(exchange.rank) {
    weights.begin(shared, scratch, cta);
  }
  // This warp's weights: its rows are units that the gradient goes back to, its columns this CTA's gates.
  PD_DEVICE void bring(const Stored* u, int hidden) {
    constexpr int kOwnSteps = kSteps / kSumPeers;  // of a partial-sum peer's gates
    const int lane = threadIdx.x % 32, warp = threadIdx.x / 32, first_row = rank % kSumPeers * (kHidden / kSumPeers);
#pragma unroll
    for (int begin = 0; begin < kTiles; begin += kStaged) {
#pragma unroll
      for (int sum_peer = 0; sum_peer < kSumPeers; ++sum_peer) {
        if (begin > 0 || sum_peer > 0) __syncthreads();
        const int from = rank - rank % kSumPeers + sum_peer;
        stage_weights<kWarps, kTiles * 16, kStaged * 16>(shared.work, u, from, first_row + begin * 16, hidden);
        __syncthreads();
#pragma unroll
        for (int i = 0; i < kStaged * kOwnSteps; ++i) {
          const int tile = begin + i / kOwnSteps, step = i % kOwnSteps;
          if (tile >= kTiles) continue;
          const int row = (warp * kStaged + i / kOwnSteps) * 16 + lane / 8 % 2 * 8 + lane % 8;
          unsigned fragment[4];
          load_squares(fragment, shared.work + row * kStageStride + step * 32 + lane / 16 * 16);
          weights.put(tile * kSteps + sum_peer * kOwnSteps + step, fragment);
        }
      }
    }
    weights.are_there();
    __syncthreads();
    weights.start();
    for (int i = threadIdx.x; i < kFactorBytes / 16; i += kThreads) ((uint4*)factors)[i] = make_uint4(0, 0, 0, 0);
  }
  PD_DEVICE void begin(const Shared&, const CellPlace (&)[kCells]) { exchange.begin(); }
  PD_DEVICE void aim(bool is_last) { weights.aim(is_last); }
  PD_DEVICE bool has_cells() const { return true; }  // or multiplies the others' gradients
  // For all threads: multiplies the gradients that this thread's cells make, and asks for the next step `beside` that.
  template <class Beside>
  PD_DEVICE void give(const float (&gradients)[kCells][kGates], int step, const CellPlace (&place)[kCells], PhaseClock& clock,
                      const Beside& beside) {
    const int first = rank % kSumPeers * (kGates * kUnits);  // among the gates of all partial-sum peers
#pragma unroll
    for (int i = 0; i < kCells; ++i) {
      // Partial-sum peers get zeros for rows that are not there.
      const bool is_there = place[i].at >= 0;
      if (!is_there && (kSumPeers == 1 || place[i].row >= kRows)) continue;
#pragma unroll
      for (int gate = 0; gate < kGates; ++gate) {
        const float gradient = is_there ? gradients[i][gate] : 0.0f;
        exchange.give_guard(gate, place[i], gradient, step);
        if (is_there) store_factor(factors, first + gate * kUnits + place[i].of_cta, place[i].row, gradient);
      }
    }
    exchange.take_gates(factors, step);
    factors_stored();
    weights.ask();  // not before its cells are finished, which need the registers
    __syncthreads();
    clock.ended(kInGates);
    Products<kOutputSlices> products;
    products.begin(weights, factors);
    beside();
    float sum[kTiles][kColumnTiles][4];
    give_output_slices<0>(products, sum, step, clock);
    clock.ended(kGiving);
  }
  // The gradients that came back from a step to this thread's cells. False for threads that have none.
  PD_DEVICE bool take(float (&sum)[kCells], int step, const CellPlace (&place)[kCells], PhaseClock&) {
    if (threadIdx.x >= kFinishers && !PartExchange::kIsTogether) return false;
    exchange.wait(step);
    if (threadIdx.x >= kFinishers) return false;
    exchange.take(sum, step, place);
    return true;
  }
  PD_DEVICE void end(int steps) {
    weights.end();
    exchange.end(steps);
  }

 private:
  // The sums of one output slice are on their way while the next one's products go on.
  template <int kOutputSlice>
  PD_DEVICE void give_output_slices(Products<kOutputSlices>& products, float (&sum)[kTiles][kColumnTiles][4], int step,
                               PhaseClock& clock) {
    products.template end<kOutputSlice>(sum);
    clock.ended(kMultiplying);
    exchange.template give<kOutputSlice>(sum, step);
    if constexpr (kOutputSlice + 1 < kOutputSlices) give_output_slices<kOutputSlice + 1>(products, sum, step, clock);
  }
};
