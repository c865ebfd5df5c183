// SPDX-License-Identifier: Apache-2.0
// Rows as pieces of up to 16 bytes: strides are in pieces.
template <class Id, class Piece>
PD_DEVICE void gather_rows(const Piece* a, const Id* ids, Piece* out, unsigned long long* fault, const Sizes& size) {
  const Index first = (Index)blockIdx.x * (kThreads * kInFlight) + threadIdx.x;
  Piece value[kInFlight];
  Index to[kInFlight];
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    value[u] = Piece();
    Index rest = first + u * kThreads;
    if (rest >= size.total) continue;
    const Index piece = next_coordinate(rest, size.inner), n = next_coordinate(rest, size.count);
    const Id id = __ldg(ids + n);
    to[u] = rest * size.to_outer + n * size.to_middle + piece;
    if (is_legal(id, size.range_wide)) value[u] = __ldg(a + (rest * size.from_outer + (Index)id * size.from_middle + piece));
    else note_fault(fault, n, id);
  }
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    if (first + u * kThreads < size.total) out[to[u]] = value[u];
  }
}

template <class Id, class Piece>
PD_DEVICE void gather_elements(const Piece* a, const Id* ids, Piece* out, unsigned long long* fault, const Sizes& size) {
  const Index first = (Index)blockIdx.x * (kThreads * kInFlight) + threadIdx.x;
#pragma unroll
  for (int u = 0; u < kInFlight; ++u) {
    const Index p = first + u * kThreads;
    if (p >= size.total) continue;
    Index rest = p;
    const Index i = next_coordinate(rest, size.inner), n = next_coordinate(rest, size.count);
    const Id id = __ldg(ids + p);
    Piece value = Piece();
    if (is_legal(id, size.range_wide)) value = __ldg(a + (rest * size.from_outer + (Index)id * size.from_middle + i));
    else note_fault(fault, p, id);
    out[rest * size.to_outer + n * size.to_middle + i] = value;
  }
}
