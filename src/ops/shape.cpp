// SPDX-License-Identifier: Apache-2.0
// Ops that only say where elements are: input, parameter, full, iota, reshape, expand, slice, pad, concat. As steps
// they cost nothing where a consumer can address the elements in place, else one copy.
#include <algorithm>
#include <cmath>
#include <numeric>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

const AttrSpec kIntsAttr(const char* name, const char* doc) {
  return {.name = name, .example = Ints{}, .required = true, .doc = doc};
}

Ints with_front(const Ints& ints, std::int64_t first) {
  Ints longer{first};
  longer.insert(longer.end(), ints.begin(), ints.end());
  return longer;
}

Ints to_ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

void check_length(const OpCall& call, const char* attr, const Ints& ints, int rank) {
  if (static_cast<int>(ints.size()) != rank) {
    call.fail(ErrorKind::shape,
              fmt::format("{} has {} entries, but a has shape {}", attr, ints.size(), to_string(call.inputs[0].shape)));
  }
}

// input and parameter are made by Graph alone; their types are their own.
std::vector<Type> infer_named(const OpCall& call) {
  call.fail(ErrorKind::argument, "is made by Graph::input or Graph::parameter, not called");
}

// Converting a double that an integer cannot hold is undefined, and a stored u8 would wrap where one in a group does
// not.
bool holds(DType dtype, double value) {
  switch (dtype) {
    case DType::i64: return value >= -0x1p63 && value < 0x1p63;
    case DType::i32: return value > -0x1p31 - 1 && value < 0x1p31;
    case DType::u8: return value > -1 && value < 256;
    default: return true;
  }
}

std::vector<Type> infer_full(const OpCall& call) {
  const DType dtype = call.attrs.get_dtype("dtype");
  const double value = call.attrs.get_float("value");
  if (!holds(dtype, value)) {
    call.fail(ErrorKind::argument, fmt::format("value = {}, which {} cannot hold", value, to_string(dtype)));
  }
  return {Type{dtype, Shape{std::span<const std::int64_t>(call.attrs.get_ints("shape"))}}};
}

// Every value must be a number of the dtype, or arithmetic on indices would wrap where the result does not.
std::vector<Type> infer_iota(const OpCall& call) {
  const DType dtype = call.attrs.get_dtype("dtype");
  if (dtype != DType::i64 && dtype != DType::i32) {
    call.fail(ErrorKind::dtype, fmt::format("dtype = {}; indices are i64 or i32", to_string(dtype)));
  }
  const Shape shape{std::span<const std::int64_t>(call.attrs.get_ints("shape"))};
  const Ints& strides = call.attrs.get_ints("strides");
  if (static_cast<int>(strides.size()) != shape.rank()) {
    call.fail(ErrorKind::shape,
              fmt::format("strides has {} entries, but shape is {}", strides.size(), to_string(shape)));
  }
  // In floating point, where nothing overflows; 2^62 leaves room for its rounding.
  double least = static_cast<double>(call.attrs.get_int("start")), most = least;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const double far = static_cast<double>(strides[static_cast<std::size_t>(axis)]) *
                       static_cast<double>(std::max<std::int64_t>(shape[axis] - 1, 0));
    (far < 0 ? least : most) += far;
  }
  const double limit = dtype == DType::i32 ? 0x1p31 - 1 : 0x1p62;
  if (most > limit || least < -limit - 1) {
    call.fail(ErrorKind::argument,
              fmt::format("goes from {} to {}, which {} cannot hold", least, most, to_string(dtype)));
  }
  return {Type{dtype, shape}};
}

