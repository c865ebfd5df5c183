// SPDX-License-Identifier: Apache-2.0
// starts[r]: where row r begins in the sorted list, for r = 0 .. range. Each is found by bisection, all at once.
template <class Id>
PD_DEVICE void find_rows(const Id* sorted, const long long* places, Index* starts, unsigned long long* fault, const Sizes& size) {
  const long long first = (long long)blockIdx.x * kThreads + threadIdx.x, all = (long long)size.ctas * kThreads;
  for (long long k = first; k < size.count; k += all) {
    if (!is_legal(sorted[k], size.range_wide)) note_fault(fault, places[k], sorted[k]);
  }
  for (long long row = first; row <= size.range_wide; row += all) {
    Index low = 0, high = size.count;
    while (low < high) {
      const Index middle = low + (high - low) / 2;
      if ((long long)__ldg(sorted + middle) < row) low = middle + 1;
      else high = middle;
    }
    starts[row] = low;
  }
}
