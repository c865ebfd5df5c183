// SPDX-License-Identifier: Apache-2.0
// Adds up gradients of the backward steps over steps and rows: the gradient of a bias that is added to every step's
// input. A thread adds up those of its cells; at the end cells of the same unit are added up, then CTA groups, in the
// order of both.

constexpr int kSumUnits = kThreads % kUnits == 0 ? 1 : kCells;  // that a thread has cells of

struct CellSums {
  float sums[kSumUnits][Cell::kSums] = {};

  PD_DEVICE void add(int i, const Cell& cell, const float (&gradients)[kGates]) {
    if constexpr (!kSumsUp) return;
#pragma unroll
    for (int k = 0; k < Cell::kSums; ++k) sums[i % kSumUnits][k] += cell.summed(gradients, k);
  }
  // For all threads; `work`: shared memory that nobody uses any more, kSumUnits * Cell::kSums words of every thread.
  PD_DEVICE void end(Summed* to, float* work, const LaunchScratch& scratch, int cta_group, int rank, int hidden) const {
    if constexpr (!kSumsUp) return;
    __syncthreads();
#pragma unroll
    for (int i = 0; i < kSumUnits * Cell::kSums; ++i) {
      work[i % Cell::kSums * (kSumUnits * kThreads) + i / Cell::kSums * kThreads + threadIdx.x] = (&sums[0][0])[i];
    }
    __syncthreads();
    constexpr int kCount = kUnits * Cell::kSums;
    float* const parts = (float*)scratch.workspace + rank * (kCtaGroups * kCount);  // [kCtaGroups][kCount] of every rank
    for (int i = threadIdx.x; i < kCount; i += kThreads) {
      const float* const of_cells = work + i / kUnits * (kSumUnits * kThreads);
      float total = 0;
      for (int cell = i % kUnits; cell < kSumUnits * kThreads; cell += kUnits) total += of_cells[cell];
      if constexpr (kCtaGroups == 1) put(to, i, total, rank, hidden);
      else parts[cta_group * kCount + i] = total;
    }
    if constexpr (kCtaGroups == 1) return;
    __syncthreads();
    unsigned* const arrived = scratch.tickets + kArrivedAt + rank;
    const bool is_last = threadIdx.x == 0 && add_release(arrived, 1) == kCtaGroups - 1;
    if (is_last) fence_stores();  // it sees the others' stores
    if (__syncthreads_or(is_last) == 0) return;
    if (threadIdx.x == 0) *arrived = 0;
    for (int i = threadIdx.x; i < kCount; i += kThreads) {
      put(to, i, fold_parts<Sum>(parts + i, kCtaGroups, kCount), rank, hidden);
    }
  }

 private:
  static PD_DEVICE void put(Summed* to, int i, float total, int rank, int hidden) {
    const int unit = rank * kUnits + i % kUnits;
    if (unit < hidden) store_one(to + i / kUnits * hidden + unit, total);
  }
};