std::vector<Type> infer_reshape(const OpCall& call) {
  Ints dims = call.attrs.get_ints("shape");
  const std::int64_t elements = call.inputs[0].shape.elements();
  const auto unknown = std::count(dims.begin(), dims.end(), -1);
  if (unknown > 1) call.fail(ErrorKind::shape, "shape has more than one -1");
  if (unknown == 1) {
    const auto place = std::find(dims.begin(), dims.end(), -1);
    *place = 1;
    const std::int64_t known = Shape{std::span<const std::int64_t>(dims)}.elements();
    *place = known == 0 ? 0 : elements / known;
  }
  const Shape shape{std::span<const std::int64_t>(dims)};
  if (shape.elements() != elements) {
    call.fail(ErrorKind::shape,
              fmt::format("a has shape {} ({} elements), which does not become {} ({})",
                          to_string(call.inputs[0].shape), elements, to_string(shape), shape.elements()));
  }
  return {Type{call.inputs[0].dtype, shape}};
}

std::vector<Type> infer_expand(const OpCall& call) {
  const Shape target{std::span<const std::int64_t>(call.attrs.get_ints("shape"))};
  Shape joint;
  if (!broadcast(call.inputs[0].shape, target, &joint) || !(joint == target)) {
    call.fail(ErrorKind::shape, fmt::format("a has shape {}, which does not stretch to {}",
                                            to_string(call.inputs[0].shape), to_string(target)));
  }
  return {Type{call.inputs[0].dtype, target}};
}

std::vector<Type> infer_slice(const OpCall& call) {
  const Ints &start = call.attrs.get_ints("start"), &end = call.attrs.get_ints("end");
  const Shape& shape = call.inputs[0].shape;
  check_length(call, "start", start, shape.rank());
  check_length(call, "end", end, shape.rank());
  Ints dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (start[i] < 0 || start[i] > end[i] || end[i] > shape[axis]) {
      call.fail(ErrorKind::shape,
                fmt::format("takes {} to {} of axis {}, but a has shape {}", start[i], end[i], axis, to_string(shape)));
    }
    dims.push_back(end[i] - start[i]);
  }
  return {Type{call.inputs[0].dtype, Shape{std::span<const std::int64_t>(dims)}}};
}

std::vector<Type> infer_pad(const OpCall& call) {
  const Ints &before = call.attrs.get_ints("before"), &after = call.attrs.get_ints("after");
  const Shape& shape = call.inputs[0].shape;
  check_length(call, "before", before, shape.rank());
  check_length(call, "after", after, shape.rank());
  Ints dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    const auto i = static_cast<std::size_t>(axis);
    if (before[i] < 0 || after[i] < 0 || before[i] > (std::int64_t{1} << 40) || after[i] > (std::int64_t{1} << 40)) {
      call.fail(ErrorKind::shape, fmt::format("pads axis {} by {} and {}", axis, before[i], after[i]));
    }
    dims.push_back(before[i] + shape[axis] + after[i]);
  }
  return {Type{call.inputs[0].dtype, Shape{std::span<const std::int64_t>(dims)}}};
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

}  // namespace

int plain_axis(const OpCall& call, std::int64_t axis, int rank) {
  if (axis < -rank || axis >= rank) {
    call.fail(ErrorKind::shape, fmt::format("axis {} of a value of rank {}", axis, rank));
  }
  return static_cast<int>(axis < 0 ? axis + rank : axis);
}

std::vector<int> plain_axes(const OpCall& call, const Ints& axes, int rank) {
  for (std::int64_t axis : axes) plain_axis(call, axis, rank);
  std::vector<int> plain = plain_axes(axes, rank);
  if (std::adjacent_find(plain.begin(), plain.end()) != plain.end()) {
    call.fail(ErrorKind::shape, fmt::format("axes [{}] name one axis twice", fmt::join(axes, ", ")));
  }
  return plain;
}

std::vector<int> plain_axes(const Ints& axes, int rank) {
  std::vector<int> plain;
  for (std::int64_t axis : axes) plain.push_back(static_cast<int>(axis < 0 ? axis + rank : axis));
  if (axes.empty()) {
    plain.resize(static_cast<std::size_t>(rank));
    std::iota(plain.begin(), plain.end(), 0);
  }
  std::sort(plain.begin(), plain.end());
  return plain;
}

