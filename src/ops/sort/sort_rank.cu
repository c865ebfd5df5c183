// SPDX-License-Identifier: Apache-2.0
// Every element of a row finds its place by counting those before it: the square of their number in comparisons, but
// all at once. A CTA places kOwn elements; its threads have kEach of them and every kSplits-th of the others.
template <class T> PD_DEVICE void sort_by_rank(const T* a, T* values, long long* places, const Sizes& size) {
  using Key = decltype(key_of(Compute<T>()));
  constexpr int kOwn = 16, kEach = 4, kOwners = kOwn / kEach, kSplits = kThreads / kOwners, kChunk = 2048;
  __shared__ Key keys[kChunk];
  __shared__ unsigned ranks[kOwn];
  Index row = blockIdx.x;
  const Index first = next_coordinate(row, size.blocks) * kOwn;
  const Row<T> mine(a, values, places, row, size);
  const auto key_at = [&](Index at) {
    const auto key = key_of(load_one<true>(mine.from + at * size.from_middle));
    return kDescending ? ~key : key;
  };
  const int owner = threadIdx.x % kOwners, split = threadIdx.x / kOwners;
  Key own[kEach];
  unsigned rank[kEach];
#pragma unroll
  for (int e = 0; e < kEach; ++e) {
    const Index at = first + owner * kEach + e;
    own[e] = key_at(at < size.count ? at : 0);
    rank[e] = 0;
  }
  if (threadIdx.x < kOwn) ranks[threadIdx.x] = 0;
  // Of equal elements the earlier comes first.
  const auto count_chunk = [&](int count, auto is_before) {
#pragma unroll 4
    for (int k = split; k < count; k += kSplits) {
      const Key other = keys[k];
#pragma unroll
      for (int e = 0; e < kEach; ++e) rank[e] += is_before(other, k, e) ? 1u : 0u;
    }
  };
  for (Index chunk = 0; chunk < size.count; chunk += kChunk) {
    const int count = (int)least_of(size.count - chunk, (Index)kChunk);
    __syncthreads();
    for (int k = threadIdx.x; k < count; k += kThreads) keys[k] = key_at(chunk + k);
    __syncthreads();
    if (chunk + count <= first) count_chunk(count, [&](Key other, int, int e) { return other <= own[e]; });
    else if (chunk >= first + kOwn) count_chunk(count, [&](Key other, int, int e) { return other < own[e]; });
    else {
      const int here = (int)(first - chunk) + owner * kEach;
      count_chunk(count, [&](Key other, int k, int e) { return other < own[e] || (other == own[e] && k < here + e); });
    }
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) atomicAdd(&ranks[owner * kEach + e], rank[e]);
  __syncthreads();
  const Index at = first + threadIdx.x;
  if (threadIdx.x >= kOwn || at >= size.count) return;
  if (ranks[threadIdx.x] < size.kept) mine.write((Index)ranks[threadIdx.x], at, size);
}
