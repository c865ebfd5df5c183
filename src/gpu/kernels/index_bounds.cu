// SPDX-License-Identifier: Apache-2.0
template <class Id> PD_DEVICE void check_bounds(const Id* ids, Id* out, unsigned long long* fault, const Sizes& size) {
  const Index n = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (n >= size.count) return;
  const Id id = __ldg(ids + n);
  // A caller without fault words does not wait for the run, so there is nobody to report to.
  const bool is_legal = size.least_wide <= (long long)id && (long long)id <= size.most_wide;
  if (!is_legal && fault != nullptr) note_fault(fault, n, id);
  out[n] = id;
}
