// SPDX-License-Identifier: Apache-2.0
// sort and topk on the GPU, for rows of any length. As on the CPU elements become unsigned numbers in the same order
// with their place behind them, all different, which makes any sort stable. A first launch sorts tiles in shared memory
// by a bitonic network (Batcher, "Sorting networks and their applications", 1968); each further one merges pairs of
// runs, an entry's place in the merged run being its place in its own plus its rank in the other, found by bisection
// (merging by ranks: Satish, Harris and Garland, "Designing efficient sorting algorithms for manycore GPUs", 2009). Of
// no run more is kept than topk takes.
#include <algorithm>

#include "base/check.h"
#include "gpu/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/rows.h"
#include "ops/sort/along_axis.h"

namespace paoding {
namespace {

constexpr int kMergeThreads = 256;

constexpr std::string_view kEntryText = R"cuda(
// Unsigned numbers in the order of the elements; NaN above all, -0 the same as 0.
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

// A key and the place: a key of 32 bits with it in one number, a wider one beside it.
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

)cuda";

constexpr std::string_view kTileText = R"cuda(
// Sorts tile `tile` of a row. A row of one tile is done then; else its entries are a run, for merging.
template <class T, int kTile, bool kIsAll>
PD_DEVICE void sort_tile(const T* a, T* values, long long* places, Entry<T>* runs, const Sizes& size) {
  __shared__ Entry<T> entries[kTile];
  Index row = blockIdx.x;
  const Index tile = next_coordinate(row, size.tiles), first = tile * kTile;
  const Row<T> mine(a, values, places, row, size);
  for (int i = threadIdx.x; i < kTile; i += kThreads) {
    Entry<T> entry = Entry<T>::last();
    if (first + i < size.count) {
      const auto key = key_of(load_one<true>(mine.from + (first + i) * size.from_middle));
      entry = Entry<T>::of(kDescending ? ~key : key, first + i);
    }
    entries[i] = entry;
  }
  for (int length = 2; length <= kTile; length *= 2) {
    for (int step = length / 2; step > 0; step /= 2) {
      __syncthreads();
      for (int t = threadIdx.x; t < kTile / 2; t += kThreads) {
        const int low = 2 * t - (t & (step - 1)), high = low + step;
        const bool is_rising = (low & length) == 0;
        const Entry<T> x = entries[low], y = entries[high];
        if (y.is_before(x) == is_rising) entries[low] = y, entries[high] = x;
      }
    }
  }
  __syncthreads();
  const Index kept = least_of(size.count - first, size.kept);
  for (int i = threadIdx.x; i < kept; i += kThreads) {
    if constexpr (kIsAll) mine.write(i, entries[i].place(), size);
    else runs[row * size.count + tile * size.kept + i] = entries[i];
  }
}

)cuda";

constexpr std::string_view kMergeText = R"cuda(
// One thread per entry of runs that were made of `width` elements each and have up to `kept` entries.
template <class T, bool kIsLast>
PD_DEVICE void merge_runs(const T* a, T* values, long long* places, const Entry<T>* from, Entry<T>* to,
                          const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  const Index i = next_coordinate(rest, size.kept), run = next_coordinate(rest, size.runs), row = rest;
  const Index capacity = (Index)size.kept.count, other = run ^ 1;
  if (i >= least_of(size.count - run * size.width, capacity)) return;
  const Entry<T>* const entries = from + row * size.count;
  const Entry<T> mine = entries[run * capacity + i];
  const Entry<T>* const theirs = entries + other * capacity;
  const Index elements = size.count - other * size.width;
  Index low = 0, high = elements <= 0 ? 0 : least_of(elements, capacity);
  while (low < high) {
    const Index middle = low + (high - low) / 2;
    if (theirs[middle].is_before(mine)) low = middle + 1;
    else high = middle;
  }
  const Index at = i + low;
  if (at >= size.kept_after) return;
  if constexpr (kIsLast) Row<T>(a, values, places, row, size).write(at, mine.place(), size);
  else to[row * size.count + (run >> 1) * size.kept_after + at] = mine;
}
)cuda";

