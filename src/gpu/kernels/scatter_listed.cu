// SPDX-License-Identifier: Apache-2.0
// A CTA has every size.classes-th row of the result, and of those as many columns as a warp moves at once. All are zeros
// first. Meanwhile the CTA lists the indices of its rows in shared memory, in order, and sorts them by row; each of its
// warps then adds up an equal share of the list, whatever rows that is of. A row that goes on from one share to the next
// is added up by the warp that has its first update, in the order of the shares.
template <class Id, class T, int kVector>
PD_DEVICE void scatter_listed(const Id* ids, const T* updates, T* out, unsigned long long* fault, const Sizes& size) {
  constexpr int kWarps = kThreads / 32, kScan = 8, kLoads = kVector <= 4 ? 8 : 4;
  static_assert(kWarps == 32, "a lane for each warp's count");
  PD_DYNAMIC_SHARED(unsigned, counts);
  unsigned* const list = counts + kWarps;  // row of the CTA's << 16 | place
  Compute<T>* const heads = (Compute<T>*)(list + size.capacity);  // of shares that begin within a row
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Index rest = blockIdx.x;
  const Index column = (next_coordinate(rest, size.tiles) * 32 + lane) * kVector;
  const int own_class = (int)next_coordinate(rest, size.classes), classes = (int)size.classes.count;
  const T* const from = updates + (rest * size.from_outer + column);
  T* const to = out + (rest * size.to_outer + column + own_class * size.to_middle);
  const Index to_next = classes * size.to_middle;
  const bool column_ok = column < size.inner;

  int listed = 0;
  for (Index chunk = 0; chunk < size.count || chunk == 0; chunk += kThreads * kScan) {
    Id id[kScan];
#pragma unroll
    for (int k = 0; k < kScan; ++k) {
      const Index n = chunk + (warp * kScan + k) * 32 + lane;
      id[k] = n < size.count ? __ldg(ids + n) : Id(-1);
    }
    if (chunk == 0 && column_ok) {
      Pack<T, kVector> none;
#pragma unroll
      for (int v = 0; v < kVector; ++v) none.put(v, Compute<T>(0));
#pragma unroll 4
      for (Index row = warp; row * classes + own_class < size.range_wide; row += kWarps) store(to + row * to_next, none);
    }
    unsigned entry[kScan], found[kScan];
    int count = 0;
#pragma unroll
    for (int k = 0; k < kScan; ++k) {
      const Index n = chunk + (warp * kScan + k) * 32 + lane;
      const bool is_there = is_legal(id[k], size.range_wide);
      if (blockIdx.x == 0 && n < size.count && !is_there) note_fault(fault, n, id[k]);
      int row = is_there ? (int)id[k] : 0;
      const bool is_own = next_coordinate(row, size.classes) == own_class && is_there && id[k] != size.padding_wide;
      entry[k] = (unsigned)row << 16 | (unsigned)n;
      found[k] = __ballot_sync(0xffffffffu, is_own);
      count += __popc(found[k]);
    }
    if (lane == 0) counts[warp] = (unsigned)count;
    __syncthreads();
    const int of_lane = (int)counts[lane];
    int at = listed + combine_lanes<Sum, 32>(lane < warp ? of_lane : 0);
    listed += combine_lanes<Sum, 32>(of_lane);
#pragma unroll
    for (int k = 0; k < kScan; ++k) {
      if (found[k] >> lane & 1u) list[at + __popc(found[k] & ((1u << lane) - 1))] = entry[k];
      at += __popc(found[k]);
    }
    __syncthreads();
  }

  // A bitonic network. Where both of a pair are 32 apart at most, they and their neighbours are the same warp's.
  int length_all = 2;
  while (length_all < listed) length_all *= 2;
#pragma unroll 1
  for (int i = listed + threadIdx.x; i < length_all; i += kThreads) list[i] = 0xffffffffu;
  __syncthreads();
  for (int length = 2; length <= length_all; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      for (int t = threadIdx.x; t < length_all / 2; t += kThreads) {
        const int low = 2 * t - (t & (step - 1)), high = low + step;
        const unsigned a = list[low], b = list[high];
        if ((b < a) == ((low & length) == 0)) list[low] = b, list[high] = a;
      }
      if (step > 32 || (step == 1 && length >= 64)) __syncthreads();
      else __syncwarp();
    }
  }
  __syncthreads();

  const int share = (listed + kWarps - 1) / kWarps, begin = warp * share, end = pd_min(begin + share, listed);
  const auto row_at = [&](int i) { return i >= 0 && i < listed ? (int)(list[i] >> 16) : -1; };
  const auto write = [&](int row, const Compute<T> (&sum)[kVector]) {
    Pack<T, kVector> made;
#pragma unroll
    for (int v = 0; v < kVector; ++v) made.put(v, sum[v]);
    if (column_ok) store(to + row * to_next, made);
  };
  const int row_before = row_at(begin - 1), row_behind = begin < end ? row_at(end) : -1;
  Compute<T> sum[kVector];
  clear<Sum>(sum);
  int row = -1;
  const auto finish_row = [&] {
    if (row < 0 || (row == row_behind && row != row_before)) return;  // the last one is kept
    if (row != row_before) return write(row, sum);
#pragma unroll
    for (int v = 0; v < kVector; ++v) heads[(warp * kVector + v) * 32 + lane] = sum[v];
  };
  for (int first = begin; first < end; first += kLoads) {
    Pack<T, kVector> update[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i >= end || !column_ok) continue;
      load<true>(update[i], from + (Index)(list[first + i] & 0xffffu) * size.from_middle);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (first + i >= end) continue;
      if (row_at(first + i) != row) {
        finish_row();
        row = row_at(first + i);
        clear<Sum>(sum);
      }
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        if (column_ok) sum[v] += update[i].get(v);
      }
    }
  }
  finish_row();
  __syncthreads();
  if (row < 0 || row != row_behind || row == row_before) return;
  for (int other = warp + 1; row_at(other * share) == row; ++other) {
#pragma unroll
    for (int v = 0; v < kVector; ++v) sum[v] += heads[(other * kVector + v) * 32 + lane];
  }
  write(row, sum);
}
