// SPDX-License-Identifier: Apache-2.0
template <class Id> PD_DEVICE void check_indices(const Id* ids, unsigned long long* fault, const Sizes& size) {
  const Index n = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (n < size.count && !is_legal(ids[n], size.range_wide)) note_fault(fault, n, ids[n]);
}