gpu::TextPlan plan(const KernelCall& call, bool is_descending) {
  const int axis = along_axis(call);
  const Rows from = *rows_of(call.inputs[0], axis), values = *rows_of(call.outputs[0], axis),
             places = *rows_of(call.outputs[1], axis);
  const DType dtype = call.inputs[0].type.dtype;
  const std::int64_t count = from.middle.extent, taken = values.middle.extent;
  const std::int64_t rows = from.outer.extent * from.inner.extent;
  if (rows * taken == 0) return {};
  const std::int64_t tile = count <= 64 ? 64 : count <= 256 ? 256 : 1024, tiles = gpu::parts_of(count, tile);
  const std::int64_t entry_bytes = dtype == DType::f64 || dtype == DType::i64 ? 16 : 8;
  const std::string type(gpu::stored_type(dtype));
  std::int64_t most = std::max(4 * count, rows * tiles * tile);
  for (const auto* list : {&call.inputs, &call.outputs}) {
    for (const Layout& layout : *list) most = std::max(most, gpu::reach_of(layout));
  }
  const std::int64_t buffer = (rows * count * entry_bytes + 255) / 256 * 256;

  gpu::TextParts text;
  text.is_wide = gpu::needs_wide_index(most);
  text.constants = fmt::format("constexpr bool kDescending = {};\n", is_descending);
  text.operands = {gpu::input_parameter(dtype, "a"), gpu::output_parameter(dtype, "values"),
                   gpu::output_parameter(DType::i64, "places")};
  const auto start_sizes = [&] {
    text.sizes = {};
    text.sizes.number("count", count), text.sizes.divisor("inner", from.inner.extent);
    text.sizes.number("from_outer", from.outer.stride), text.sizes.number("from_middle", from.middle.stride);
    text.sizes.number("values_outer", values.outer.stride), text.sizes.number("values_middle", values.middle.stride);
    text.sizes.number("places_outer", places.outer.stride), text.sizes.number("places_middle", places.middle.stride);
    text.sizes.wide_number("buffer", buffer);
  };
  gpu::TextPlan made;

  text.name = call.op->name + "_tiles";
  text.threads = static_cast<int>(tile / 2);
  text.functions = fmt::format("{}{}", kEntryText, kTileText);
  start_sizes();
  text.sizes.divisor("tiles", tiles), text.sizes.number("kept", std::min(tile, taken));
  text.call =
      fmt::format("sort_tile<{0}, {1}, {2}>(a, values, places, (Entry<{0}>*)workspace, size)", type, tile, tiles == 1);
  text.ctas = rows * tiles;
  made.launches.push_back(gpu::make_text_kernel(text));
  if (tiles == 1) return made;

  // Runs go from one half of the workspace to the other.
  made.workspace_bytes = 2 * buffer;
  text.name = call.op->name + "_merge";
  text.threads = kMergeThreads;
  text.functions = fmt::format("{}{}", kEntryText, kMergeText);
  bool is_first_half = true;
  for (std::int64_t width = tile; width < count; width *= 2) {
    const std::int64_t runs = gpu::parts_of(count, width), kept = std::min(width, taken);
    start_sizes();
    text.sizes.divisor("runs", runs), text.sizes.divisor("kept", kept);
    text.sizes.number("width", width), text.sizes.number("kept_after", std::min(2 * width, taken));
    text.sizes.number("total", rows * runs * kept);
    const std::string halves[] = {fmt::format("(Entry<{}>*)workspace", type),
                                  fmt::format("(Entry<{}>*)((char*)workspace + size.buffer_wide)", type)};
    text.call = fmt::format("merge_runs<{}, {}>(a, values, places, {}, {}, size)", type, runs == 2,
                            halves[is_first_half ? 0 : 1], halves[is_first_half ? 1 : 0]);
    text.ctas = gpu::parts_of(rows * runs * kept, kMergeThreads);
    made.launches.push_back(gpu::make_text_kernel(text));
    is_first_half = !is_first_half;
  }
  return made;
}

}  // namespace

void register_sort_gpu() {
  gpu::register_text_kernel("sort", "merge", sort_refusal,
                            [](const KernelCall& call) { return plan(call, call.attrs.get_bool("descending")); });
  gpu::register_text_kernel("topk", "merge", sort_refusal,
                            [](const KernelCall& call) { return plan(call, call.attrs.get_bool("largest")); });
}

}  // namespace paoding
