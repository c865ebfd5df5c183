// SPDX-License-Identifier: Apache-2.0
// The guard stands in front of a run's first write of a parameter, after all kernels that may leave a fault. If there
// is a fault, or the run was called off, it closes: kernels that write then do nothing, in this run and in every later
// one, and the host gets the fault. words: the number of runs so far, then the launches' fault words. report, in the
// host's memory: the number of the run that failed, that of the first run after it, the fault words.
PD_DEVICE void commit_guard(unsigned* failed, const unsigned* cancelled, unsigned long long* words,
                           unsigned long long* report, const Sizes& size) {
  __shared__ unsigned found;
  if (threadIdx.x == 0) {
    found = *cancelled;
    ++words[0];
  }
  __syncthreads();
  if (*failed != 0) {
    if (threadIdx.x == 0 && report[1] == 0) report[1] = words[0];
    return;
  }
  for (Index i = threadIdx.x; i < size.words; i += kThreads) {
    if (words[1 + i] != ~0ull) found = 1;
  }
  __syncthreads();
  if (found == 0) return;
  for (Index i = threadIdx.x; i < size.words; i += kThreads) report[2 + i] = words[1 + i];
  if (threadIdx.x == 0) report[0] = words[0];
  __syncthreads();
  if (threadIdx.x == 0) *failed = 1;
}
