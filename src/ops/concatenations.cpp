// SPDX-License-Identifier: Apache-2.0
// Ops that make one value of parts and of the values between them: pad, concat; stack, tile, repeat and roll are
// written with them. The parts are written where they belong (src/plan/concatenations.cpp).
#include <algorithm>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "ops/views.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

constexpr std::int64_t kMostPadding = std::int64_t{1} << 40;

std::vector<Type> infer_pad(const OpCall& call) {
  const Type& a = call.inputs[0];
  const Ints &before = call.attrs.get_ints("before"), &after = call.attrs.get_ints("after"),
             &interior = call.attrs.get_ints("interior");
  const auto rank = static_cast<std::size_t>(a.shape.rank());
  if (before.size() != rank || after.size() != rank || (interior.size() != rank && !interior.empty())) {
    call.fail(ErrorKind::shape, fmt::format("before has {} entries, after {} and interior {}, but a has shape {}",
                                            before.size(), after.size(), interior.size(), to_string(a.shape)));
  }
  check_number(call, "value", a.dtype);
  Ints dims;
  for (std::size_t i = 0; i < rank; ++i) {
    const std::int64_t between = interior.empty() ? 0 : interior[i], extent = a.shape[static_cast<int>(i)];
    const auto is_legal = [](std::int64_t amount) { return amount >= 0 && amount <= kMostPadding; };
    if (!is_legal(before[i]) || !is_legal(after[i]) || !is_legal(between) || extent > kMostPadding) {
      call.fail(ErrorKind::shape, fmt::format("pads axis {} by {} and {}{}", i, before[i], after[i],
                                              between == 0 ? "" : fmt::format(", by {} between elements", between)));
    }
    const auto gaps = static_cast<double>(std::max<std::int64_t>(extent - 1, 0)) * static_cast<double>(between);
    if (gaps > 0x1p60) {
      call.fail(ErrorKind::shape,
                fmt::format("pads axis {}, of extent {}, by {} between elements", i, extent, between));
    }
    dims.push_back(before[i] + extent + std::max<std::int64_t>(extent - 1, 0) * between + after[i]);
  }
  return {Type{a.dtype, to_shape(dims)}};
}

Values pad_gradient(const GradCall& call) {
  const Padding padding = padding_of(call.node);
  SliceRange range{padding.before, {}, {}};
  for (std::size_t i = 0; i < padding.before.size(); ++i) {
    range.step.push_back(padding.interior[i] + 1);
    range.end.push_back(slice_end(padding.before[i], call.inputs[0].shape()[static_cast<int>(i)], range.step.back()));
  }
  return {slice(call.grads[0], range)};
}

Values lift_pad(const LiftCall& call) {
  Padding padding = padding_of(call.node);
  padding.before = with_front(padding.before, 0);
  padding.after = with_front(padding.after, 0);
  padding.interior = with_front(padding.interior, 0);
  return {pad(call.inputs[0], padding)};
}

std::vector<Type> infer_concat(const OpCall& call) {
  const Type& first = call.inputs[0];
  const int axis = plain_axis(call, call.attrs.get_int("axis"), first.shape.rank());
  std::int64_t extent = 0;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Type& type = call.inputs[i];
    if (type.dtype != first.dtype) {
      call.fail(ErrorKind::dtype, fmt::format("{} is {}, but {} is {}", call.input_name(i), to_string(type.dtype),
                                              call.input_name(0), to_string(first.dtype)));
    }
    if (type.shape.rank() != first.shape.rank() || !(type.shape.with_dim(axis, 0) == first.shape.with_dim(axis, 0))) {
      call.fail(ErrorKind::shape,
                fmt::format("{} has shape {}, which differs from {} of {} in more than axis {}", call.input_name(i),
                            to_string(type.shape), to_string(first.shape), call.input_name(0), axis));
    }
    extent += type.shape[axis];
  }
  return {Type{first.dtype, first.shape.with_dim(axis, extent)}};
}

Values concat_gradient(const GradCall& call) {
  const int axis = concat_axis(call.node);
  Values pieces;
  std::int64_t start = 0;
  for (const Value& input : call.inputs) {
    const std::int64_t end = start + input.shape()[axis];
    pieces.push_back(slice(call.grads[0], axis, start, end));
    start = end;
  }
  return pieces;
}

Values lift_concat(const LiftCall& call) {
  const std::int64_t axis = call.node.attrs.get_int("axis");
  Values pieces;
  for (std::size_t i = 0; i < call.inputs.size(); ++i) {
    const Value& piece = call.inputs[i];
    pieces.push_back(call.lifted[i] ? piece : expand(piece, to_shape(with_front(to_ints(piece.shape()), call.length))));
  }
  return {concat(pieces, static_cast<int>(axis < 0 ? axis : axis + 1))};
}

