// SPDX-License-Identifier: Apache-2.0
#include "gpu/index_text.h"

#include <algorithm>

#include "base/check.h"
#include "gpu/text_kernel.h"

namespace paoding::gpu {
namespace {

constexpr int kThreads = 256;
constexpr int kInFlight = 4;           // elements or pieces per thread
constexpr std::int64_t kMaxScan = 64;  // indices per place that every element of the result looks through

constexpr std::string_view kFaultText = R"cuda(
template <class Id> PD_DEVICE bool is_legal(Id id, long long range) { return id >= 0 && (long long)id < range; }

// Keeps the lowest place of a number out of range: its halves, each below the place, so that the least of both words is
// of one place whatever the order of threads.
PD_DEVICE void note_fault(unsigned long long* fault, long long place, long long id) {
  atomicMin(fault, (unsigned long long)place << 32 | (unsigned)id);
  atomicMin(fault + 1, (unsigned long long)place << 32 | (unsigned)((unsigned long long)id >> 32));
}
)cuda";

constexpr std::string_view kCheckText = R"cuda(
template <class Id> PD_DEVICE void check_indices(const Id* ids, unsigned long long* fault, const Sizes& size) {
  const Index n = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (n < size.count && !is_legal(ids[n], size.range_wide)) note_fault(fault, n, ids[n]);
}
)cuda";

constexpr std::string_view kGatherText = R"cuda(

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
)cuda";

// No atomics and no sorting: a CTA owns 32 rows of the result. Its warps look through the indices, a segment each, and
// list the positions that are its own, in order; then each warp adds up the updates of its 4 rows.
constexpr std::string_view kScatterRowsText = R"cuda(
template <class Id, class T, int kVector>
PD_DEVICE void scatter_rows(const Id* ids, const T* updates, T* out, unsigned long long* fault, const Sizes& size) {
  constexpr int kWarps = kThreads / 32, kRowsOfWarp = 4, kSegment = 512, kLoads = 8;
  __shared__ unsigned entries[kWarps][kSegment];  // row << 16 | position in the segment
  __shared__ int counts[kWarps];
  const int lane = threadIdx.x % 32, warp = threadIdx.x / 32;
  Index rest = blockIdx.x;
  const Index column = (next_coordinate(rest, size.tiles) * 32 + lane) * kVector;
  const long long first_row = (long long)next_coordinate(rest, size.blocks) * (kWarps * kRowsOfWarp);
  const T* const from = updates + (rest * size.from_outer + column);
  const bool column_ok = column < size.inner;
  Compute<T> sum[kRowsOfWarp][kVector];
  clear<Sum>(sum);
  for (Index chunk = 0; chunk < size.count; chunk += kWarps * kSegment) {
    int count = 0;
    for (int k = 0; k < kSegment; k += 32) {
      const Index n = chunk + warp * kSegment + k + lane;
      const long long id = n < size.count ? (long long)__ldg(ids + n) : 0, row = n < size.count ? id - first_row : -1;
      if (blockIdx.x == 0 && n < size.count && !is_legal(id, size.range_wide)) note_fault(fault, n, id);
      const bool is_mine = row >= 0 && row < kWarps * kRowsOfWarp && row + first_row < size.range_wide;
      const unsigned found = __ballot_sync(0xffffffffu, is_mine);
      if (is_mine) entries[warp][count + __popc(found & ((1u << lane) - 1))] = (unsigned)row << 16 | (unsigned)(k + lane);
      count += __popc(found);
    }
    if (lane == 0) counts[warp] = count;
    __syncthreads();
    for (int segment = 0; segment < kWarps; ++segment) {
      const T* const segment_from = from + (chunk + segment * kSegment) * size.from_middle;
      for (int base = 0; base < counts[segment]; base += 32) {
        const unsigned entry = base + lane < counts[segment] ? entries[segment][base + lane] : 0xffffffffu;
#pragma unroll
        for (int r = 0; r < kRowsOfWarp; ++r) {
          unsigned mine = __ballot_sync(0xffffffffu, (int)(entry >> 16) == warp * kRowsOfWarp + r);
          while (mine != 0) {
            Pack<T, kVector> update[kLoads];
            bool is_taken[kLoads];
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
              is_taken[i] = mine != 0 && column_ok;
              if (mine == 0) continue;
              const Index n = entries[segment][base + __ffs((int)mine) - 1] & 0xffffu;
              mine &= mine - 1;
              if (column_ok) load<true>(update[i], segment_from + n * size.from_middle);
            }
#pragma unroll
            for (int i = 0; i < kLoads; ++i) {
              if (!is_taken[i]) continue;
#pragma unroll
              for (int v = 0; v < kVector; ++v) sum[r][v] += update[i].get(v);
            }
          }
        }
      }
    }
    __syncthreads();
  }
