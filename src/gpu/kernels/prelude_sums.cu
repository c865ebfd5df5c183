// SPDX-License-Identifier: Apache-2.0
// ---- How elements are combined ----

template <class T> PD_DEVICE T least() {
  if constexpr (kSame<T, float>) return __uint_as_float(0xff800000u);
  else if constexpr (kSame<T, double>) return __longlong_as_double((long long)0xfff0000000000000ull);
  else return (T)1 << (8 * sizeof(T) - 1);
}
template <class T> PD_DEVICE T greatest() {
  if constexpr (kSame<T, float> || kSame<T, double>) return -least<T>();
  else return ~least<T>();
}
struct Sum {
  template <class T> static PD_DEVICE T of(T a, T b) { return a + b; }
  template <class T> static PD_DEVICE T none() { return T(0); }
};
struct Prod {
  template <class T> static PD_DEVICE T of(T a, T b) { return a * b; }
  template <class T> static PD_DEVICE T none() { return T(1); }
};
struct Max {
  template <class T> static PD_DEVICE T of(T a, T b) { return pd_max(a, b); }
  template <class T> static PD_DEVICE T none() { return least<T>(); }
};
struct Min {
  template <class T> static PD_DEVICE T of(T a, T b) { return pd_min(a, b); }
  template <class T> static PD_DEVICE T none() { return greatest<T>(); }
};
// Sets every element to the identity of the combination.
template <class Op, class T> PD_DEVICE void clear(T& value) { value = Op::template none<T>(); }
template <class Op, class T, int kCount> PD_DEVICE void clear(T (&values)[kCount]) {
#pragma unroll
  for (int i = 0; i < kCount; ++i) clear<Op>(values[i]);
}

// ---- Across threads, always in the same order ----

// Over groups of kWidth neighbouring lanes (a power of two, at most 32); every lane gets the result.
template <class Op, int kWidth, class T> PD_DEVICE T combine_lanes(T value) {
#pragma unroll
  for (int offset = kWidth / 2; offset > 0; offset /= 2) {
    value = Op::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
  }
  return value;
}

// Over groups of kWidth neighbouring threads (a power of two); every thread gets the result. The whole CTA calls it.
template <class Op, int kWidth, class T> PD_DEVICE T combine_threads(T value, void* shared) {
  if constexpr (kWidth <= 32) return combine_lanes<Op, kWidth>(value);
  else {
    T* of_warp = (T*)shared;
    value = combine_lanes<Op, 32>(value);
    __syncthreads();
    if (threadIdx.x % 32 == 0) of_warp[threadIdx.x / 32] = value;
    __syncthreads();
    const int first = (int)threadIdx.x / kWidth * (kWidth / 32);
    value = of_warp[first];
#pragma unroll
    for (int i = 1; i < kWidth / 32; ++i) value = Op::of(value, of_warp[first + i]);
    return value;
  }
}

// kCount results of warps, in shared memory; every lane of the threads that call it gets the result.
template <class Op, int kCount, class T> PD_DEVICE T combine_warps(const T* of_warp) {
  if constexpr (kCount > 8) return combine_lanes<Op, kCount>(of_warp[threadIdx.x % kCount]);
  else {
    T value = of_warp[0];
#pragma unroll
    for (int i = 1; i < kCount; ++i) value = Op::of(value, of_warp[i]);
    return value;
  }
}

// Columns: threads are kRows rows of kLanes lanes, each with kVector neighbouring columns in `sum`.
// Afterwards column_of gives any thread the result of column c (kLanes * kVector of them).
template <int kLanes, int kRows> inline constexpr int kRowsInWarp = kLanes >= 32 ? 1 : 32 / kLanes < kRows ? 32 / kLanes : kRows;
template <class Op, int kLanes, int kRows, int kVector, class T>
PD_DEVICE void gather_columns(const T (&sum)[kVector], void* shared) {
  constexpr int kInWarp = kRowsInWarp<kLanes, kRows>;
  T* part = (T*)shared;
  const int lane = threadIdx.x % kLanes, row = threadIdx.x / kLanes;
  __syncthreads();
#pragma unroll
  for (int v = 0; v < kVector; ++v) {
    T value = sum[v];
    if constexpr (kInWarp > 1) {
#pragma unroll
      for (int offset = kLanes * kInWarp / 2; offset >= kLanes; offset /= 2) {
        value = Op::of(value, __shfl_xor_sync(0xffffffffu, value, offset));
      }
    }
    if (row % kInWarp == 0) part[row / kInWarp * (kLanes * kVector) + lane * kVector + v] = value;
  }
  __syncthreads();
}
template <class Op, int kLanes, int kRows, int kVector, class T> PD_DEVICE T column_of(const T* part, int c) {
  T value = part[c];
#pragma unroll
  for (int r = 1; r < kRows / kRowsInWarp<kLanes, kRows>; ++r) value = Op::of(value, part[r * kLanes * kVector + c]);
  return value;
}