void register_shape_ops() {
  register_op(
      {.name = "input", .summary = "a value fed on every run", .kind = OpKind::structural, .infer = infer_named});
  register_op({.name = "parameter",
               .summary = "a value kept between runs and shared by programs",
               .kind = OpKind::structural,
               .infer = infer_named});

  // ---- full ----
  register_op({
      .name = "full",
      .summary = "shape filled with value",
      .kind = OpKind::structural,
      .attrs = {{.name = "value", .example = 0.0, .required = true, .doc = "the number"},
                {.name = "shape", .example = Ints{}, .doc = "extents; a scalar by default"},
                {.name = "dtype", .example = f32, .doc = "the result's dtype"}},
      .infer = infer_full,
  });

  // ---- iota ----
  register_op({
      .name = "iota",
      .summary = "start + the sum over axes of index * stride",
      .kind = OpKind::structural,
      .attrs = {kIntsAttr("shape", "extents"),
                kIntsAttr("strides", "what one step along each axis adds"),
                {.name = "start", .example = std::int64_t{0}, .doc = "the value at index 0"},
                {.name = "dtype", .example = i64, .doc = "i64 or i32"}},
      .infer = infer_iota,
      .cases =
          {{.attrs = {{"shape", Ints{5}}, {"strides", Ints{1}}}},
           {.attrs = {{"shape", Ints{3, 4}}, {"strides", Ints{0, -2}}, {"start", std::int64_t{7}}, {"dtype", i32}}},
           {.attrs = {{"shape", Ints{2, 0}}, {"strides", Ints{1, 1}}}},
           {.attrs = {{"shape", Ints{}}, {"strides", Ints{}}, {"start", std::int64_t{-3}}}},
           {.attrs = {{"shape", Ints{3}}, {"strides", Ints{}}}, .error = "strides has 0 entries"},
           {.attrs = {{"shape", Ints{3}}, {"strides", Ints{1}}, {"dtype", f32}}, .error = "indices are i64 or i32"},
           {.attrs = {{"shape", Ints{3}}, {"strides", Ints{std::int64_t{1} << 31}}, {"dtype", i32}},
            .error = "which i32 cannot hold"}},
  });

  // ---- reshape ----
  register_op({
      .name = "reshape",
      .summary = "the same elements in the same order under another shape",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {kIntsAttr("shape", "extents; one may be -1")},
      .infer = infer_reshape,
      .gradient = [](const GradCall& call) { return Values{reshape(call.grads[0], call.inputs[0].shape())}; },
      .lift =
          [](const LiftCall& call) {
            return Values{reshape(call.inputs[0], with_front(to_ints(call.node.types[0].shape), call.length))};
          },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"shape", Ints{2, 6}}}},
                {.shapes = {{4, 3}}, .attrs = {{"shape", Ints{-1}}}},
                {.shapes = {{1}}, .attrs = {{"shape", Ints{}}}},
                {.shapes = {{4, 3}}, .attrs = {{"shape", Ints{5}}}, .error = "does not become [5]"}},
  });

  // ---- expand ----
  register_op({
      .name = "expand",
      .summary = "a stretched to shape by broadcasting",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {kIntsAttr("shape", "extents to broadcast to")},
      .infer = infer_expand,
      .gradient = [](const GradCall& call) { return call.grads; },  // the driver sums it to a's shape
      .lift =
          [](const LiftCall& call) {
            // Extents of 1 go between the new axis and a's, so that a's axes stay aligned at the end.
            const Shape &from = call.node.types[0].shape, a = call.inputs[0].shape();
            Ints aligned(static_cast<std::size_t>(from.rank() - (a.rank() - 1)), 1);
            aligned.insert(aligned.begin(), call.length);
            aligned.insert(aligned.end(), a.begin() + 1, a.end());
            const Ints target = with_front(to_ints(from), call.length);
            return Values{expand(reshape(call.inputs[0], aligned), Shape{std::span<const std::int64_t>(target)})};
          },
      .cases = {{.shapes = {{3}}, .attrs = {{"shape", Ints{4, 3}}}},
                {.shapes = {{4, 1}}, .attrs = {{"shape", Ints{2, 4, 5}}}},
                {.shapes = {{3}}, .attrs = {{"shape", Ints{4}}}, .error = "does not stretch to [4]"}},
  });

  // ---- slice ----
  register_op({
      .name = "slice",
      .summary = "elements start <= index < end along every axis",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {kIntsAttr("start", "first index, per axis"), kIntsAttr("end", "index past the last, per axis")},
      .infer = infer_slice,
      .gradient =
          [](const GradCall& call) {
            const Ints &start = call.node.attrs.get_ints("start"), &end = call.node.attrs.get_ints("end");
            Ints after;
            for (std::size_t i = 0; i < end.size(); ++i) {
              after.push_back(call.inputs[0].shape()[static_cast<int>(i)] - end[i]);
            }
            return Values{pad(call.grads[0], start, after)};
          },
      .lift =
          [](const LiftCall& call) {
            return Values{slice(call.inputs[0], with_front(call.node.attrs.get_ints("start"), 0),
                                with_front(call.node.attrs.get_ints("end"), call.length))};
          },
      .cases = {{.shapes = {{4, 6}}, .attrs = {{"start", Ints{1, 2}}, {"end", Ints{3, 6}}}},
                {.shapes = {{4, 6}}, .attrs = {{"start", Ints{0, 3}}, {"end", Ints{4, 3}}}},
                {.shapes = {{4, 6}},
                 .attrs = {{"start", Ints{0, 0}}, {"end", Ints{4, 7}}},
                 .error = "0 to 7 of axis 1"}},
  });

  // ---- pad ----
  register_op({
      .name = "pad",
      .summary = "zeros around a, before and after many along every axis",
      .kind = OpKind::view,
      .inputs = {"a"},
      .attrs = {kIntsAttr("before", "zeros in front, per axis"), kIntsAttr("after", "zeros behind, per axis")},
      .infer = infer_pad,
      .gradient =
          [](const GradCall& call) {
            const Ints& before = call.node.attrs.get_ints("before");
            Ints end;
            for (std::size_t i = 0; i < before.size(); ++i) {
              end.push_back(before[i] + call.inputs[0].shape()[static_cast<int>(i)]);
            }
            return Values{slice(call.grads[0], before, end)};
          },
      .lift =
          [](const LiftCall& call) {
            return Values{pad(call.inputs[0], with_front(call.node.attrs.get_ints("before"), 0),
                              with_front(call.node.attrs.get_ints("after"), 0))};
          },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"before", Ints{0, 2}}, {"after", Ints{1, 0}}}},
                {.shapes = {{4, 3}}, .attrs = {{"before", Ints{0, -1}}, {"after", Ints{0, 0}}}, .error = "by -1"}},
  });

  // ---- concat ----
  register_op({
      .name = "concat",
      .summary = "the inputs one after the other along axis",
      .kind = OpKind::view,
      .inputs = {"a..."},
      .attrs = {{.name = "axis", .example = std::int64_t{0}, .required = true, .doc = "negative counts from the end"}},
      .infer = infer_concat,
      .gradient =
          [](const GradCall& call) {
            const Shape& whole = call.node.types[0].shape;
            std::int64_t axis = call.node.attrs.get_int("axis");
            if (axis < 0) axis += whole.rank();
            Values pieces;
            std::int64_t start = 0;
            for (const Value& input : call.inputs) {
              const std::int64_t end = start + input.shape()[static_cast<int>(axis)];
              pieces.push_back(slice(call.grads[0], static_cast<int>(axis), start, end));
              start = end;
            }
            return pieces;
          },
      .lift =
          [](const LiftCall& call) {
            const std::int64_t axis = call.node.attrs.get_int("axis");
            Values pieces;
            for (std::size_t i = 0; i < call.inputs.size(); ++i) {
              const Value& piece = call.inputs[i];
              pieces.push_back(call.lifted[i] ? piece
                                              : expand(piece, Shape{std::span<const std::int64_t>(
                                                                  with_front(to_ints(piece.shape()), call.length))}));
            }
            return Values{concat(pieces, static_cast<int>(axis < 0 ? axis : axis + 1))};
          },
      .cases = {{.shapes = {{4, 3}, {2, 3}}, .attrs = {{"axis", std::int64_t{0}}}},
                {.shapes = {{4, 3}, {4, 0}, {4, 2}}, .attrs = {{"axis", std::int64_t{-1}}}},
                {.shapes = {{4, 3}, {4, 2}}, .attrs = {{"axis", std::int64_t{0}}}, .error = "a[1] has shape [4, 2]"}},
  });
}