#pragma unroll
  for (int r = 0; r < kRowsOfWarp; ++r) {
    const long long row = first_row + warp * kRowsOfWarp + r;
    if (row >= size.range_wide || !column_ok) continue;
    Pack<T, kVector> made;
#pragma unroll
    for (int v = 0; v < kVector; ++v) made.put(v, sum[r][v]);
    store(out + (rest * size.to_outer + (Index)row * size.to_middle + column), made);
  }
}
)cuda";

constexpr std::string_view kScatterElementsText = R"cuda(
// Few indices per place: every element of the result looks through them.
template <class Id, class T>
PD_DEVICE void scatter_scan(const Id* ids, const T* updates, T* out, unsigned long long* fault, const Sizes& size) {
  Index rest = (Index)blockIdx.x * kThreads + threadIdx.x;
  if (rest >= size.total) return;
  const Index i = next_coordinate(rest, size.inner_extent), row = next_coordinate(rest, size.range);
  Compute<T> sum = 0;
  for (Index n = 0; n < size.count; ++n) {
    const Index place = (rest * size.count + n) * size.inner + i;
    const Id id = __ldg(ids + place);
    if (row == 0 && !is_legal(id, size.range_wide)) note_fault(fault, place, id);
    if ((long long)id != row) continue;
    sum += load_one<true>(updates + (rest * size.from_outer + n * size.from_middle + i));
  }
  store_sum<false>(out + (rest * size.to_outer + row * size.to_middle + i), sum);
}

// Many: a CTA clears 32 columns, one thread per column adds its updates to them, and half floats, which are added in
// f32, are rounded at the end.
template <class Id, class T, class Total>
PD_DEVICE void scatter_columns(const Id* ids, const T* updates, T* out, void* workspace, unsigned long long* fault,
                               const Sizes& size) {
  const int lane = threadIdx.x % 32, walker = threadIdx.x / 32;
  Index rest = blockIdx.x;
  const Index i = next_coordinate(rest, size.tiles) * 32 + lane;
  T* const to = out + (rest * size.to_outer + i);
  Total* const totals = kSame<T, Total> ? (Total*)to : (Total*)workspace + (rest * size.range_extent * size.inner + i);
  const Index pitch = kSame<T, Total> ? size.to_middle : size.inner;
  const bool ok = i < size.inner;
  for (Index row = walker; ok && row < size.range_extent; row += kThreads / 32) {
    store_sum<false>(totals + row * pitch, Compute<Total>(0));
  }
  __syncthreads();
  if (ok && walker == 0) {
    for (Index n = 0; n < size.count; n += kInFlight) {
      long long row[kInFlight];
      Compute<T> update[kInFlight];
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        const Index place = (rest * size.count + n + u) * size.inner + i;
        row[u] = n + u < size.count ? (long long)__ldg(ids + place) : -1;
        if (n + u < size.count && !is_legal(row[u], size.range_wide)) note_fault(fault, place, row[u]);
        if (n + u < size.count) update[u] = load_one<true>(updates + (rest * size.from_outer + (n + u) * size.from_middle + i));
      }
#pragma unroll
      for (int u = 0; u < kInFlight; ++u) {
        if (is_legal(row[u], size.range_wide)) store_sum<true>(totals + (Index)row[u] * pitch, update[u]);
      }
    }
  }
  if constexpr (!kSame<T, Total>) {
    __syncthreads();
    for (Index row = walker; ok && row < size.range_extent; row += kThreads / 32) {
      store_sum<false>(to + row * size.to_middle, load_one<false>(totals + row * pitch));
    }
  }
}
)cuda";

