// SPDX-License-Identifier: Apache-2.0
// Kernels that write a run's results into the host's memory, without a copy that the host would have to prepare.

// The value of a print, after those of before. log: bytes in use, bytes that found no room, then a record for each
// value: which launch's, its bytes, those padded to a multiple of 8.
template <class Of>
PD_DEVICE void log_value(const unsigned char* from, unsigned long long bytes, unsigned long long launch,
                         unsigned long long* log, const Of& size) {
  __shared__ unsigned long long at;
  const unsigned long long record = 16 + (bytes + 7) / 8 * 8;
  if (threadIdx.x == 0) {
    at = log[0] + record <= (unsigned long long)size.room_wide && log[1] == 0 ? log[0] : ~0ull;
    log[at == ~0ull ? 1 : 0] += record;
  }
  __syncthreads();
  if (at == ~0ull) return;
  unsigned long long* to = log + 2 + at / 8;
  if (threadIdx.x == 0) to[0] = launch, to[1] = bytes;
  unsigned char* const values = (unsigned char*)(to + 2);
  for (unsigned long long i = threadIdx.x; i < bytes; i += kThreads) values[i] = from[i];
}

// A result, each element of a list after the others.
PD_DEVICE void pack(unsigned char* to, const unsigned char* from, int bytes) {
  for (int i = threadIdx.x; i < bytes; i += kThreads) to[i] = from[i];
}

// Moves small values after a run that is waited for, such as results that belong in the host's memory.
PD_DEVICE void move_value(unsigned char* to, const unsigned char* from, int bytes) {
  if ((((unsigned long long)to | (unsigned long long)from | (unsigned long long)bytes) & 15) == 0) {
    for (int i = threadIdx.x; i < bytes / 16; i += kThreads) ((uint4*)to)[i] = ((const uint4*)from)[i];
  } else {
    for (int i = threadIdx.x; i < bytes; i += kThreads) to[i] = from[i];
  }
}
// Stores the number of such runs; a host that reads it finds their results in its memory.
PD_DEVICE void set_completion_flag(unsigned* told, unsigned count) {
  __syncthreads();
  if (threadIdx.x != 0) return;
#ifdef PD_EMULATE
  *told = count;
#else
  // The store releases the writes of all threads: a fence beside it would be a second one.
  asm volatile("st.release.sys.global.u32 [%0], %1;" ::"l"(told), "r"(count) : "memory");
#endif
}
