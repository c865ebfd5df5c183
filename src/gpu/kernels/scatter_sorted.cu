// SPDX-License-Identifier: Apache-2.0
// sum += the updates at the places from `first` to `count`, at most 32, of which each lane holds one; in the order of
// lanes.
template <class T, int kVector>
PD_DEVICE void add_up(Compute<T> (&sum)[kVector], long long place, int first, int count, const T* from, Index from_middle,
                      bool column_ok) {
  constexpr int kLoads = 8;
  for (int k = first; k < count; k += kLoads) {
    Pack<T, kVector> update[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      const Index at = (Index)__shfl_sync(0xffffffffu, place, (k + i) % 32);
      if (k + i < count && column_ok) load<true>(update[i], from + at * from_middle);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (k + i >= count || !column_ok) continue;
#pragma unroll
      for (int v = 0; v < kVector; ++v) sum[v] += update[i].get(v);
    }
  }
}

// The sorted list is cut into parts of 32. A row with at most 32 updates belongs to a warp; of one with more, each part
// that has some of them is added up by a warp of its own, and the last of these to come adds up their sums, in order.
template <class Id, class T, int kVector> struct SortedScatter {
  static constexpr int kWarps = kThreads / 32, kPart = 32, kRowsOfWarp = 4;
  const Id* sorted;
  const long long* places;
  const Index* starts;
  const T* from;
  T* to;
  Index tile, outer;
  bool column_ok;
  const LaunchScratch& scratch;
  const Sizes& size;

  PD_DEVICE void write(long long row, const Compute<T> (&sum)[kVector]) const {
    Pack<T, kVector> made;
#pragma unroll
    for (int v = 0; v < kVector; ++v) made.put(v, sum[v]);
    if (column_ok) store(to + (Index)row * size.to_middle, made);
  }

  // A warp's rows, those with few updates.
  PD_DEVICE void rows(long long first_row) const {
    const int lane = threadIdx.x % 32;
    const Index start = lane <= kRowsOfWarp ? __ldg(starts + pd_min(first_row + lane, size.range_wide)) : 0;
    Index count[kRowsOfWarp];
    long long place[kRowsOfWarp];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const Index begin = __shfl_sync(0xffffffffu, start, r), end = __shfl_sync(0xffffffffu, start, r + 1);
      count[r] = first_row + r == size.padding_wide ? 0 : end - begin;
      place[r] = lane < count[r] ? __ldg(places + begin + lane) : 0;
    }
    // Most rows have few updates or none: the first ones of all rows are on their way together.
    Pack<T, kVector> head[kRowsOfWarp];
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      const Index at = (Index)__shfl_sync(0xffffffffu, place[r], 0);
      if (count[r] > 0 && count[r] <= kPart && column_ok) load<true>(head[r], from + at * size.from_middle);
    }
#pragma unroll
    for (int r = 0; r < kRowsOfWarp; ++r) {
      if (first_row + r >= size.range_wide || count[r] > kPart) continue;
      Compute<T> sum[kVector];
      clear<Sum>(sum);
#pragma unroll
      for (int v = 0; v < kVector; ++v) {
        if (count[r] > 0 && column_ok) sum[v] += head[r].get(v);
      }
      add_up<T, kVector>(sum, place[r], 1, (int)count[r], from, size.from_middle, column_ok);
      write(first_row + r, sum);
    }
  }

  // Where the sums of a part are: of the row that it begins with, or of one that begins in it.
  PD_DEVICE Compute<T>* partial(Index part, bool begins_here) const {
    const Index at = ((outer * size.parts + part) * 2 + begins_here) * size.tile_count + tile;
    return (Compute<T>*)scratch.workspace + (long long)at * (32 * kVector) + threadIdx.x % 32;
  }

  // A warp's part, as far as it is of rows with many updates: the first of its rows or the last.
  PD_DEVICE void part(Index part) const {
    if (part >= size.parts) return;
    const Index begin = part * kPart, end = pd_min(begin + kPart, size.count);
    const Id first = __ldg(sorted + begin), last = __ldg(sorted + (end - 1));
    share(part, begin, end, first);
    if (last != first) share(part, begin, end, last);
  }

  PD_DEVICE void share(Index part, Index begin, Index end, long long row) const {
    if (!is_legal(row, size.range_wide) || row == size.padding_wide) return;
    const int lane = threadIdx.x % 32;
    const Index row_begin = __ldg(starts + row), row_end = __ldg(starts + row + 1);
    if (row_end - row_begin <= kPart) return;
    const Index mine = pd_max(begin, row_begin);
    const int count = (int)(pd_min(end, row_end) - mine);
    Compute<T> sum[kVector];
    clear<Sum>(sum);
    add_up<T, kVector>(sum, lane < count ? __ldg(places + mine + lane) : 0, 0, count, from, size.from_middle, column_ok);
    Compute<T>* const here = partial(part, row_begin > begin);
#pragma unroll
    for (int v = 0; v < kVector; ++v) here[v * 32] = sum[v];
    const Index first_part = row_begin / kPart, others = (row_end - 1) / kPart - first_part;
    __syncwarp();
    int is_last = 0;
    if (lane == 0) {
      unsigned* const ticket = scratch.tickets + ((outer * size.parts + first_part) * size.tile_count + tile);
      __threadfence();
      is_last = atomicAdd(ticket, 1u) == (unsigned)others;
      if (is_last) *ticket = 0;
      __threadfence();
    }
    if (__shfl_sync(0xffffffffu, is_last, 0) == 0) return;
    const Compute<T>* const head = partial(first_part, row_begin % kPart != 0);
    const Compute<T>* const rest = partial(first_part + 1, false);
    const long long step = (long long)(partial(first_part + 2, false) - rest);
#pragma unroll
    for (int v = 0; v < kVector; ++v) sum[v] = __ldcg(head + v * 32) + fold_parts<Sum>(rest + v * 32, (int)others, step);
    write(row, sum);
  }
};

template <class Id, class T, int kVector>
PD_DEVICE void scatter_sorted(const Id* sorted, const long long* places, const T* updates, T* out, const LaunchScratch& scratch,
                              const Sizes& size) {
  using Scatter = SortedScatter<Id, T, kVector>;
  Index outer = blockIdx.x;
  const Index tile = next_coordinate(outer, size.tiles), block = next_coordinate(outer, size.blocks);
  const Index column = (tile * 32 + threadIdx.x % 32) * kVector, warp = threadIdx.x / 32;
  const Scatter scatter{sorted, places, (const Index*)((char*)scratch.workspace + size.starts_wide),
                        updates + (outer * size.from_outer + column), out + (outer * size.to_outer + column),
                        tile, outer, column < size.inner, scratch, size};
  if (block < size.part_blocks) scatter.part(block * Scatter::kWarps + warp);
  else scatter.rows(((long long)(block - size.part_blocks) * Scatter::kWarps + warp) * Scatter::kRowsOfWarp);
}
