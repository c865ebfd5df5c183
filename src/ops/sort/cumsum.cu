// SPDX-License-Identifier: Apache-2.0
template <class T> struct TotalOf { using Type = double; };
template <> struct TotalOf<long long> { using Type = long long; };
template <> struct TotalOf<int> { using Type = long long; };
template <> struct TotalOf<unsigned char> { using Type = long long; };
template <class T> using Total = typename TotalOf<T>::Type;

// Where the element at position p of the order of summation lies.
PD_DEVICE Index place(Index p, const Sizes& size) { return kReverse ? size.count - 1 - p : p; }

template <class T> PD_DEVICE Total<T> sum_before(const Total<T>* totals, Index part, Index step) {
  Total<T> sum = 0;
  for (Index k = 0; k < part; ++k) sum += totals[k * step];
  return sum;
}

// ---- one thread per column of a part ----

template <class T, bool kTotals>
PD_DEVICE void scan_columns(const T* a, T* out, Total<T>* totals, const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  const Index part = divide(rest, size.columns), column = rest - part * (Index)size.columns.count;
  Index outer = column;
  const Index i = next_coordinate(outer, size.inner);
  const Index begin = part * size.part, end = begin + size.part < size.count ? begin + size.part : size.count;
  const T* const from = a + (outer * size.from_outer + i);
  T* const to = out + (outer * size.to_outer + i);
  Total<T> sum = kTotals ? 0 : sum_before<T>(totals + column, part, (Index)size.columns.count);
  for (Index p = begin; p < end; ++p) {
    const Total<T> value = (Total<T>)load_one<true>(from + place(p, size) * size.from_middle);
    if constexpr (!kTotals && kExclusive) store_one(to + place(p, size) * size.to_middle, sum);
    sum += value;
    if constexpr (!kTotals && !kExclusive) store_one(to + place(p, size) * size.to_middle, sum);
  }
  if constexpr (kTotals) totals[rest] = sum;
}

// ---- contiguous rows: a CTA per part ----

// The sum over the threads before, and of all; Kogge and Stone within warps ("A parallel algorithm for the efficient
// solution of a general class of recurrence equations", 1973). Nothing is subtracted, so that an infinity or a NaN
// reaches only the sums after it.
template <class S> PD_DEVICE S scan_threads(S value, S* all) {
  __shared__ S of_warp[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  S sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const S other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  S before = __shfl_up_sync(0xffffffffu, sum, 1);
  if (lane == 0) before = 0;
  __syncthreads();
  S warps = 0, total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) warps = total;
    total += of_warp[w];
  }
  __syncthreads();
  *all = total;
  return warps + before;
}

template <class T, bool kTotals>
PD_DEVICE void scan_rows(const T* a, T* out, Total<T>* totals, const Sizes& size) {
  Index row = blockIdx.x;
  const Index part = next_coordinate(row, size.parts);
  const Index begin = part * size.part, end = begin + size.part < size.count ? begin + size.part : size.count;
  const T* const from = a + row * size.from_outer;
  T* const to = out + row * size.to_outer;
  Total<T> carry = kTotals ? 0 : sum_before<T>(totals + row * (Index)size.parts.count, part, 1);
  for (Index tile = begin; tile < end; tile += kThreads * kItems) {
    Total<T> item[kItems], sum = 0, all;
    const Index first = tile + (Index)threadIdx.x * kItems;
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const Total<T> value =
          first + u < end ? (Total<T>)load_one<true>(from + place(first + u, size) * size.from_middle) : 0;
      if constexpr (kExclusive) item[u] = sum;
      sum += value;
      if constexpr (!kExclusive) item[u] = sum;
    }
    const Total<T> before = scan_threads(sum, &all);
#pragma unroll
    for (int u = 0; u < kItems && !kTotals; ++u) {
      if (first + u < end) store_one(to + place(first + u, size) * size.to_middle, carry + (before + item[u]));
    }
    carry += all;
  }
  if constexpr (kTotals) {
    if (threadIdx.x == 0) totals[row * (Index)size.parts.count + part] = carry;
  }
}