// The sizes that all kernels here have, and the text around them.
class IndexText {
 public:
  IndexText(const IndexShape& shape, std::int64_t from_rows, std::int64_t to_rows) : shape_(shape) {
    const auto reach = [&](std::int64_t outer, std::int64_t rows, std::int64_t middle) {
      return shape.outer * std::abs(outer) + rows * std::abs(middle) + shape.inner;
    };
    parts_.is_wide = needs_wide_index(std::max(
        {reach(shape.from_outer, from_rows, shape.from_middle), reach(shape.to_outer, to_rows, shape.to_middle),
         shape.outer * shape.count * shape.inner, shape.outer * shape.range * shape.inner}));
    parts_.threads = kThreads;
    parts_.constants = fmt::format("constexpr int kInFlight = {};\n{}", kInFlight, kFaultText);
  }

  void number(const std::string& name, std::int64_t value) { parts_.sizes.number(name, value); }
  void divisor(const std::string& name, std::int64_t value) { parts_.sizes.divisor(name, value); }
  void strides(std::int64_t unit) {
    number("from_outer", shape_.from_outer / unit), number("from_middle", shape_.from_middle / unit);
    number("to_outer", shape_.to_outer / unit), number("to_middle", shape_.to_middle / unit);
    range();
  }
  void range() { parts_.sizes.wide_number("range", shape_.range); }

  GroupKernelPlan finish(const std::string& what, std::string_view text, std::vector<std::string> operands,
                         const std::string& call, std::int64_t ctas) {
    parts_.name = what;
    parts_.functions = text;
    parts_.operands = std::move(operands);
    parts_.call = call;
    parts_.ctas = ctas;
    return make_text_kernel(parts_);
  }

 private:
  const IndexShape& shape_;
  TextParts parts_;
};

std::string_view piece_type(std::int64_t bytes) {
  return bytes == 16  ? "uint4"
         : bytes == 8 ? "uint2"
         : bytes == 4 ? "unsigned"
         : bytes == 2 ? "unsigned short"
                      : "unsigned char";
}

std::vector<std::string> gather_operands(std::string_view piece, DType index) {
  return {fmt::format("const {}* a", piece), input_parameter(index, "ids"), fmt::format("{}* out", piece)};
}
std::vector<std::string> scatter_operands(const IndexShape& shape) {
  return {input_parameter(shape.index_dtype, "ids"), input_parameter(shape.dtype, "updates"),
          output_parameter(shape.dtype, "out")};
}

/// The most elements, at most 16 bytes of them, in which rows of both operands can be moved.
std::int64_t vector_of(const IndexShape& shape) {
  const std::int64_t size = size_bytes(shape.dtype);
  std::int64_t vector = 16 / size;
  const auto fits = [&](std::int64_t v) {
    for (const std::int64_t n : {shape.inner, shape.from_outer, shape.from_middle, shape.to_outer, shape.to_middle}) {
      if (n % v != 0) return false;
    }
    return shape.from_alignment % (v * size) == 0 && shape.to_alignment % (v * size) == 0;
  };
  while (vector > 1 && !fits(vector)) vector /= 2;
  return vector;
}

// Where the result of a scatter is empty, its indices are still looked at.
GroupKernelPlan plan_check(const IndexShape& shape, std::int64_t count) {
  if (count == 0) return {};
  IndexText text(shape, shape.count, shape.range);
  text.number("count", count);
  text.range();
  return text.finish("check_indices", kCheckText, scatter_operands(shape), "check_indices(ids, fault, size)",
                     parts_of(count, kThreads));
}

}  // namespace

