// SPDX-License-Identifier: Apache-2.0
template <class Id> PD_DEVICE bool is_legal(Id id, long long range) { return id >= 0 && (long long)id < range; }

// Keeps the first index out of range: each word is the place of an index and half of its value, so that both minima
// come from one place in whatever order threads run. A place fits 32 bits: kernels decline 2^32 - 1 indices or more
// (ops/index/index_gpu.cpp).
PD_DEVICE void note_fault(unsigned long long* fault, long long place, long long id) {
  atomicMin(fault, (unsigned long long)place << 32 | (unsigned)id);
  atomicMin(fault + 1, (unsigned long long)place << 32 | (unsigned)((unsigned long long)id >> 32));
}
