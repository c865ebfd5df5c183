// SPDX-License-Identifier: Apache-2.0
// The first of sorted[begin .. end) that is not below `row`, found by a whole warp, which looks at 32 at a time.
template <class Id> PD_DEVICE Index first_not_below(const Id* sorted, Index begin, Index end, long long row) {
  const int lane = threadIdx.x % 32;
  while (begin < end) {
    const Index step = (end - begin + 31) / 32, at = begin + lane * step;
    const bool is_below = at < end && (long long)__ldg(sorted + at) < row;
    const int below = __popc(__ballot_sync(0xffffffffu, is_below));
    if (below == 0) return begin;
    end = pd_min(end, begin + below * step);
    begin += (below - 1) * step + 1;
  }
  return begin;
}

// sum += the updates at places[begin .. end), in their order.
template <class T, int kVector>
PD_DEVICE void add_up(Compute<T> (&sum)[kVector], const long long* places, Index begin, Index end, const T* from,
                      Index from_middle) {
  constexpr int kLoads = 8;
  for (Index k = begin; k < end; k += kLoads) {
    Pack<T, kVector> update[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (k + i < end) load<true>(update[i], from + (Index)__ldg(places + k + i) * from_middle);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (k + i >= end) continue;
#pragma unroll
      for (int v = 0; v < kVector; ++v) sum[v] += update[i].get(v);
    }
  }
}

// A CTA owns 32 rows of the result, a warp 4 of them; each finds its updates side by side in the sorted list. The updates
// of a row with many are shared out among the warps, whose sums are added in order.
template <class Id, class T, int kVector>
PD_DEVICE void scatter_sorted(const Id* sorted, const long long* places, const T* updates, T* out,
                              unsigned long long* fault, const Sizes& size) {
  constexpr int kWarps = kThreads / 32, kRowsOfWarp = 4, kRows = kWarps * kRowsOfWarp;
  constexpr Index kMany = 256;
  __shared__ Index range[2], starts[kRows + 1];
  __shared__ Compute<T> parts[kWarps][32 * kVector];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  for (long long k = (long long)blockIdx.x * kThreads + threadIdx.x; k < size.count; k += (long long)size.ctas * kThreads) {
    if (!is_legal(sorted[k], size.range_wide)) note_fault(fault, places[k], sorted[k]);
  }
  Index rest = blockIdx.x;
  const Index column = (next_coordinate(rest, size.tiles) * 32 + lane) * kVector;
  const long long first_row = (long long)next_coordinate(rest, size.blocks) * kRows;
  const T* const from = updates + (rest * size.from_outer + column);
  T* const to = out + (rest * size.to_outer + column);
  const bool column_ok = column < size.inner;
  if (warp < 2) {
    const Index found = first_not_below(sorted, (Index)0, size.count, first_row + warp * kRows);
    if (lane == 0) range[warp] = found;
  }
  __syncthreads();
  if (threadIdx.x <= kRows) {
    Index low = range[0], high = range[1];
    while (low < high) {
      const Index middle = low + (high - low) / 2;
      if ((long long)__ldg(sorted + middle) < first_row + threadIdx.x) low = middle + 1;
      else high = middle;
    }
    starts[threadIdx.x] = low;
  }
  __syncthreads();
  const auto write = [&](int r, const Compute<T>(&sum)[kVector]) {
    if (first_row + r >= size.range_wide || !column_ok) return;
    Pack<T, kVector> made;
#pragma unroll
    for (int v = 0; v < kVector; ++v) made.put(v, sum[v]);
    store(to + (Index)(first_row + r) * size.to_middle, made);
  };
  for (int r = 0; r < kRows; ++r) {
    const Index begin = starts[r], end = first_row + r == size.padding_wide ? begin : starts[r + 1];
    const bool is_mine = warp == r / kRowsOfWarp;
    Compute<T> sum[kVector];
    clear<Sum>(sum);
    if (end - begin <= kMany) {
      if (!is_mine) continue;
      if (column_ok) add_up<T, kVector>(sum, places, begin, end, from, size.from_middle);
      write(r, sum);
      continue;
    }
    const Index part = (end - begin + kWarps - 1) / kWarps, mine = begin + warp * part;
    if (column_ok) add_up<T, kVector>(sum, places, mine, pd_min(end, mine + part), from, size.from_middle);
#pragma unroll
    for (int v = 0; v < kVector; ++v) parts[warp][lane * kVector + v] = sum[v];
    __syncthreads();
    if (is_mine) {
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        sum[v] = parts[0][lane * kVector + v];
        for (int w = 1; w < kWarps; ++w) sum[v] += parts[w][lane * kVector + v];
      }
      write(r, sum);
    }
    __syncthreads();
  }
}