GroupKernelPlan plan_gather_rows(const IndexShape& shape) {
  const std::int64_t vector = vector_of(shape), pieces = shape.inner / vector;
  const std::int64_t total = shape.outer * shape.count * pieces;
  if (total == 0) return {};
  IndexText text(shape, shape.range, shape.count);
  text.number("total", total);
  text.divisor("inner", pieces), text.divisor("count", shape.count);
  text.strides(vector);
  const std::string_view piece = piece_type(vector * size_bytes(shape.dtype));
  return text.finish("gather_rows", kGatherText, gather_operands(piece, shape.index_dtype),
                     "gather_rows(a, ids, out, fault, size)", parts_of(total, kThreads * kInFlight));
}

GroupKernelPlan plan_gather_elements(const IndexShape& shape) {
  const std::int64_t total = shape.outer * shape.count * shape.inner;
  if (total == 0) return {};
  IndexText text(shape, shape.range, shape.count);
  text.number("total", total);
  text.divisor("inner", shape.inner), text.divisor("count", shape.count);
  text.strides(1);
  const std::string_view piece = piece_type(size_bytes(shape.dtype));
  return text.finish("gather_elements", kGatherText, gather_operands(piece, shape.index_dtype),
                     "gather_elements(a, ids, out, fault, size)", parts_of(total, kThreads * kInFlight));
}

GroupKernelPlan plan_scatter_rows(const IndexShape& shape) {
  constexpr std::int64_t kRowsOfCta = 32;
  if (shape.outer * shape.range * shape.inner == 0) return plan_check(shape, shape.count);
  IndexText text(shape, shape.count, shape.range);
  const std::int64_t vector = vector_of(shape), tiles = parts_of(shape.inner, 32 * vector);
  const std::int64_t blocks = parts_of(shape.range, kRowsOfCta);
  text.divisor("tiles", tiles), text.divisor("blocks", blocks);
  text.number("inner", shape.inner), text.number("count", shape.count);
  text.strides(1);
  return text.finish("scatter_rows", kScatterRowsText, scatter_operands(shape),
                     fmt::format("scatter_rows<{}, {}, {}>(ids, updates, out, fault, size)",
                                 stored_type(shape.index_dtype), stored_type(shape.dtype), vector),
                     tiles * blocks * shape.outer);
}

GroupKernelPlan plan_scatter_elements(const IndexShape& shape) {
  const std::int64_t total = shape.outer * shape.range * shape.inner;
  if (total == 0) return plan_check(shape, shape.outer * shape.count * shape.inner);
  IndexText text(shape, shape.count, shape.range);
  const std::string types = fmt::format("{}, {}", stored_type(shape.index_dtype), stored_type(shape.dtype));
  text.number("total", total);
  text.number("inner", shape.inner), text.number("count", shape.count), text.number("range_extent", shape.range);
  text.divisor("inner_extent", shape.inner), text.divisor("range", shape.range);
  const std::int64_t tiles = parts_of(shape.inner, 32);
  text.divisor("tiles", tiles);
  text.strides(1);
  if (shape.count <= kMaxScan) {
    return text.finish("scatter_elements", kScatterElementsText, scatter_operands(shape),
                       fmt::format("scatter_scan<{}>(ids, updates, out, fault, size)", types),
                       parts_of(total, kThreads));
  }
  const bool is_half = shape.dtype == DType::f16 || shape.dtype == DType::bf16;
  GroupKernelPlan plan = text.finish("scatter_elements", kScatterElementsText, scatter_operands(shape),
                                     fmt::format("scatter_columns<{}, {}>(ids, updates, out, workspace, fault, size)",
                                                 types, is_half ? "float" : std::string(stored_type(shape.dtype))),
                                     tiles * shape.outer);
  if (is_half) plan.workspace_bytes = total * 4;
  return plan;
}

}  // namespace paoding::gpu