// ---- the functions of ops.h ----

Value full(Graph& graph, const Shape& shape, double value, DType dtype) {
  return call(*find_op("full"), {}, {{"value", value}, {"shape", to_ints(shape)}, {"dtype", dtype}}, {}, &graph)
      .front();
}

Value iota(Graph& graph, const Shape& shape, int axis, DType dtype) {
  const OpCall where{*find_op("iota"), {}, {}, {}, graph.scope};
  Ints strides(static_cast<std::size_t>(shape.rank()), 0);
  strides[static_cast<std::size_t>(plain_axis(where, axis, shape.rank()))] = 1;
  return call(*find_op("iota"), {}, {{"shape", to_ints(shape)}, {"strides", strides}, {"dtype", dtype}}, {}, &graph)
      .front();
}

Value arange(Graph& graph, std::int64_t start, std::int64_t end, std::int64_t step, DType dtype) {
  if (step == 0) fail(ErrorKind::argument, "arange: step = 0, from {} to {}", start, end);
  const double count = std::ceil((static_cast<double>(end) - static_cast<double>(start)) / static_cast<double>(step));
  const std::int64_t extent = count > 0 ? static_cast<std::int64_t>(std::min(count, 0x1p60)) : 0;
  const bool is_index = dtype == DType::i64 || dtype == DType::i32;
  const Attrs attrs{
      {"shape", Ints{extent}}, {"strides", Ints{step}}, {"start", start}, {"dtype", is_index ? dtype : i64}};
  return cast(call(*find_op("iota"), {}, attrs, {}, &graph).front(), dtype);
}