// ---- ops that are written with them ----

Values compose_stack(std::span<const Value> in, const Attrs& attrs) {
  std::vector<Type> types;
  for (const Value& value : in) types.push_back(value.type());
  const OpCall call{*find_op("stack"), types, attrs, {}, in[0].graph().scope};
  const Shape& shape = in[0].shape();
  const int axis = plain_axis(call, attrs.get_int("axis"), shape.rank() + 1);
  Values pieces;
  for (std::size_t i = 0; i < in.size(); ++i) {
    if (!(in[i].type() == in[0].type())) {
      call.fail(in[i].shape() == shape ? ErrorKind::dtype : ErrorKind::shape,
                fmt::format("{} is {}, but {} is {}", call.input_name(i), to_string(types[i]), call.input_name(0),
                            to_string(types[0])));
    }
    pieces.push_back(reshape(in[i], shape.with_inserted(axis, 1)));
  }
  return {pieces.size() == 1 ? pieces[0] : concat(pieces, axis)};
}

void check_product(const OpCall& call, std::int64_t extent, std::int64_t times) {
  if (times != 0 && extent > (std::int64_t{1} << 62) / times) {
    call.fail(ErrorKind::shape,
              fmt::format("{} times an extent of {} are more elements than a shape can have", times, extent));
  }
}

// Stretches along new axes in front of those that repeat, then merges each with its neighbour. Where the rank has no
// room for them all, one axis after the other, with those around it as one.
Value tile_all(const Value& a, const Ints& times) {
  const int rank = a.shape().rank();
  Ints thin, wide, merged;
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t count = times[static_cast<std::size_t>(axis)], extent = a.shape()[axis];
    merged.push_back(count * extent);
    if (count != 1) thin.push_back(1), wide.push_back(count);
    thin.push_back(extent), wide.push_back(extent);
  }
  if (static_cast<int>(wide.size()) <= Shape::kMaxRank) {
    return reshape(expand(reshape(a, thin), to_shape(wide)), merged);
  }
  Value tiled = a;
  for (int axis = 0; axis < rank; ++axis) {
    const std::int64_t count = times[static_cast<std::size_t>(axis)];
    if (count == 1) continue;
    const Shape shape = tiled.shape();
    std::int64_t outer = 1, inner = 1;
    for (int k = 0; k < rank; ++k) (k < axis ? outer : inner) *= shape[k];
    const Value stretched = expand(reshape(tiled, Shape{outer, 1, inner}), Shape{outer, count, inner});
    tiled = reshape(stretched, shape.with_dim(axis, shape[axis] * count));
  }
  return tiled;
}

Values compose_tile(std::span<const Value> in, const Attrs& attrs) {
  const std::vector<Type> types{in[0].type()};
  const OpCall call{*find_op("tile"), types, attrs, {}, in[0].graph().scope};
  Ints times = attrs.get_ints("times"), dims = to_ints(in[0].shape());
  for (const std::int64_t each : times) {
    if (each < 0 || each > kMostPadding) {
      call.fail(ErrorKind::shape, fmt::format("times = [{}], of which one is {}", fmt::join(times, ", "), each));
    }
  }
  if (dims.size() < times.size()) dims.insert(dims.begin(), times.size() - dims.size(), 1);
  if (times.size() < dims.size()) times.insert(times.begin(), dims.size() - times.size(), 1);
  for (std::size_t i = 0; i < dims.size(); ++i) check_product(call, dims[i], times[i]);
  return {tile_all(reshape(in[0], to_shape(dims)), times)};
}

Values compose_repeat(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  const std::vector<Type> types{in[0].type()};
  const OpCall call{*find_op("repeat"), types, attrs, {}, in[0].graph().scope};
  const int axis = plain_axis(call, attrs.get_int("axis"), shape.rank());
  const std::int64_t times = attrs.get_int("times");
  if (times < 0 || times > kMostPadding) call.fail(ErrorKind::shape, fmt::format("times = {}", times));
  check_product(call, shape[axis], times);
  // The axes before and after as one each, so that any rank has room for a new one.
  std::int64_t outer = 1, inner = 1;
  for (int k = 0; k < axis; ++k) outer *= shape[k];
  for (int k = axis + 1; k < shape.rank(); ++k) inner *= shape[k];
  const Value thin = reshape(in[0], Shape{outer, shape[axis], 1, inner});
  return {reshape(expand(thin, Shape{outer, shape[axis], times, inner}), shape.with_dim(axis, shape[axis] * times))};
}

