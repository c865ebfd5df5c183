// SPDX-License-Identifier: Apache-2.0
// Sorts tile `tile` of a row. A row of one tile is done then; else its entries are a run, for merging.
template <class T, int kTile, bool kIsAll>
PD_DEVICE void sort_tile(const T* a, T* values, long long* places, Entry<T>* runs, const Sizes& size) {
  __shared__ Entry<T> entries[kTile];
  Index row = blockIdx.x;
  const Index tile = next_coordinate(row, size.tiles), first = tile * kTile;
  const Row<T> mine(a, values, places, row, size);
  for (int i = threadIdx.x; i < kTile; i += kThreads) {
    Entry<T> entry = Entry<T>::last();
    if (first + i < size.count) {
      const auto key = key_of(load_one<true>(mine.from + (first + i) * size.from_middle));
      entry = Entry<T>::of(kDescending ? ~key : key, first + i);
    }
    entries[i] = entry;
  }
  for (int length = 2; length <= kTile; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int t = threadIdx.x; t < kTile / 2; t += kThreads) {
        const int low = 2 * t - (t & (step - 1)), high = low + step;
        const bool is_rising = (low & length) == 0;
        const Entry<T> x = entries[low], y = entries[high];
        if (y.is_before(x) == is_rising) entries[low] = y, entries[high] = x;
      }
    }
  }
  __syncthreads();
  const Index kept = least_of(size.count - first, size.kept);
  for (int i = threadIdx.x; i < kept; i += kThreads) {
    if constexpr (kIsAll) mine.write(i, entries[i].place(), size);
    else runs[row * size.count + tile * size.kept + i] = entries[i];
  }
}

