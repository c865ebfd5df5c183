// SPDX-License-Identifier: Apache-2.0
template <class Id> PD_DEVICE bool is_legal(Id id, long long range) { return id >= 0 && (long long)id < range; }

// Keeps the lowest place of a number out of range: its halves, each below the place, so that the least of both words is
// of one place whatever the order of threads.
PD_DEVICE void note_fault(unsigned long long* fault, long long place, long long id) {
  atomicMin(fault, (unsigned long long)place << 32 | (unsigned)id);
  atomicMin(fault + 1, (unsigned long long)place << 32 | (unsigned)((unsigned long long)id >> 32));
}
