// SPDX-License-Identifier: Apache-2.0
// The sums of CTAs for an epilogue's channels, kColumns of which each has, in pieces of 8, by its first kConsumers
// threads: the last CTA of its columns adds up those of all. Stands after the source of an epilogue.

// The same as is_last_arriver, by shared memory that is this CTA's own where the emulation runs all at once.
PD_DEVICE bool is_last_of_columns(unsigned* ticket, unsigned of_columns, int* shared) {
  __syncthreads();
  if (threadIdx.x == 0) {
    __threadfence();
    *shared = atomicAdd(ticket, 1u) == of_columns - 1;
    if (*shared) {
      *ticket = 0;
      __threadfence();
    }
  }
  __syncthreads();
  const bool is_last = *shared;
  __syncthreads();
  return is_last;
}

// `of_columns`: the CTAs that have these columns; `which` of them this one is.
PD_DEVICE void add_up_epilogues(const float (&ended)[kSums + 1][8], float* shared, int tile_n, int which, int of_columns,
                           const EpilogueOperands& epilogue, const LaunchScratch& scratch, const Sizes& size) {
  constexpr int kElements = kSums * kColumns, kWidth = 64;
  float* const parts = (float*)((char*)scratch.workspace + size.parts_at_wide) + (long long)tile_n * of_columns * kElements;
  for (int s = 0; s < kSums; ++s) {
    combine_columns<Sum, kColumns / 8, kConsumers / (kColumns / 8)>(ended[s], shared);
    if (threadIdx.x < kColumns) parts[which * kElements + s * kColumns + threadIdx.x] = shared[threadIdx.x];
  }
  if (!is_last_of_columns(scratch.tickets + tile_n, (unsigned)of_columns, (int*)shared)) return;
  for (int first = 0; first < kElements; first += kWidth) {
    const int e = first + threadIdx.x % kWidth;
    const float sum =
        combine_parts<Sum, kConsumers>(parts + e, of_columns, kElements, threadIdx.x < kConsumers, kWidth, shared);
    const int column = tile_n * kColumns + e % kColumns;
    if (threadIdx.x < kWidth && column < size.columns) store_sum(epilogue, e / kColumns, column, sum, size);
  }
}