Values compose_roll(std::span<const Value> in, const Attrs& attrs) {
  const Shape& shape = in[0].shape();
  const std::vector<Type> types{in[0].type()};
  const OpCall call{*find_op("roll"), types, attrs, {}, in[0].graph().scope};
  const int axis = plain_axis(call, attrs.get_int("axis"), shape.rank());
  const std::int64_t extent = shape[axis];
  std::int64_t shift = extent == 0 ? 0 : attrs.get_int("shift") % extent;
  if (shift < 0) shift += extent;
  if (shift == 0) return {in[0]};
  return {concat(std::array{slice(in[0], axis, extent - shift, extent), slice(in[0], axis, 0, extent - shift)}, axis)};
}

}  // namespace

bool Padding::is_plain() const {
  return std::ranges::all_of(interior, [](std::int64_t each) { return each == 0; });
}

Padding padding_of(const Node& node) {
  Padding padding{node.attrs.get_ints("before"), node.attrs.get_ints("after"), node.attrs.get_ints("interior"),
                  node.attrs.get_float("value")};
  if (padding.interior.empty()) padding.interior.assign(padding.before.size(), 0);
  return padding;
}

int concat_axis(const Node& node) {
  const std::int64_t axis = node.attrs.get_int("axis");
  return static_cast<int>(axis < 0 ? axis + node.types[0].shape.rank() : axis);
}

void register_joins() {
  // ---- pad ----
  register_op({
      .name = "pad",
      .summary = "value around a, before and after many along every axis, and between its elements",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {{.name = "before", .example = Ints{}, .required = true, .doc = "how many in front, per axis"},
                {.name = "after", .example = Ints{}, .required = true, .doc = "how many after, per axis"},
                {.name = "value", .example = 0.0, .doc = "what is put there"},
                {.name = "interior",
                 .example = Ints{},
                 .doc = "how many between neighbours, per axis; none by default"}},
      .role = OpRole::concatenate,
      .view = ViewForm::padded,
      .infer = infer_pad,
      .gradient = pad_gradient,
      .lift = lift_pad,
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"before", Ints{0, 2}}, {"after", Ints{1, 0}}}},
                {.shapes = {{4, 3}}, .attrs = {{"before", Ints{1, 2}}, {"after", Ints{1, 1}}, {"value", 2.0}}},
                {.shapes = {{4, 3, 2}},
                 .attrs = {{"before", Ints{0, 2, 0}}, {"after", Ints{1, 0, 0}}, {"interior", Ints{2, 0, 1}}}},
                {.shapes = {{0, 2}},
                 .attrs = {{"before", Ints{1, 0}}, {"after", Ints{1, 0}}, {"interior", Ints{3, 1}}}},
                {.shapes = {{}}, .attrs = {{"before", Ints{}}, {"after", Ints{}}}},
                {.shapes = {{4, 3}}, .attrs = {{"before", Ints{0, -1}}, {"after", Ints{0, 0}}}, .error = "by -1"},
                {.shapes = {{4}},
                 .attrs = {{"before", Ints{0}}, {"after", Ints{0}}, {"interior", Ints{-2}}},
                 .error = "by -2 between elements"},
                {.shapes = {{4}},
                 .attrs = {{"before", Ints{0}}, {"after", Ints{0}}, {"value", 1e10}},
                 .dtypes = {i32},
                 .error = "which i32 cannot hold"},
                {.shapes = {{4}},
                 .attrs = {{"before", Ints{1}}, {"after", Ints{0}}, {"value", 0.5}},
                 .dtypes = {i32},
                 .error = "value = 0.5, which i32 cannot hold"},
                {.shapes = {{4}},
                 .attrs = {{"before", Ints{1}}, {"after", Ints{0}}, {"value", -1.0}},
                 .dtypes = {u8},
                 .error = "value = -1, which u8 cannot hold"}},
  });

  // ---- concat ----
  register_op({
      .name = "concat",
      .summary = "the inputs one after the other along axis",
      .kind = OpKind::view,
      .inputs = {"a..."},
      .attrs = {{.name = "axis", .example = std::int64_t{0}, .required = true, .doc = "negative counts from the end"}},
      .role = OpRole::concatenate,
      .view = ViewForm::concatenated,
      .infer = infer_concat,
      .gradient = concat_gradient,
      .lift = lift_concat,
      .cases = {{.shapes = {{4, 3}, {2, 3}}, .attrs = {{"axis", std::int64_t{0}}}},
                {.shapes = {{4, 3}, {4, 0}, {4, 2}}, .attrs = {{"axis", std::int64_t{-1}}}},
                {.shapes = {{4, 3}, {4, 2}}, .attrs = {{"axis", std::int64_t{0}}}, .error = "a[1] has shape [4, 2]"}},
  });

  // ---- stack ----
  register_op({
      .name = "stack",
      .summary = "the inputs, of one shape, along a new axis",
      .kind = OpKind::composed,
      .inputs = {"a..."},
      .attrs = {{.name = "axis", .example = std::int64_t{0}, .doc = "its place in the result"}},
      .compose = compose_stack,
      .cases = {{.shapes = {{4, 3}, {4, 3}}},
                {.shapes = {{4, 3}, {4, 3}, {4, 3}}, .attrs = {{"axis", std::int64_t{-1}}}},
                {.shapes = {{}, {}}},
                {.shapes = {{4}, {3}}, .error = "a[1] is f32[3], but a[0] is f32[4]"}},
  });

  // ---- tile ----
  register_op({
      .name = "tile",
      .summary = "times[i] copies of a one after the other along axis i",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "times", .example = Ints{}, .required = true, .doc = "aligned at the last axis"}},
      .compose = compose_tile,
      .cases = {{.shapes = {{2, 3}}, .attrs = {{"times", Ints{2, 3}}}},
                {.shapes = {{3}}, .attrs = {{"times", Ints{2, 2}}}},
                {.shapes = {{2, 3}}, .attrs = {{"times", Ints{2}}}},
                {.shapes = {{2, 1, 2, 1, 2, 1, 2}}, .attrs = {{"times", Ints{2, 1, 1, 3, 1, 1, 2}}}},
                {.shapes = {{2, 3}}, .attrs = {{"times", Ints{0, 1}}}},
                {.shapes = {{2}}, .attrs = {{"times", Ints{-1}}}, .error = "of which one is -1"}},
  });

  // ---- repeat ----
  register_op({
      .name = "repeat",
      .summary = "every element along axis, `times` times in a row",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "times", .example = std::int64_t{1}, .required = true, .doc = "how often"},
                {.name = "axis", .example = std::int64_t{0}, .doc = "negative counts from the end"}},
      .compose = compose_repeat,
      .cases = {{.shapes = {{2, 3}}, .attrs = {{"times", std::int64_t{3}}}},
                {.shapes = {{2, 3}}, .attrs = {{"times", std::int64_t{2}}, {"axis", std::int64_t{-1}}}},
                {.shapes = {{2}}, .attrs = {{"times", std::int64_t{0}}}},
                {.shapes = {{2}}, .attrs = {{"times", std::int64_t{-1}}}, .error = "times = -1"}},
  });

  // ---- roll ----
  register_op({
      .name = "roll",
      .summary = "element i along axis moves to (i + shift) mod extent",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "shift", .example = std::int64_t{1}, .required = true, .doc = "how far"},
                {.name = "axis", .example = std::int64_t{0}, .doc = "negative counts from the end"}},
      .compose = compose_roll,
      .cases = {{.shapes = {{5, 2}}, .attrs = {{"shift", std::int64_t{2}}}},
                {.shapes = {{2, 5}}, .attrs = {{"shift", std::int64_t{-8}}, {"axis", std::int64_t{-1}}}},
                {.shapes = {{0, 2}}, .attrs = {{"shift", std::int64_t{1}}}},
                {.shapes = {{2}},
                 .attrs = {{"shift", std::int64_t{1}}, {"axis", std::int64_t{1}}},
                 .error = "axis 1 of a value of rank 1"}},
  });
}