// The same, and afterwards shared[c] holds the result of column c, for every thread to read.
template <class Op, int kLanes, int kRows, int kVector, class T>
PD_DEVICE void combine_columns(const T (&sum)[kVector], void* shared) {
  gather_columns<Op, kLanes, kRows>(sum, shared);
  if constexpr (kRows > kRowsInWarp<kLanes, kRows>) {
    T* part = (T*)shared;
    for (int c = threadIdx.x; c < kLanes * kVector; c += kLanes * kRows) {
      part[c] = column_of<Op, kLanes, kRows, kVector>(part, c);
    }
    __syncthreads();
  }
}

// ---- Across CTAs: each leaves its partial results in the workspace, the last one to come combines them ----

// Counts 0 to `last` and then from 0 again; true for the one that counts `last`. It sees all that those who counted
// before, and threads that they were in a barrier with, had stored.
PD_DEVICE bool counts_last(unsigned* ticket, unsigned last) {
#ifdef PD_EMULATE
  return atomicInc(ticket, last) == last;
#else
  unsigned before;
  asm volatile("atom.inc.acq_rel.gpu.global.u32 %0, [%1], %2;" : "=r"(before) : "l"(ticket), "r"(last) : "memory");
  return before == last;
#endif
}

// True in the CTA that is the last of `parts` to arrive; the ticket is then zero again for the next launch. One thread
// counts for all, as they are in a barrier with it.
PD_DEVICE bool is_last_arriver(unsigned* ticket, unsigned parts) {
  __shared__ bool is_last;
  __syncthreads();
  if (threadIdx.x == 0) is_last = counts_last(ticket, parts - 1);
  __syncthreads();
  return is_last;
}

// The same for whole warps that count for themselves, each for the stores of its own lanes.
PD_DEVICE bool is_last_warp(unsigned* ticket, unsigned parts) {
  __syncwarp();
  const bool is_last = threadIdx.x % 32 == 0 && counts_last(ticket, parts - 1);
  __syncwarp();
  return __shfl_sync(0xffffffffu, (int)is_last, 0) != 0;
}

// Combines an element of `parts` partial tiles of `elements` each, in index order whatever the order of arrival. `width` is
// a power of two up to kThreads; threads t, t + width .. share the element that thread t gets, and have the same `at` and
// `is_there`: an element that is not there is not read.
template <class Op, int kThreads, class T>
PD_DEVICE T combine_parts(const T* at, int parts, long long elements, bool is_there, int width, void* shared) {
  T* sums = (T*)shared;
  const int element = threadIdx.x & (width - 1), split = kThreads / width, which = threadIdx.x / width;
  T sum = Op::template none<T>();
  if (is_there) {
    int p = which;
    for (; p + 15 * split < parts; p += 16 * split) {
      T loaded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) loaded[i] = __ldcg(at + (p + i * split) * elements);
#pragma unroll
      for (int i = 0; i < 16; ++i) sum = Op::of(sum, loaded[i]);
    }
    if (p < parts) {
      T loaded[16];
#pragma unroll
      for (int i = 0; i < 16; ++i) {
        loaded[i] = p + i * split < parts ? __ldcg(at + (p + i * split) * elements) : Op::template none<T>();
      }
#pragma unroll
      for (int i = 0; i < 16; ++i) sum = Op::of(sum, loaded[i]);
    }
  }
  for (int offset = width; offset < 32; offset *= 2) sum = Op::of(sum, __shfl_xor_sync(0xffffffffu, sum, offset));
  const int rows = width < 32 ? kThreads / 32 : split, row_width = width < 32 ? 32 : width;
  __syncthreads();
  sums[threadIdx.x] = sum;
  __syncthreads();
  sum = sums[element];
  for (int r = 1; r < rows; ++r) sum = Op::of(sum, sums[r * row_width + element]);
  return sum;
}

// Combines `parts` values `step` apart in index order.
template <class Op, class T> PD_DEVICE T fold_parts(const T* at, int parts, long long step) {
  T value = Op::template none<T>();
  for (int p = 0; p < parts; p += 16) {
    T loaded[16];
#pragma unroll
    for (int i = 0; i < 16; ++i) loaded[i] = p + i < parts ? __ldcg(at + (p + i) * step) : Op::template none<T>();
#pragma unroll
    for (int i = 0; i < 16; ++i) value = Op::of(value, loaded[i]);
  }
  return value;
}

// The same for kCount neighbouring values, 16 bytes of them at most, whose address is a multiple of their size.
template <class Op, int kCount, class T> PD_DEVICE void fold_parts(T (&value)[kCount], const T* at, int parts, long long step) {
  constexpr int kLoads = 8;
  clear<Op>(value);
  for (int p = 0; p < parts; p += kLoads) {
    Pack<T, kCount> loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (p + i < parts) load_past_l1(loaded[i], at + (p + i) * step);
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      if (p + i >= parts) continue;
#pragma unroll
      for (int v = 0; v < kCount; ++v) value[v] = Op::of(value[v], loaded[i].get(v));
    }
  }
}

// The power of two that combine_parts works in: all elements at once if there are few, the CTA's threads otherwise.
template <int kThreads> PD_DEVICE int part_width(long long elements) {
  int width = 1;
  while (width < kThreads && width < elements) width *= 2;
  return width;
}
