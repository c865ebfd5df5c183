// SPDX-License-Identifier: Apache-2.0
// Unsigned integers in the order of the elements; NaN above all, -0 the same as 0.
PD_DEVICE unsigned key_of(float value) {
  if (value != value) return 0xffffffffu;
  const unsigned bits = value == 0 ? 0u : __float_as_uint(value);
  return bits >> 31 ? ~bits : bits | 0x80000000u;
}
PD_DEVICE unsigned long long key_of(double value) {
  if (value != value) return ~0ull;
  const unsigned long long bits = value == 0 ? 0ull : (unsigned long long)__double_as_longlong(value);
  return bits >> 63 ? ~bits : bits | 1ull << 63;
}
PD_DEVICE unsigned long long key_of(long long value) { return (unsigned long long)value ^ 1ull << 63; }
PD_DEVICE unsigned key_of(int value) { return (unsigned)value ^ 0x80000000u; }
PD_DEVICE unsigned key_of(bool value) { return value ? 1u : 0u; }

// A key and the place: a key of 32 bits with it in one integer, a wider one beside it.
struct Narrow {
  unsigned long long bits;
  static PD_DEVICE Narrow of(unsigned key, long long place) { return {(unsigned long long)key << 32 | (unsigned)place}; }
  static PD_DEVICE Narrow last() { return {~0ull}; }
  PD_DEVICE long long place() const { return (long long)(bits & 0xffffffffu); }
  PD_DEVICE bool is_before(const Narrow& other) const { return bits < other.bits; }
};
struct Wide {
  unsigned long long key, at;
  static PD_DEVICE Wide of(unsigned long long key, long long place) { return {key, (unsigned long long)place}; }
  static PD_DEVICE Wide last() { return {~0ull, ~0ull}; }
  PD_DEVICE long long place() const { return (long long)at; }
  PD_DEVICE bool is_before(const Wide& other) const { return key != other.key ? key < other.key : at < other.at; }
};
template <class T> struct EntryOf { using Type = Narrow; };
template <> struct EntryOf<double> { using Type = Wide; };
template <> struct EntryOf<long long> { using Type = Wide; };
template <class T> using Entry = typename EntryOf<T>::Type;

PD_DEVICE Index least_of(Index a, Index b) { return a < b ? a : b; }

// A row of the call: its elements and its results.
template <class T> struct Row {
  const T* from;
  T* values;
  long long* places;
  PD_DEVICE Row(const T* a, T* all_values, long long* all_places, Index row, const Sizes& size) {
    Index outer = row;
    const Index i = next_coordinate(outer, size.inner);
    from = a + (outer * size.from_outer + i);
    values = all_values + (outer * size.values_outer + i);
    places = all_places + (outer * size.places_outer + i);
  }
  PD_DEVICE void write(Index at, long long place, const Sizes& size) const {
    Pack<T, 1> element;
    load<true>(element, from + (Index)place * size.from_middle);
    store(values + at * size.values_middle, element);
    places[at * size.places_middle] = place;
  }
};

