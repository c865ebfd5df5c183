// SPDX-License-Identifier: Apache-2.0
// The sums of the forward direction's products, by way of shared memory, where warps have left them (sum_of_parts).

// Two rows of a tile, 8 apart, that a lane has lie side by side where warpgroups have units of their own, or rows of 16
// bits have lengths. (Where warps multiply others took up to 15% longer so; TF32 with lengths gained in one build and
// lost in another.)
constexpr bool kMayBePaired = kRows > 4 && !kSimtFma && kMatrixRows % 16 == 0 && !kSharesState;
constexpr bool kArePaired = kUnitsPerWarpgroup || (kHasLengths && sizeof(Stored) == 2 && kMayBePaired);
PD_DEVICE int place_of_sum(int row) { return kArePaired ? row / 16 * 16 + row % 8 * 2 + row / 8 % 2 : row; }

// The sums of this thread's cells. False for threads that have none: they go on to wait for the next state.
PD_DEVICE bool gather_sums(float (&of_cells)[kCells][kLaneGates], const float* sums, int thread,
                           const CellPlace (&place)[kCells]) {
  InputAhead::are_there();
  if (kFinishers < kThreads && thread >= kFinishers) {
    if constexpr (kStates > 1) barrier_pass(1, kThreads);
    else barrier_wait(1, kThreads);  // nobody reads the state any more
    return false;
  }
  if constexpr (kUnitsPerWarpgroup) barrier_wait(1 + thread / kTogether, kTogether);
  else barrier_wait(1, kThreads);
#pragma unroll
  for (int i = 0; i < kCells * kLaneGates; ++i) {
    const CellPlace& at = place[i / kLaneGates];
    const int row = at.row < kRows ? at.row : 0, gate = CellPlace::gate_of(i % kLaneGates);
    const float* const first = sums + row * kSumStride + place_of_sum((gate < kGates ? gate : 0) * kUnits + at.of_cta);
    of_cells[i / kLaneGates][i % kLaneGates] = sum_of_parts(first);
  }
  return true;
}
