// SPDX-License-Identifier: Apache-2.0
// cumsum on the GPU, added up in f64 as on the CPU (integers in 64 bits). Reduce, then scan (Dotsenko et al., "Fast
// scan algorithms on graphics processors", 2008): where the rows alone would not fill the GPU they are cut into parts,
// a first launch sums each part, and a second starts each with the sum of those before it. Parts depend on the shape
// only and everything is added in one order, so results are the same on every run.
#include <algorithm>

#include "base/check.h"
#include "gpu/text_kernel.h"
#include "ops/all_kernels.h"
#include "ops/rows.h"
#include "ops/sort/along_axis.h"

namespace paoding {
namespace {

constexpr int kThreads = 256, kItems = 4;
constexpr std::int64_t kWanted = 132 * 1024;  // threads that keep a large GPU busy
constexpr std::int64_t kLeastPart = 64;       // steps of one thread

constexpr std::string_view kScanText = R"cuda(
template <class T> struct TotalOf { using Type = double; };
template <> struct TotalOf<long long> { using Type = long long; };
template <> struct TotalOf<int> { using Type = long long; };
template <> struct TotalOf<unsigned char> { using Type = long long; };
template <class T> using Total = typename TotalOf<T>::Type;

// Where the element at position p of the order of summation lies.
PD_DEVICE Index place(Index p, const Sizes& size) { return kReverse ? size.count - 1 - p : p; }

template <class T> PD_DEVICE Total<T> sum_before(const Total<T>* totals, Index part, Index step) {
  Total<T> sum = 0;
  for (Index k = 0; k < part; ++k) sum += totals[k * step];
  return sum;
}

// ---- one thread per column of a part ----

template <class T, bool kTotals>
PD_DEVICE void scan_columns(const T* a, T* out, Total<T>* totals, const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  const Index part = divide(rest, size.columns), column = rest - part * (Index)size.columns.count;
  Index outer = column;
  const Index i = next_coordinate(outer, size.inner);
  const Index begin = part * size.part, end = begin + size.part < size.count ? begin + size.part : size.count;
  const T* const from = a + (outer * size.from_outer + i);
  T* const to = out + (outer * size.to_outer + i);
  Total<T> sum = kTotals ? 0 : sum_before<T>(totals + column, part, (Index)size.columns.count);
  for (Index p = begin; p < end; ++p) {
    const Total<T> value = (Total<T>)load_one<true>(from + place(p, size) * size.from_middle);
    if constexpr (!kTotals && kExclusive) store_sum<false>(to + place(p, size) * size.to_middle, sum);
    sum += value;
    if constexpr (!kTotals && !kExclusive) store_sum<false>(to + place(p, size) * size.to_middle, sum);
  }
  if constexpr (kTotals) totals[rest] = sum;
}

// ---- contiguous rows: a CTA per part ----

// The sum over the threads before, and of all; Kogge and Stone within warps ("A parallel algorithm for the efficient
// solution of a general class of recurrence equations", 1973). Nothing is subtracted, so that an infinity or a NaN
// reaches only what comes after it.
template <class S> PD_DEVICE S scan_threads(S value, S* all) {
  __shared__ S of_warp[kThreads / 32];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  S sum = value;
#pragma unroll
  for (int offset = 1; offset < 32; offset *= 2) {
    const S other = __shfl_up_sync(0xffffffffu, sum, offset);
    if (lane >= offset) sum += other;
  }
  if (lane == 31) of_warp[warp] = sum;
  S before = __shfl_up_sync(0xffffffffu, sum, 1);
  if (lane == 0) before = 0;
  __syncthreads();
  S warps = 0, total = 0;
#pragma unroll
  for (int w = 0; w < kThreads / 32; ++w) {
    if (w == warp) warps = total;
    total += of_warp[w];
  }
  __syncthreads();
  *all = total;
  return warps + before;
}

template <class T, bool kTotals>
PD_DEVICE void scan_rows(const T* a, T* out, Total<T>* totals, const Sizes& size) {
  Index row = blockIdx.x;
  const Index part = next_coordinate(row, size.parts);
  const Index begin = part * size.part, end = begin + size.part < size.count ? begin + size.part : size.count;
  const T* const from = a + row * size.from_outer;
  T* const to = out + row * size.to_outer;
  Total<T> carry = kTotals ? 0 : sum_before<T>(totals + row * (Index)size.parts.count, part, 1);
  for (Index tile = begin; tile < end; tile += kThreads * kItems) {
    Total<T> item[kItems], sum = 0, all;
    const Index first = tile + (Index)threadIdx.x * kItems;
#pragma unroll
    for (int u = 0; u < kItems; ++u) {
      const Total<T> value =
          first + u < end ? (Total<T>)load_one<true>(from + place(first + u, size) * size.from_middle) : 0;
      if constexpr (kExclusive) item[u] = sum;
      sum += value;
      if constexpr (!kExclusive) item[u] = sum;
    }
    const Total<T> before = scan_threads(sum, &all);
#pragma unroll
    for (int u = 0; u < kItems && !kTotals; ++u) {
      if (first + u < end) store_sum<false>(to + place(first + u, size) * size.to_middle, carry + (before + item[u]));
    }
    carry += all;
  }
  if constexpr (kTotals) {
    if (threadIdx.x == 0) totals[row * (Index)size.parts.count + part] = carry;
  }
}
)cuda";

gpu::TextPlan plan(const KernelCall& call) {
  const int axis = along_axis(call);
  const Rows from = *rows_of(call.inputs[0], axis), to = *rows_of(call.outputs[0], axis);
  const DType dtype = call.inputs[0].type.dtype;
  const std::int64_t count = to.middle.extent, columns = to.outer.extent * to.inner.extent;
  if (count * columns == 0) return {};
  const bool is_rows = to.inner.extent == 1;
  // A unit is what one thread sums in turn, or a CTA's tile.
  const std::int64_t unit = is_rows ? kThreads * kItems : kLeastPart;
  const std::int64_t lanes = is_rows ? columns * kThreads : columns;
  const std::int64_t most_parts = std::min(gpu::parts_of(count, unit), gpu::parts_of(kWanted, lanes));
  const std::int64_t part = gpu::parts_of(gpu::parts_of(count, most_parts), unit) * unit;
  const std::int64_t parts = gpu::parts_of(count, part);

  gpu::TextParts text;
  text.threads = kThreads;
  text.is_wide = gpu::needs_wide_index(std::max({gpu::reach_of(call.inputs[0]), gpu::reach_of(call.outputs[0]),
                                                 columns * parts, parts * part + kThreads * kItems}));
  text.constants = fmt::format("constexpr int kItems = {};\nconstexpr bool kExclusive = {}, kReverse = {};\n", kItems,
                               call.attrs.get_bool("exclusive"), call.attrs.get_bool("reverse"));
  text.functions = kScanText;
  text.sizes.number("count", count), text.sizes.number("part", part), text.sizes.number("total", columns * parts);
  text.sizes.divisor("columns", columns), text.sizes.divisor("inner", to.inner.extent);
  text.sizes.divisor("parts", parts);
  text.sizes.number("from_outer", from.outer.stride), text.sizes.number("from_middle", from.middle.stride);
  text.sizes.number("to_outer", to.outer.stride), text.sizes.number("to_middle", to.middle.stride);
  text.operands = {gpu::input_parameter(dtype, "a"), gpu::output_parameter(dtype, "out")};
  text.ctas = is_rows ? columns * parts : gpu::parts_of(columns * parts, kThreads);
  gpu::TextPlan made;
  for (const bool is_total : {true, false}) {
    if (is_total && parts == 1) continue;
    text.name = is_total ? "cumsum_totals" : "cumsum";
    text.call = fmt::format("{0}<{1}, {2}>(a, out, (Total<{1}>*)workspace, size)",
                            is_rows ? "scan_rows" : "scan_columns", gpu::stored_type(dtype), is_total);
    made.launches.push_back(gpu::make_text_kernel(text));
  }
  if (parts > 1) made.workspace_bytes = columns * parts * 8;
  return made;
}

}  // namespace

void register_cumsum_gpu() { gpu::register_text_kernel("cumsum", "scan", along_axis_refusal, plan); }

}  // namespace paoding
