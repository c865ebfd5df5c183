// SPDX-License-Identifier: Apache-2.0
// Every element of a row finds its place by counting those before it: the square of their number in comparisons, but
// all at once. A CTA places kOwn elements; its threads have kEach of them and every kSplits-th of the others.
PD_DEVICE unsigned high_of(unsigned) { return 0; }
PD_DEVICE unsigned high_of(unsigned long long key) { return (unsigned)(key >> 32); }

template <class T> PD_DEVICE void sort_by_rank(const T* a, T* values, long long* places, const Sizes& size) {
  using Key = decltype(key_of(Compute<T>()));
  constexpr int kOwn = 16, kEach = 4, kOwners = kOwn / kEach, kSplits = kThreads / kOwners, kChunk = 2048;
  __shared__ Key keys[kChunk];
  __shared__ unsigned lows[kChunk];  // of wide keys: all that differs where elements are small whole numbers
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
  const unsigned high = high_of(key_at(0));
  // The earlier one of equal elements comes first.
  const auto count_chunk = [&](const auto* others, int count, auto is_before) {
#pragma unroll 4
    for (int k = split; k < count; k += kSplits) {
      const auto other = others[k];
#pragma unroll
      for (int e = 0; e < kEach; ++e) rank[e] += is_before(other, k, e) ? 1u : 0u;
    }
  };
  // A chunk is on its way while the one before it is counted.
  constexpr int kBrought = kChunk / kThreads;
  Key brought[kBrought];
  const auto bring = [&](Index chunk) {
#pragma unroll
    for (int e = 0; e < kBrought; ++e) {
      const Index at = chunk + threadIdx.x + e * kThreads;
      if (at < size.count) brought[e] = key_at(at);
    }
  };
  bring(0);
  for (Index chunk = 0; chunk < size.count; chunk += kChunk) {
    const int count = (int)least_of(size.count - chunk, (Index)kChunk);
    __syncthreads();
    bool is_low = sizeof(Key) == 8;
#pragma unroll
    for (int e = 0; e < kBrought; ++e) {
      const int k = threadIdx.x + e * kThreads;
      if (k >= count) continue;
      keys[k] = brought[e], lows[k] = (unsigned)brought[e];
      is_low = is_low && high_of(brought[e]) == high;
    }
    bring(chunk + kChunk);
#pragma unroll
    for (int e = 0; e < kEach; ++e) is_low = is_low && high_of(own[e]) == high;
    const int here = (int)(first - chunk) + owner * kEach;
    const auto count_in = [&](const auto* others, const auto& mine) {
      using Other = decltype(others[0] + 0);
      if (chunk + count <= first) count_chunk(others, count, [&](Other other, int, int e) { return other <= (Other)mine[e]; });
      else if (chunk >= first + kOwn) count_chunk(others, count, [&](Other other, int, int e) { return other < (Other)mine[e]; });
      else {
        count_chunk(others, count, [&](Other other, int k, int e) {
          return other < (Other)mine[e] || (other == (Other)mine[e] && k < here + e);
        });
      }
    };
    if (__syncthreads_or(!is_low) == 0) count_in(lows, own);
    else count_in(keys, own);
  }
#pragma unroll
  for (int e = 0; e < kEach; ++e) atomicAdd(&ranks[owner * kEach + e], rank[e]);
  __syncthreads();
  const Index at = first + threadIdx.x;
  if (threadIdx.x >= kOwn || at >= size.count) return;
  if (ranks[threadIdx.x] < size.kept) mine.write((Index)ranks[threadIdx.x], at, size);
}
