// SPDX-License-Identifier: Apache-2.0
// ---- Sums of rows of any number of threads, and of the parts that CTAs leave for a launch after theirs ----

// `leave(row, sum)` is called for each of kRows rows of kLanes neighbouring threads by one thread: a warp adds up the
// values of a row's threads.
template <class Op, int kLanes, int kRows, class T, class Leave> PD_DEVICE void combine_rows(T value, void* shared, const Leave& leave) {
  constexpr int kWarps = kLanes * kRows / 32;  // whole ones
  T* of_thread = (T*)shared;
  of_thread[threadIdx.x] = value;
  __syncthreads();
  for (int row = threadIdx.x / 32; row < kRows && threadIdx.x < kWarps * 32; row += kWarps) {
    T sum = Op::template none<T>();
    for (int i = threadIdx.x % 32; i < kLanes; i += 32) sum = Op::of(sum, of_thread[row * kLanes + i]);
    sum = combine_lanes<Op, 32>(sum);
    if (threadIdx.x % 32 == 0) leave(row, sum);
  }
}

// Combines `count` neighbouring parts, always in the same order; every thread gets the result.
template <class Op, int kThreads, class T> PD_DEVICE T combine_left(const T* parts, int count, void* shared) {
  constexpr int kLoads = 4;
  T sum = Op::template none<T>();
  for (int first = threadIdx.x; first < count; first += kLoads * kThreads) {
    T loaded[kLoads];
#pragma unroll
    for (int i = 0; i < kLoads; ++i) {
      loaded[i] = first + i * kThreads < count ? __ldcg(parts + first + i * kThreads) : Op::template none<T>();
    }
#pragma unroll
    for (int i = 0; i < kLoads; ++i) sum = Op::of(sum, loaded[i]);
  }
  return combine_threads<Op, kThreads>(sum, shared);
}
