// SPDX-License-Identifier: Apache-2.0
#include "gpu/kernels/index_text.h"

#include <algorithm>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/codegen/text_kernel.h"
#include "ops/index/listing.h"

namespace paoding::gpu {
namespace {

constexpr int kIndexThreads = 256;
constexpr int kInFlight = 4;           // elements or pieces per thread
constexpr std::int64_t kMaxScan = 64;  // indices per place that every element of the result looks through

// No atomics on elements: a CTA owns rows of the result. In scatter_listed they are as many as make a CTA for each SM,
// and it looks through all indices for its own once; in scatter_rows 32, of which a warp has 4, and its warps look
// through all indices, a segment each, and list the positions that are its own, in order; in scatter_sorted it finds
// them side by side, and rows with many of them are shared out.
// The sizes that all kernels here have, and the source around them.
class IndexText {
 public:
  IndexText(const IndexShape& shape, std::int64_t from_rows, std::int64_t to_rows) : shape_(shape) {
    const auto reach = [&](std::int64_t outer, std::int64_t rows, std::int64_t middle) {
      return shape.outer * std::abs(outer) + rows * std::abs(middle) + shape.inner;
    };
    parts_.is_wide = needs_wide_index(std::max(
        {reach(shape.from_outer, from_rows, shape.from_middle), reach(shape.to_outer, to_rows, shape.to_middle),
         shape.outer * shape.count * shape.inner, shape.outer * shape.range * shape.inner}));
    parts_.threads = kIndexThreads;
    parts_.constants = fmt::format("constexpr int kInFlight = {};\n{}", kInFlight, k_index_fault_cu);
  }

  void threads(int threads) { parts_.threads = threads; }
  void number(const std::string& name, std::int64_t value) { parts_.sizes.number(name, value); }
  void divisor(const std::string& name, std::int64_t value) { parts_.sizes.divisor(name, value); }
  void strides(std::int64_t unit) {
    number("from_outer", shape_.from_outer / unit), number("from_middle", shape_.from_middle / unit);
    number("to_outer", shape_.to_outer / unit), number("to_middle", shape_.to_middle / unit);
    range();
  }
  void wide_number(const std::string& name, std::int64_t value) { parts_.sizes.wide_number(name, value); }
  void range() { parts_.sizes.wide_number("range", shape_.range); }

