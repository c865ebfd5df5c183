// SPDX-License-Identifier: Apache-2.0
// These kernels read an index and decide which branch runs next. `outer`, if given, is non-zero when the choice itself
// must not be made, because it is in a branch that is not taken or the run is called off; then no branch is taken.
#ifdef PD_EMULATE
inline void cudaGraphSetConditional(unsigned long long handle, unsigned value) { *(unsigned*)handle = value; }
#else
extern "C" __device__ void cudaGraphSetConditional(unsigned long long handle, unsigned value);
#endif

PD_DEVICE long long number_of(long long number) { return number; }
PD_DEVICE long long number_of(Bool number) { return number.bits; }

// The last where there is none of that number.
template <class T> PD_DEVICE unsigned taken(const T* index, const unsigned* outer, long long count) {
  if (outer != nullptr && *outer != 0) return (unsigned)count;
  const long long number = number_of(*index);
  return (unsigned)(number >= 0 && number < count ? number : count - 1);
}

// A word for each branch that its kernels poll: not zero where it is not taken.
template <class T>
PD_DEVICE void choose_words(const T* index, const unsigned* outer, unsigned* not_taken, int count) {
  const unsigned which = taken(index, outer, count);
  for (unsigned k = threadIdx.x; k < (unsigned)count; k += kThreads) not_taken[k] = k != which;
}

// The body of a conditional node.
template <class T, class Of>
PD_DEVICE void choose_body(const T* index, const unsigned* outer, unsigned long long handle, const Of& size) {
  if (threadIdx.x == 0) cudaGraphSetConditional(handle, taken(index, outer, size.count));
}

// Whether a loop has another turn. Nothing else ends one that goes on for ever, so every so many turns it asks whether
// the host has called the run off, and it has no other once a kernel has left a fault, which values follow from.
template <class T, class Of>
PD_DEVICE void choose_turn(const T* index, const unsigned* outer, unsigned long long handle, const unsigned* flag,
                           unsigned* cancelled, unsigned* turns, const unsigned long long* faults,
                           unsigned long long fault_words, const Of& size) {
  bool has_failed = false;
  for (unsigned long long i = threadIdx.x; i < fault_words; i += kThreads) has_failed |= faults[i] != ~0ull;
  has_failed = __syncthreads_or(has_failed) != 0;
  if (threadIdx.x != 0) return;
  if (++*turns % (unsigned)size.turns_between == 0 && *(const volatile unsigned*)flag != 0) *cancelled = 1;
  const bool goes_on = taken(index, outer, 2) == 1 && *cancelled == 0 && !has_failed;
  cudaGraphSetConditional(handle, goes_on ? 1 : 0);
}