// ---- the functions of ops/shape.h ----

Value pad(const Value& a, std::span<const std::int64_t> before, std::span<const std::int64_t> after, double value,
          std::span<const std::int64_t> interior) {
  Ints between(interior.begin(), interior.end());
  if (std::ranges::all_of(between, [](std::int64_t each) { return each == 0; })) between.clear();
  return call("pad", {a},
              {{"before", Ints(before.begin(), before.end())},
               {"after", Ints(after.begin(), after.end())},
               {"value", value},
               {"interior", std::move(between)}});
}

Value pad(const Value& a, const Padding& padding) {
  return pad(a, padding.before, padding.after, padding.value, padding.interior);
}

Value concat(std::span<const Value> inputs, int axis) {
  return call(*find_op("concat"), inputs, {{"axis", std::int64_t{axis}}}).front();
}

Value stack(std::span<const Value> inputs, int axis) {
  return call(*find_op("stack"), inputs, {{"axis", std::int64_t{axis}}}).front();
}

Value tile(const Value& a, std::span<const std::int64_t> times) {
  return call("tile", {a}, {{"times", Ints(times.begin(), times.end())}});
}

Value repeat(const Value& a, std::int64_t times, int axis) {
  return call("repeat", {a}, {{"times", times}, {"axis", std::int64_t{axis}}});
}

Value roll(const Value& a, std::int64_t shift, int axis) {
  return call("roll", {a}, {{"shift", shift}, {"axis", std::int64_t{axis}}});
}

}  // namespace paoding
