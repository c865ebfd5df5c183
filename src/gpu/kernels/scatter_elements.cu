// SPDX-License-Identifier: Apache-2.0
// Few indices per place: every element of the result looks through them.
template <class Id, class T>
PD_DEVICE void scatter_scan(const Id* ids, const T* updates, T* out, unsigned long long* fault, const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  const Index i = next_coordinate(rest, size.inner_extent), row = next_coordinate(rest, size.range);
  Compute<T> sum = 0;
  for (Index n = 0; n < size.count; ++n) {
    const Index place = (rest * size.count + n) * size.inner + i;
    const Id id = __ldg(ids + place);
    if (row == 0 && !is_legal(id, size.range_wide)) note_fault(fault, place, id);
    if ((long long)id != row) continue;
    sum += load_one<true>(updates + (rest * size.from_outer + n * size.from_middle + i));
  }
  store_one(out + (rest * size.to_outer + row * size.to_middle + i), sum);
}

template <class T, class Value> PD_DEVICE void add_to(T* to, Value value) {
  store_one(to, (Value)load_one<false>(to) + value);
}

// Many: a CTA clears 32 columns, one thread per column adds its updates to them, and half floats, which are added in
// f32, are rounded at the end.
template <class Id, class T, class Total>
PD_DEVICE void scatter_columns(const Id* ids, const T* updates, T* out, void* workspace, unsigned long long* fault,
                               const Sizes& size) {
  const int lane = threadIdx.x % 32, walker = threadIdx.x / 32;
  Index rest = blockIdx.x;
  const Index i = next_coordinate(rest, size.tiles) * 32 + lane;
  T* const to = out + (rest * size.to_outer + i);
  Total* const totals = kSame<T, Total> ? (Total*)to : (Total*)workspace + (rest * size.range_extent * size.inner + i);
  const Index pitch = kSame<T, Total> ? size.to_middle : size.inner;
  const bool ok = i < size.inner;
  for (Index row = walker; ok && row < size.range_extent; row += kThreads / 32) {
    store_one(totals + row * pitch, Compute<Total>(0));
  }
  __syncthreads();
  if (ok && walker == 0) {
    for (Index n = 0; n < size.count; n += kInFlight) {
      long long row[kInFlight];
      Compute<T> update[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const Index place = (rest * size.count + n + u) * size.inner + i;
        row[u] = n + u < size.count ? (long long)__ldg(ids + place) : -1;
        if (n + u < size.count && !is_legal(row[u], size.range_wide)) note_fault(fault, place, row[u]);
        if (n + u < size.count) update[u] = load_one<true>(updates + (rest * size.from_outer + (n + u) * size.from_middle + i));
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (is_legal(row[u], size.range_wide)) add_to(totals + (Index)row[u] * pitch, update[u]);
      }
    }
  }
  if constexpr (!kSame<T, Total>) {
    __syncthreads();
    for (Index row = walker; ok && row < size.range_extent; row += kThreads / 32) {
      store_one(to + row * size.to_middle, load_one<false>(totals + row * pitch));
    }
  }
}