Value reshape(const Value& a, std::span<const std::int64_t> shape) {
  if (std::ranges::equal(a.shape().dims(), shape)) return a;
  return call("reshape", {a}, {{"shape", Ints(shape.begin(), shape.end())}});
}

Value reshape(const Value& a, const Shape& shape) { return reshape(a, shape.dims()); }

Value expand(const Value& a, const Shape& shape) {
  return a.shape() == shape ? a : call("expand", {a}, {{"shape", to_ints(shape)}});
}

Value slice(const Value& a, std::span<const std::int64_t> start, std::span<const std::int64_t> end) {
  return call("slice", {a}, {{"start", Ints(start.begin(), start.end())}, {"end", Ints(end.begin(), end.end())}});
}

Value slice(const Value& a, int axis, std::int64_t start, std::int64_t end) {
  const OpCall where{*find_op("slice"), {}, {}, {}, a.graph().scope};
  const auto plain = static_cast<std::size_t>(plain_axis(where, axis, a.shape().rank()));
  Ints starts(static_cast<std::size_t>(a.shape().rank()), 0), ends = to_ints(a.shape());
  starts[plain] = start;
  ends[plain] = end;
  return slice(a, starts, ends);
}

Value pad(const Value& a, std::span<const std::int64_t> before, std::span<const std::int64_t> after) {
  return call("pad", {a},
              {{"before", Ints(before.begin(), before.end())}, {"after", Ints(after.begin(), after.end())}});
}

Value concat(std::span<const Value> inputs, int axis) {
  return call(*find_op("concat"), inputs, {{"axis", std::int64_t{axis}}}).front();
}

}  // namespace paoding
