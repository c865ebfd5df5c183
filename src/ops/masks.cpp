// SPDX-License-Identifier: Apache-2.0
// one_hot, sequence_mask, causal_mask: comparisons with positions.
#include "base/check.h"
#include "base/one_line.h"
#include "ops/axes.h"
#include "ops/composing.h"
#include "ops/families.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

void check_integers(const OpCall& call, const char* name, const Value& value) {
  if (is_integer(value.dtype())) return;
  call.fail(ErrorKind::dtype, fmt::format("{} are {}; they must be integers", name, to_string(value.dtype())));
}

std::int64_t checked_extent(const OpCall& call, const char* attr) {
  const std::int64_t extent = call.attrs.get_int(attr);
  if (extent < 0) call.fail(ErrorKind::shape, fmt::format("{} = {}", attr, extent));
  return extent;
}

// Positions 0 .. extent - 1 along `axis`, to be compared with `numbers`, which has extent 1 there; both as i32 where
// that holds every number of both.
struct Compared {
  Value positions, numbers;
};
Compared compared(const Value& numbers, int axis, std::int64_t extent) {
  const bool is_narrow = numbers.dtype() != i64 && extent <= std::int64_t{1} << 31;
  const DType dtype = is_narrow ? i32 : i64;
  Ints dims(static_cast<std::size_t>(numbers.shape().rank() - axis), 1);
  dims[0] = extent;
  const Shape shape{std::span<const std::int64_t>(dims)};
  return {iota(numbers.graph(), shape, 0, dtype), cast(numbers, dtype)};
}

Values compose_one_hot(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call = composed_call("one_hot", in, attrs);
  check_integers(call, "ids", in[0]);
  const std::int64_t depth = checked_extent(call, "depth");
  const Shape& shape = in[0].shape();
  if (shape.rank() == Shape::kMaxRank) {
    call.fail(ErrorKind::shape, fmt::format("ids have shape {}: no axis can be added", to_string(shape)));
  }
  const int axis = plain_axis(call, attrs.get_int("axis"), shape.rank() + 1);
  const DType dtype = attrs.get_dtype("dtype");
  for (const char* name : {"on", "off"}) check_number(call, name, dtype);
  const auto [positions, ids] = compared(reshape(in[0], shape.with_inserted(axis, 1)), axis, depth);
  const auto number = [&](const char* name) { return full(in[0].graph(), {}, attrs.get_float(name), dtype); };
  return {select(equal(positions, ids), number("on"), number("off"))};
}

Values compose_sequence_mask(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call = composed_call("sequence_mask", in, attrs);
  check_integers(call, "lengths", in[0]);
  const std::int64_t extent = checked_extent(call, "max_length");
  const Shape& shape = in[0].shape();
  if (shape.rank() == Shape::kMaxRank) {
    call.fail(ErrorKind::shape, fmt::format("lengths have shape {}: no axis can be added", to_string(shape)));
  }
  const auto [positions, lengths] =
      compared(reshape(in[0], shape.with_inserted(shape.rank(), 1)), shape.rank(), extent);
  return {less(positions, lengths)};
}

}  // namespace

