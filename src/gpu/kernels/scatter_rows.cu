// SPDX-License-Identifier: Apache-2.0
template <class Id, class T, int kVector>
PD_DEVICE void scatter_rows(const Id* ids, const T* updates, T* out, unsigned long long* fault, const Sizes& size) {
  constexpr int kWarps = kThreads / 32, kRowsOfWarp = 4, kSegment = 512, kLoads = 8;
  __shared__ unsigned entries[kWarps][kSegment];  // row << 16 | position in the segment
  __shared__ int counts[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Index rest = blockIdx.x;
  const Index column = (next_coordinate(rest, size.tiles) * 32 + lane) * kVector;
  const long long first_row = (long long)next_coordinate(rest, size.blocks) * (kWarps * kRowsOfWarp);
  const T* const from = updates + (rest * size.from_outer + column);
  const bool column_ok = column < size.inner;
  Compute<T> sum[kRowsOfWarp][kVector];
  clear<Sum>(sum);
  for (Index chunk = 0; chunk < size.count; chunk += kWarps * kSegment) {
    int count = 0;
    for (int k = 0; k < kSegment; k += 32) {
      const Index n = chunk + warp * kSegment + k + lane;
      const long long id = n < size.count ? (long long)__ldg(ids + n) : 0, row = n < size.count ? id - first_row : -1;
      if (blockIdx.x == 0 && n < size.count && !is_legal(id, size.range_wide)) note_fault(fault, n, id);
      const bool is_mine = row >= 0 && row < kWarps * kRowsOfWarp && row + first_row < size.range_wide && id != size.padding_wide;
      const unsigned found = __ballot_sync(0xffffffffu, is_mine);
      if (is_mine) entries[warp][count + __popc(found & ((1u << lane) - 1))] = (unsigned)row << 16 | (unsigned)(k + lane);
      count += __popc(found);
    }
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    for (int segment = 0; segment < kWarps; ++segment) {
      const T* const segment_from = from + (chunk + segment * kSegment) * size.from_middle;
      for (int base = 0; base < counts[segment]; base += 32) {
        const unsigned entry = base + lane < counts[segment] ? entries[segment][base + lane] : 0xffffffffu;
#pragma unroll
        for (int r = 0; r < kRowsOfWarp; ++r) {
          unsigned mine = __ballot_sync(0xffffffffu, (int)(entry >> 16) == warp * kRowsOfWarp + r);
          while (mine != 0) {
            Pack<T, kVector> update[kLoads];
            bool is_taken[kLoads];
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
              is_taken[i] = mine != 0 && column_ok;
              if (mine == 0) continue;
              const Index n = entries[segment][base + __ffs((int)mine) - 1] & 0xffffu;
              mine &= mine - 1;
              if (column_ok) load<true>(update[i], segment_from + n * size.from_middle);
            }
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
              if (!is_taken[i]) continue;
#pragma unroll
              for (int v = 0; v < kVector; ++v) sum[r][v] += update[i].get(v);
            }
          }
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const long long row = first_row + warp * kRowsOfWarp + r;
    if (row >= size.range_wide || !column_ok) continue;
    Pack<T, kVector> made;
#pragma unroll
    for (int v = 0; v < kVector; ++v) made.put(v, sum[r][v]);
    store(out + (rest * size.to_outer + (Index)row * size.to_middle + column), made);
  }
}