  TextLaunch finish(const std::string& what, std::string_view text, std::vector<std::string> operands,
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
TextLaunch plan_check(const IndexShape& shape, std::int64_t count) {
  if (count == 0) return {};
  IndexText text(shape, shape.count, shape.range);
  text.number("count", count);
  text.range();
  return text.finish("check_indices", k_index_check_cu, scatter_operands(shape),
                     "check_indices(ids, scratch.fault, size)", ceil_div(count, kIndexThreads));
}

}  // namespace

TextLaunch plan_gather_rows(const IndexShape& shape) {
  const std::int64_t vector = vector_of(shape), pieces = shape.inner / vector;
  const std::int64_t total = shape.outer * shape.count * pieces;
  if (total == 0) return {};
  IndexText text(shape, shape.range, shape.count);
  text.number("total", total);
  text.divisor("inner", pieces), text.divisor("count", shape.count);
  text.strides(vector);
  const std::string_view piece = piece_type(vector * size_bytes(shape.dtype));
  return text.finish("gather_rows", k_gather_cu, gather_operands(piece, shape.index_dtype),
                     "gather_rows(a, ids, out, scratch.fault, size)", ceil_div(total, kIndexThreads * kInFlight));
}

TextLaunch plan_gather_elements(const IndexShape& shape) {
  const std::int64_t total = shape.outer * shape.count * shape.inner;
  if (total == 0) return {};
  IndexText text(shape, shape.range, shape.count);
  text.number("total", total);
  text.divisor("inner", shape.inner), text.divisor("count", shape.count);
  text.strides(1);
  const std::string_view piece = piece_type(size_bytes(shape.dtype));
  return text.finish("gather_elements", k_gather_cu, gather_operands(piece, shape.index_dtype),
                     "gather_elements(a, ids, out, scratch.fault, size)", ceil_div(total, kIndexThreads * kInFlight));
}

namespace {

constexpr std::int64_t kRowsOfCta = 32;

// Plans the kernel that adds up rows: CTAs of 32 rows, or of the other blocks, by as many columns as a warp moves at
// once.
TextLaunch plan_row_sums(IndexText& made, const IndexShape& shape, const std::string& what, std::string_view text,
                         std::vector<std::string> operands, std::int64_t other_blocks, const std::string& arguments) {
  const std::int64_t vector = vector_of(shape), tiles = ceil_div(shape.inner, 32 * vector);
  const std::int64_t blocks = ceil_div(shape.range, kRowsOfCta) + other_blocks, ctas = tiles * blocks * shape.outer;
  made.divisor("tiles", tiles), made.divisor("blocks", blocks);
  made.wide_number("padding", shape.padding);
  made.number("inner", shape.inner), made.number("count", shape.count), made.number("ctas", ctas);
  made.strides(1);
  const std::string call = fmt::format("{}<{}, {}, {}>({}, size)", what, stored_type(shape.index_dtype),
                                       stored_type(shape.dtype), vector, arguments);
  return made.finish(what, text, std::move(operands), call, ctas);
}

bool is_empty(const IndexShape& shape) { return shape.outer * shape.range * shape.inner == 0; }

constexpr int kListThreads = 1024;

TextLaunch plan_scatter_listed(const IndexShape& shape) {
  const std::int64_t vector = vector_of(shape), tiles = ceil_div(shape.inner, 32 * vector);
  const std::int64_t classes = row_classes(shape.range, tiles * shape.outer, shape.sm_count),
                     ctas = tiles * classes * shape.outer;
  const std::int64_t capacity = std::max<std::int64_t>(pow2_ceil(shape.count), 4);
  IndexText text(shape, shape.count, shape.range);
  text.threads(kListThreads);
  text.divisor("tiles", tiles), text.divisor("classes", classes);
  text.wide_number("padding", shape.padding);
  text.number("inner", shape.inner), text.number("count", shape.count), text.number("capacity", capacity);
  text.strides(1);
  const std::string call = fmt::format("scatter_listed<{}, {}, {}>(ids, updates, out, scratch.fault, size)",
                                       stored_type(shape.index_dtype), stored_type(shape.dtype), vector);
  TextLaunch plan = text.finish("scatter_listed", k_scatter_listed_cu, scatter_operands(shape), call, ctas);
  const std::int64_t sum_bytes = std::max<std::int64_t>(size_bytes(shape.dtype), 4);
  plan.shared_bytes = static_cast<unsigned>(4 * (kListThreads / 32 + capacity) + sum_bytes * vector * kListThreads);
  return plan;
}

bool lists_indices(const IndexShape& shape) {
  const std::int64_t tiles = ceil_div(shape.inner, 32 * vector_of(shape));
  return may_list(shape.count, shape.range, tiles * shape.outer, shape.sm_count);
}

}  // namespace

TextLaunch plan_scatter_rows(const IndexShape& shape) {
  if (is_empty(shape)) return plan_check(shape, shape.count);
  if (lists_indices(shape)) return plan_scatter_listed(shape);
  IndexText text(shape, shape.count, shape.range);
  return plan_row_sums(text, shape, "scatter_rows", k_scatter_rows_cu, scatter_operands(shape), 0,
                       "ids, updates, out, scratch.fault");
}

std::vector<TextLaunch> plan_scatter_sorted(const IndexShape& shape) {
  PD_ASSERT(!is_empty(shape), "nothing to sort indices for");
  const std::vector<std::string> operands = {
      input_parameter(shape.index_dtype, "ids"), input_parameter(shape.index_dtype, "sorted"),
      input_parameter(DType::i64, "places"), input_parameter(shape.dtype, "updates"),
      output_parameter(shape.dtype, "out")};
  constexpr std::int64_t kPart = 32,
                         kPartsOfCta = kIndexThreads / 32;  // of the sorted list, as scatter_sorted.cu has them
  const std::int64_t columns = 32 * vector_of(shape), tiles = ceil_div(shape.inner, columns);
  const std::int64_t parts = ceil_div(shape.count, kPart), part_blocks = ceil_div(parts, kPartsOfCta);
  const std::int64_t tickets = shape.outer * parts * tiles;
  const std::int64_t starts = tickets * 2 * columns * std::max<std::int64_t>(size_bytes(shape.dtype), 4);

  IndexText rows(shape, shape.count, shape.range);
  const std::int64_t ctas = ceil_div(std::max(shape.range + 1, shape.count), kIndexThreads);
  rows.number("count", shape.count), rows.number("ctas", ctas), rows.wide_number("starts", starts);
  rows.range();
  TextLaunch find = rows.finish(
      "find_rows", k_row_starts_cu, operands,
      "find_rows(sorted, places, (Index*)((char*)scratch.workspace + size.starts_wide), scratch.fault, size)", ctas);

  IndexText text(shape, shape.count, shape.range);
  text.number("parts", parts), text.number("part_blocks", part_blocks), text.number("tile_count", tiles);
  text.wide_number("starts", starts);
  TextLaunch add = plan_row_sums(text, shape, "scatter_sorted", k_scatter_sorted_cu, operands, part_blocks,
                                 "sorted, places, updates, out, scratch");
  add.ticket_count = tickets;
  add.workspace_bytes = find.workspace_bytes = starts + (shape.range + 1) * 8;
  return {std::move(find), std::move(add)};
}

TextLaunch plan_scatter_elements(const IndexShape& shape) {
  const std::int64_t total = shape.outer * shape.range * shape.inner;
  if (is_empty(shape)) return plan_check(shape, shape.outer * shape.count * shape.inner);
  IndexText text(shape, shape.count, shape.range);
  const std::string types = fmt::format("{}, {}", stored_type(shape.index_dtype), stored_type(shape.dtype));
  text.number("total", total);
  text.number("inner", shape.inner), text.number("count", shape.count), text.number("range_extent", shape.range);
  text.divisor("inner_extent", shape.inner), text.divisor("range", shape.range);
  const std::int64_t tiles = ceil_div(shape.inner, 32);
  text.divisor("tiles", tiles);
  text.strides(1);
  if (shape.count <= kMaxScan) {
    return text.finish("scatter_elements", k_scatter_elements_cu, scatter_operands(shape),
                       fmt::format("scatter_scan<{}>(ids, updates, out, scratch.fault, size)", types),
                       ceil_div(total, kIndexThreads));
  }
  const bool is_half = shape.dtype == DType::f16 || shape.dtype == DType::bf16;
  TextLaunch plan =
      text.finish("scatter_elements", k_scatter_elements_cu, scatter_operands(shape),
                  fmt::format("scatter_columns<{}, {}>(ids, updates, out, scratch.workspace, scratch.fault, size)",
                              types, is_half ? "float" : std::string(stored_type(shape.dtype))),
                  tiles * shape.outer);
  if (is_half) plan.workspace_bytes = total * 4;
  return plan;
}

TextLaunch plan_check_bounds(DType dtype, std::int64_t count, std::int64_t least, std::int64_t most) {
  if (count == 0) return {};
  IndexShape shape;
  shape.index_dtype = dtype, shape.count = count;
  IndexText text(shape, count, count);
  text.number("count", count);
  text.wide_number("least", least), text.wide_number("most", most);
  return text.finish("check_bounds", k_index_bounds_cu, {input_parameter(dtype, "ids"), output_parameter(dtype, "out")},
                     "check_bounds(ids, out, scratch.fault, size)", ceil_div(count, kIndexThreads));
}

}  // namespace paoding::gpu