void register_mask_ops() {
  // Integers of the cases are 0 to 4.
  register_op({
      .name = "one_hot",
      .summary = "on where the position along a new axis is the id, else off",
      .kind = OpKind::composed,
      .inputs = {"ids"},
      .attrs = {{.name = "depth", .example = std::int64_t{0}, .required = true, .doc = "extent of the new axis"},
                {.name = "axis", .example = std::int64_t{-1}, .doc = "of the result; negative counts from its end"},
                {.name = "dtype", .example = f32, .doc = "the result's dtype"},
                {.name = "on", .example = 1.0, .doc = "at the id"},
                {.name = "off", .example = 0.0, .doc = "elsewhere"}},
      .compose = compose_one_hot,
      .cases = {{.shapes = {{6}}, .attrs = {{"depth", std::int64_t{5}}}, .dtypes = {i64}},
                {.shapes = {{3, 4}},
                 .attrs = {{"depth", std::int64_t{3}}, {"axis", std::int64_t{1}}, {"on", 0.75}, {"off", -0.5}},
                 .dtypes = {i32}},  // ids of 3 and 4 are off everywhere
                {.shapes = {{2, 3}},
                 .attrs = {{"depth", std::int64_t{7}}, {"axis", std::int64_t{-3}}, {"dtype", i64}, {"on", 3.0}},
                 .dtypes = {u8}},
                {.shapes = {{4}}, .attrs = {{"depth", std::int64_t{5}}, {"dtype", boolean}}, .dtypes = {i64}},
                {.shapes = {{4}}, .attrs = {{"depth", std::int64_t{5}}, {"dtype", bf16}}, .dtypes = {i64}},
                {.shapes = {{4}}, .attrs = {{"depth", std::int64_t{5}}, {"dtype", f16}}, .dtypes = {i32}},
                {.shapes = {{}}, .attrs = {{"depth", std::int64_t{5}}}, .dtypes = {i32}},
                {.shapes = {{0}}, .attrs = {{"depth", std::int64_t{5}}}, .dtypes = {i32}},
                {.shapes = {{4}}, .attrs = {{"depth", std::int64_t{0}}}, .dtypes = {i32}},
                {.shapes = {{4}}, .attrs = {{"depth", std::int64_t{5}}}, .error = "ids are f32"},
                {.shapes = {{4}}, .attrs = {{"depth", std::int64_t{-1}}}, .dtypes = {i32}, .error = "depth = -1"},
                {.shapes = {{4}},
                 .attrs = {{"depth", std::int64_t{5}}, {"axis", std::int64_t{2}}},
                 .dtypes = {i32},
                 .error = "axis 2 of a value of rank 2"},
                {.shapes = {{4}},
                 .attrs = {{"depth", std::int64_t{5}}, {"on", 300.0}, {"dtype", u8}},
                 .dtypes = {i32},
                 .error = "on = 300, which u8 cannot hold"},
                {.shapes = {{4}},
                 .attrs = {{"depth", std::int64_t{5}}, {"off", -0.5}, {"dtype", i64}},
                 .dtypes = {i32},
                 .error = "off = -0.5, which i64 cannot hold"},
                {.shapes = {{1, 1, 1, 1, 1, 1, 1, 1}},
                 .attrs = {{"depth", std::int64_t{5}}},
                 .dtypes = {i32},
                 .error = "no axis can be added"}},
  });

  register_op({
      .name = "sequence_mask",
      .summary = "whether a position along a new last axis is before the length",
      .kind = OpKind::composed,
      .inputs = {"lengths"},
      .attrs = {{.name = "max_length", .example = std::int64_t{0}, .required = true, .doc = "extent of the new axis"}},
      .compose = compose_sequence_mask,
      .cases =
          {{.shapes = {{6}}, .attrs = {{"max_length", std::int64_t{3}}}, .dtypes = {i64}},
           {.shapes = {{2, 3}}, .attrs = {{"max_length", std::int64_t{5}}}, .dtypes = {i32}},
           {.shapes = {{3}}, .attrs = {{"max_length", std::int64_t{4}}}, .dtypes = {u8}},
           {.shapes = {{}}, .attrs = {{"max_length", std::int64_t{4}}}, .dtypes = {i32}},
           {.shapes = {{0}}, .attrs = {{"max_length", std::int64_t{4}}}, .dtypes = {i32}},
           {.shapes = {{3}}, .attrs = {{"max_length", std::int64_t{0}}}, .dtypes = {i64}},
           {.shapes = {{3}}, .attrs = {{"max_length", std::int64_t{4}}}, .error = "lengths are f32"},
           {.shapes = {{3}}, .attrs = {{"max_length", std::int64_t{-2}}}, .dtypes = {i32}, .error = "max_length = -2"},
           {.shapes = {{1, 1, 1, 1, 1, 1, 1, 1}},
            .attrs = {{"max_length", std::int64_t{4}}},
            .dtypes = {i32},
            .error = "no axis can be added"}},
  });
}

Value one_hot(const Value& ids, std::int64_t depth, const OneHotOptions& options) {
  return call("one_hot", {ids},
              {{"depth", depth},
               {"axis", std::int64_t{options.axis}},
               {"dtype", options.dtype},
               {"on", options.on},
               {"off", options.off}});
}

Value sequence_mask(const Value& lengths, std::int64_t max_length) {
  return call("sequence_mask", {lengths}, {{"max_length", max_length}});
}

Value causal_mask(Graph& graph, std::int64_t queries, std::int64_t keys, std::int64_t offset) {
  if (queries < 0 || keys < 0) {
    fail(ErrorKind::shape, "causal_mask: {} queries and {} keys{}", queries, keys, in_scope(graph.scope.str()));
  }
  // How far the key is behind the last one that the query sees.
  const Attrs attrs{{"shape", Ints{queries, keys}}, {"strides", Ints{1, -1}}, {"start", offset}, {"dtype", i64}};
  return greater_equal(call(*find_op("iota"), {}, attrs, {}, &graph).front(), 0);
}

}  // namespace paoding
