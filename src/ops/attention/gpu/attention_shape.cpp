// SPDX-License-Identifier: Apache-2.0
#include "ops/attention/gpu/attention_shape.h"

#include <algorithm>
#include <bit>
#include <cmath>

#include "base/check.h"
#include "base/rounding.h"
#include "cuda_text.h"
#include "gpu/kernels/tile_products.h"

namespace paoding::hopper {
namespace {

constexpr std::int64_t kPiece = 8;  // elements of 16 bytes
constexpr std::int64_t kMostWidth = 128, kTmaColumns = 64;
constexpr std::int64_t kMostRows = std::int64_t{1} << 28;    // places of rows and offsets stay within 31 bits
constexpr std::int64_t kMostStride = std::int64_t{1} << 31;  // of a row, times rows of an item

std::size_t lse_place(const AttentionShape& shape) {
  return shape.is_gradient ? std::size_t{kLse} : shape.call->inputs.size() + 1;
}

// Why TMA, or stores of 16 bytes, do not take an operand.
std::string layout_refusal(const AttentionShape& shape, std::size_t operand, const char* name) {
  const std::optional<Rows> rows = rows_of(shape.layout(operand));
  if (!rows) return fmt::format("{} does not lie in rows of heads whose leading axes are one", name);
  if (shape.call->alignments[operand] % 16 != 0 || (rows->row | rows->head | rows->batch) % kPiece != 0) {
    return fmt::format("{} does not lie in whole pieces of 16 bytes", name);
  }
  if (std::min({rows->row, rows->head, rows->batch}) <= 0 || std::max(rows->row, rows->head) >= kMostStride) {
    return fmt::format("rows of {} lie too far apart, or on each other", name);
  }
  return "";
}

}  // namespace

std::optional<Rows> rows_of(const Layout& layout) {
  const Shape& shape = layout.type.shape;
  const int rank = shape.rank();
  const auto stride = [&](int axis) { return layout.strides[static_cast<std::size_t>(axis)]; };
  if (shape[rank - 1] > 1 && stride(rank - 1) != 1) return {};
  // An axis of one may have any stride.
  const std::int64_t width = round_up(shape[rank - 1], kPiece);
  Rows rows{shape[rank - 2] > 1 ? stride(rank - 2) : width, width, width};
  if (rank > 2 && shape[rank - 3] > 1) rows.head = stride(rank - 3);
  std::int64_t extent = 1;
  for (int axis = rank - 4; axis >= 0; --axis) {
    if (shape[axis] == 1) continue;
    if (extent == 1) {
      rows.batch = stride(axis);
    } else if (stride(axis) != rows.batch * extent) {
      return {};
    }
    extent *= shape[axis];
  }
  return rows;
}

std::int64_t AttentionShape::padded_width() const {
  return round_up(std::max(form.width, form.value_width), kTmaColumns);
}
std::int64_t AttentionShape::seen_keys() const {
  return form.queries > 0 ? std::max<std::int64_t>(form.end_key(form.queries - 1), 0) : form.keys;
}

gpu::TensorMap AttentionShape::map(std::size_t operand, std::int64_t rows) const {
  const Layout& lies = layout(operand);
  const Shape& shape = lies.type.shape;
  const int rank = shape.rank();
  const Rows strides = *rows_of(lies);
  return {.operand = static_cast<int>(operand),
          .dtype = lies.type.dtype,
          .extents = {shape[rank - 1], shape[rank - 2], rank > 2 ? shape[rank - 3] : 1, form.batch},
          .strides = {strides.row, strides.head, strides.batch},
          .tile_rows = static_cast<int>(rows),
          .tile_columns = static_cast<int>(rows),
          .windows = {}};
}

gpu::TextParts AttentionShape::parts(const char* name, std::int64_t threads, std::int64_t stages) const {
  gpu::TextParts parts;
  parts.name = name;
  parts.threads = static_cast<int>(threads);
  parts.resident_ctas = 1;
  parts.constants = fmt::format(
      "using Stored = {};\nconstexpr int kStages = {}, kWidth = {};\n"
      "constexpr bool kHasHigh = {}, kHasLow = {}, kHasLengths = {}, kClears = {};\n"
      "constexpr int kRegisters = {}, kFewRegisters = {};\n",
      gpu::stored_type(form.dtype), stages, padded_width(), form.hides_later(), form.hides_earlier(), has_lengths(),
      has_lengths() || seen_keys() < form.keys, groups == 3 ? 160 : 232, groups == 3 ? 32 : 40);
  parts.constants += fmt::format("constexpr int kGroups = {};\n", groups);
  parts.functions = std::string(k_exchange_cu) + k_tensor_cores_cu + k_tma_stages_cu + gpu::tile_text();
  auto& s = parts.sizes;
  s.number("queries", form.queries), s.number("keys", form.keys), s.number("seen_keys", seen_keys());
  s.number("high", form.offset + form.right), s.number("low", form.offset - form.left);
  s.number("heads", form.heads), s.number("group", form.group()), s.divisor("queries_of_key", form.group());
  s.number("key_width", form.width), s.number("value_width", form.value_width);
  s.number("scale", std::bit_cast<std::int32_t>(static_cast<float>(form.scale)));
  return parts;
}

void AttentionShape::add_items(gpu::TextParts* parts, std::int64_t item_heads, std::int64_t item_rows,
                               std::int64_t block, std::int64_t head_bytes, bool is_ragged_first) const {
  constexpr std::int64_t kKept = 32 << 20;  // of L2
  const std::int64_t all_heads = form.batch * item_heads, blocks = ceil_div(item_rows, block);
  auto& s = parts->sizes;
  s.number("items", all_heads * blocks), s.number("blocks", blocks), s.number("all_heads", all_heads);
  s.divisor("item_heads", item_heads), s.number("block_rows", block);
  const std::int64_t beyond = blocks * block - item_rows;
  s.number("rows_ahead", is_ragged_first ? beyond / kOfGroup * kOfGroup : 0);
  s.number("section_heads", std::clamp<std::int64_t>(kKept / std::max<std::int64_t>(head_bytes, 1), 1, all_heads));
  parts->ctas = std::min<std::int64_t>(all_heads * blocks, call->target->sm_count);
}

void AttentionShape::add_strides(gpu::TextParts* parts, std::size_t operand, const std::string& name) const {
  const Layout& lies = layout(operand);
  const std::optional<Rows> rows = lies.type.shape.rank() < 2 ? std::nullopt : rows_of(lies);
  auto& s = parts->sizes;
  s.number(name + "_row", rows ? rows->row : 0);
  s.wide_number(name + "_head", rows ? rows->head : 0), s.wide_number(name + "_batch", rows ? rows->batch : 0);
}

void AttentionShape::add_lengths(gpu::TextParts* parts) const {
  std::int64_t stride = 0;
  if (has_lengths()) {
    const Layout& lengths = layout(static_cast<std::size_t>(form.lengths));
    // One axis of batch rows in front of one of heads, or one length for all: others were refused.
    if (lengths.type.shape.elements() > 1) stride = lengths.strides[0];
    parts->operands.push_back(gpu::input_parameter(lengths.type.dtype, "lengths"));
  }
  parts->sizes.number("lengths_batch", stride);
}

void AttentionShape::add_dropout(gpu::TextParts* parts) const {
  parts->constants += fmt::format("constexpr bool kHasDropout = {};\n", has_dropout());
  for (const char* name : {"first", "run", "seed"}) {
    if (has_dropout()) parts->operands.push_back(gpu::input_parameter(DType::i64, name));
  }
  auto& s = parts->sizes;
  // A number u = n 2^-24 of random_uniform() is below the probability where n < dropped.
  s.number("dropped",
           static_cast<std::int64_t>(std::ceil(static_cast<double>(static_cast<float>(form.dropout)) * 0x1p24)));
  s.number("kept_factor", std::bit_cast<std::int32_t>(static_cast<float>(1 / (1 - form.dropout))));
  s.wide_number("stream", form.stream << 32);
}

void AttentionShape::add_forward_operands(gpu::TextParts* parts) const {
  for (const char* name : {"q", "k", "v"}) parts->operands.push_back(gpu::input_parameter(form.dtype, name));
  add_lengths(parts), add_dropout(parts);
  parts->operands.push_back(gpu::output_parameter(form.dtype, "out"));
  parts->operands.push_back(gpu::output_parameter(DType::f32, "logs"));
  parts->constants += fmt::format("constexpr bool kHasLogs = {};\n", is_wanted(1));
  parts->maps = {"queries", "keys", "values"};
  parts->call =
      fmt::format("attend(queries, keys, values, {}, {}, out, logs, size)", lengths_argument(), dropout_argument());
}

void AttentionShape::add_gradient_operands(gpu::TextParts* parts) const {
  for (const char* name : {"q", "k", "v", "result", "result_grad"}) {
    parts->operands.push_back(gpu::input_parameter(form.dtype, name));
  }
  parts->operands.push_back(gpu::input_parameter(DType::f32, "logs"));
  if (form.dlse >= 0) parts->operands.push_back(gpu::input_parameter(DType::f32, "log_grads"));
  add_lengths(parts), add_dropout(parts);
  for (const char* name : {"query_grad", "key_grad", "value_grad"}) {
    parts->operands.push_back(gpu::output_parameter(form.dtype, name));
  }
  parts->constants +=
      fmt::format("constexpr bool kHasLogGrads = {}, kHasQueryGrad = {}, kHasKeyGrad = {}, kHasValueGrad = {};\n",
                  form.dlse >= 0, is_wanted(0), is_wanted(1), is_wanted(2));
  parts->maps = {"queries", "result_grads", "keys", "values"};
}

std::string refusal(const AttentionShape& shape) {
  const AttentionForm& form = shape.form;
  const KernelCall& call = *shape.call;
  if (form.dtype != DType::bf16 && form.dtype != DType::f16) return "not 16 bits";
  if (call.target->major != 9) return "written for the tensor cores of compute capability 9";
  if (form.batch * form.heads * form.queries * form.keys == 0) return "an extent is 0";
  if (form.bias >= 0) return "a bias";
  if (form.mask >= 0) return "a mask of single keys";
  if (form.slopes >= 0) return "slopes";
  if (!(form.scale > 0)) return fmt::format("a scale of {}", form.scale);
  for (const auto& [width, name] : {std::pair{form.width, "queries"}, {form.value_width, "values"}}) {
    if (width > kMostWidth || width % kPiece != 0 || width == 0) {
      return fmt::format("{} of width {}, needed are multiples of {} up to {}", name, width, kPiece, kMostWidth);
    }
  }
  if (std::max({form.queries, form.keys, shape.all_heads() * ceil_div(form.queries, 64)}) >= kMostRows) {
    return "too many rows";
  }
  if (form.queries > 0 && form.first_key(0) > 0) return "keys in front of the first that a query sees";
  if (form.dlse >= 0 && call.inputs[static_cast<std::size_t>(form.dlse)].type.dtype != DType::f32) {
    return "a gradient of log-sum-exp that is not f32";
  }
  if (form.lengths >= 0) {
    const Shape& lengths = call.inputs[static_cast<std::size_t>(form.lengths)].type.shape;
    const int leading = call.inputs[kQ].type.shape.rank() - 2;
    if (lengths.elements() > 1 && (lengths.rank() != leading || leading != 2 || lengths[1] != 1)) {
      return "lengths that are not one for each row of one batch axis";
    }
  }
  for (const auto& [operand, name] : {std::pair{kQ, "q"}, {kK, "k"}, {kV, "v"}}) {
    if (std::string why = layout_refusal(shape, operand, name); !why.empty()) return why;
  }
  for (std::size_t i = 0; i < (shape.is_gradient ? std::size_t{3} : std::size_t{1}); ++i) {
    if (!shape.is_wanted(i)) continue;
    if (std::string why = layout_refusal(shape, call.inputs.size() + i, "a result"); !why.empty()) return why;
  }
  if (shape.is_gradient) {
    for (const auto& [operand, name] : {std::pair{kResult, "the result"}, {kDResult, "its gradient"}}) {
      if (std::string why = layout_refusal(shape, operand, name); !why.empty()) return why;
    }
    if (form.dlse >= 0 && !call.inputs[static_cast<std::size_t>(form.dlse)].is_dense()) return "dlse is not dense";
  } else if (!shape.is_wanted(0)) {
    return "nobody reads the result";
  }
  const Layout& logs = shape.layout(lse_place(shape));
  if (logs.type.shape.elements() > 0 && (logs.type.dtype != DType::f32 || !logs.is_dense())) {
    return "log-sum-exp is not dense f32";
  }
  return "";
}

}  // namespace paoding::hopper
