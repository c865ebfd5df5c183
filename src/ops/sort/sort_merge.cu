// SPDX-License-Identifier: Apache-2.0
// One thread per entry of runs that were made of `width` elements each and have up to `kept` entries.
template <class T, bool kIsLast>
PD_DEVICE void merge_runs(const T* a, T* values, long long* places, const Entry<T>* from, Entry<T>* to,
                          const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  const Index i = next_coordinate(rest, size.kept), run = next_coordinate(rest, size.runs), row = rest;
  const Index capacity = (Index)size.kept.count, other = run ^ 1;
  if (i >= least_of(size.count - run * size.width, capacity)) return;
  const Entry<T>* const entries = from + row * size.count;
  const Entry<T> mine = entries[run * capacity + i];
  const Entry<T>* const theirs = entries + other * capacity;
  const Index elements = size.count - other * size.width;
  Index low = 0, high = elements <= 0 ? 0 : least_of(elements, capacity);
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    if (theirs[middle].is_before(mine)) low = middle + 1;
    else high = middle;
  }
  const Index at = i + low;
  if (at >= size.kept_after) return;
  if constexpr (kIsLast) Row<T>(a, values, places, row, size).write(at, mine.place(), size);
  else to[row * size.count + (run >> 1) * size.kept_after + at] = mine;
}
