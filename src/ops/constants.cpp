// SPDX-License-Identifier: Apache-2.0
// Values that are not computed: input, parameter, full, constant and ops that are written with them.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "ops/views.h"
#include "paoding/can_hold.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<double>;

constexpr std::int64_t kMostConstants = 65536;  // elements of a constant: it is part of the graph's text

// input and parameter are made by Graph alone; their types are their own.
std::vector<Type> infer_named(const OpCall& call) {
  call.fail(ErrorKind::argument, "is made by Graph::input or Graph::parameter, not called");
}

// Whether the attribute is an integer that no double is: only an i64 can be it.
bool keeps_integer(const OpCall& call, DType dtype, const char* name) {
  const AttrValue& value = *call.attrs.find(name);
  if (!std::holds_alternative<std::int64_t>(value) && !std::holds_alternative<Ints>(value)) return false;
  return dtype == DType::i64;
}

std::vector<Type> infer_full(const OpCall& call) {
  const DType dtype = call.attrs.get_dtype("dtype");
  check_number(call, "value", dtype);
  return {Type{dtype, to_shape(call.attrs.get_ints("shape"))}};
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

std::vector<Type> infer_constant(const OpCall& call) {
  const DType dtype = call.attrs.get_dtype("dtype");
  const bool is_exact = keeps_integer(call, dtype, "values");
  const Floats values = constant_values(call.attrs);
  const Shape shape{std::span<const std::int64_t>(call.attrs.get_ints("shape"))};
  const auto count = static_cast<std::int64_t>(values.size());
  if (count > kMostConstants) {
    call.fail(ErrorKind::argument,
              fmt::format("has {} values, at most {} may be part of a graph: feed them as an input, or keep them in a "
                          "parameter",
                          count, kMostConstants));
  }
  if (count != shape.elements()) {
    call.fail(ErrorKind::shape, fmt::format("has {} values for shape {}, which has {} elements", count,
                                            to_string(shape), shape.elements()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!is_exact && !can_hold(dtype, values[i])) {
      call.fail(ErrorKind::argument,
                fmt::format("values[{}] = {}, which {} cannot hold", i, values[i], to_string(dtype)));
    }
  }
  return {Type{dtype, shape}};
}

}  // namespace

void check_number(const OpCall& call, const char* attr, DType dtype) {
  const double value = call.attrs.get_float(attr);
  if (keeps_integer(call, dtype, attr) || can_hold(dtype, value)) return;
  call.fail(ErrorKind::argument, fmt::format("{} = {}, which {} cannot hold", attr, value, to_string(dtype)));
}

Value full_of(Graph& graph, const Shape& shape, const AttrValue& value, DType dtype) {
  return call(*find_op("full"), {}, {{"value", value}, {"shape", to_ints(shape)}, {"dtype", dtype}}, {}, &graph)
      .front();
}

std::vector<double> constant_values(const Attrs& attrs) {
  const AttrValue& values = *attrs.find("values");
  if (const Ints* ints = std::get_if<Ints>(&values)) return {ints->begin(), ints->end()};
  return std::get<Floats>(values);
}

Tensor constant_tensor(const Node& constant) {
  const Type& type = constant.types[0];
  const Ints* ints = std::get_if<Ints>(constant.attrs.find("values"));
  if (ints == nullptr || type.dtype != DType::i64)
    return Tensor::from(type.dtype, type.shape, constant_values(constant.attrs));
  Tensor tensor(type.dtype, type.shape);
  std::copy(ints->begin(), ints->end(), tensor.data<std::int64_t>());
  return tensor;
}

void register_constants() {
  register_op({.name = "input",
               .summary = "a value fed on every run",
               .kind = OpKind::structural,
               .role = OpRole::source,
               .infer = infer_named});
  register_op({.name = "parameter",
               .summary = "a value kept between runs and shared by programs",
               .kind = OpKind::structural,
               .role = OpRole::source,
               .is_kept = true,
               .infer = infer_named});

  // ---- full ----
  register_op({
      .name = "full",
      .summary = "shape filled with value",
      .kind = OpKind::structural,
      .attrs = {{.name = "value", .example = 0.0, .required = true, .doc = "the number", .keeps_integers = true},
                {.name = "shape", .example = Ints{}, .doc = "extents; a scalar by default"},
                {.name = "dtype", .example = f32, .doc = "the result's dtype"}},
      .role = OpRole::generated,
      .is_uniform = true,
      .infer = infer_full,
  });

  // ---- iota ----
  register_op({
      .name = "iota",
      .summary = "start + the sum over axes of index * stride",
      .kind = OpKind::structural,
      .attrs = {{.name = "shape", .example = Ints{}, .required = true, .doc = "extents"},
                {.name = "strides", .example = Ints{}, .required = true, .doc = "what one step along each axis adds"},
                {.name = "start", .example = std::int64_t{0}, .doc = "the value at index 0"},
                {.name = "dtype", .example = i64, .doc = "i64 or i32"}},
      .role = OpRole::generated,
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

  // ---- constant ----
  register_op({
      .name = "constant",
      .summary = "a small tensor that is part of the graph",
      .kind = OpKind::structural,
      .attrs = {{.name = "values",
                 .example = Floats{},
                 .required = true,
                 .doc = "the elements, at most 65536",
                 .keeps_integers = true},
                {.name = "shape", .example = Ints{}, .doc = "extents; a scalar by default"},
                {.name = "dtype", .example = f32, .doc = "the result's dtype"}},
      .role = OpRole::constant,
      .infer = infer_constant,
      .cases = {{.attrs = {{"values", Floats{1.5}}}},
                {.attrs = {{"values", Floats{0, 1, 2, 3, 4, 250}}, {"shape", Ints{2, 3}}, {"dtype", u8}}},
                {.attrs = {{"values", Floats{}}, {"shape", Ints{2, 0}}, {"dtype", f64}}},
                {.attrs = {{"values", Floats{1, 2}}, {"shape", Ints{3}}}, .error = "has 2 values for shape [3]"},
                {.attrs = {{"values", Floats{1, 300}}, {"shape", Ints{2}}, {"dtype", u8}},
                 .error = "values[1] = 300, which u8 cannot hold"},
                {.attrs = {{"values", Floats{1, 0.5}}, {"shape", Ints{2}}, {"dtype", i64}},
                 .error = "values[1] = 0.5, which i64 cannot hold"}},
  });

  // ---- full_like ----
  register_op({
      .name = "full_like",
      .summary = "the shape and dtype of a, filled with value",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "value", .example = 0.0, .required = true, .doc = "the number", .keeps_integers = true}},
      .compose =
          [](std::span<const Value> in, const Attrs& attrs) {
            check_number({*find_op("full_like"), {}, attrs, {}, in[0].graph().scope}, "value", in[0].dtype());
            return Values{full_of(in[0].graph(), in[0].shape(), *attrs.find("value"), in[0].dtype())};
          },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"value", 2.0}}},
                {.shapes = {{}}, .attrs = {{"value", -1.0}}},
                {.shapes = {{3}},
                 .attrs = {{"value", 0.5}},
                 .dtypes = {i64},
                 .error = "full_like: value = 0.5, which i64 cannot hold"},
                {.shapes = {{3}},
                 .attrs = {{"value", 2.0}},
                 .dtypes = {boolean},
                 .error = "full_like: value = 2, which bool cannot hold"}},
  });

  // ---- shape ----
  register_op({
      .name = "shape",
      .summary = "the extents of a as an i64 vector; a constant, since shapes are static",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .compose =
          [](std::span<const Value> in, const Attrs&) {
            const Shape& shape = in[0].shape();
            return Values{constant(in[0].graph(), Shape{shape.rank()}, Floats(shape.begin(), shape.end()), i64)};
          },
      .cases = {{.shapes = {{4, 0, 3}}}, {.shapes = {{}}}},
  });
}

Value full(Graph& graph, const Shape& shape, Number value, DType dtype) {
  return full_of(graph, shape, value.attr(), dtype);
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
  if (!is_index && extent > 0) {  // a cast would wrap
    const double last = static_cast<double>(start) + static_cast<double>(extent - 1) * static_cast<double>(step);
    for (const double each : {static_cast<double>(start), last}) {
      if (!can_hold(dtype, each)) {
        fail(ErrorKind::argument, "arange: goes from {} to {}, which {} cannot hold", start, last, to_string(dtype));
      }
    }
  }
  const Attrs attrs{
      {"shape", Ints{extent}}, {"strides", Ints{step}}, {"start", start}, {"dtype", is_index ? dtype : i64}};
  return cast(call(*find_op("iota"), {}, attrs, {}, &graph).front(), dtype);
}

Value zeros(Graph& graph, const Shape& shape, DType dtype) { return full(graph, shape, 0, dtype); }
Value ones(Graph& graph, const Shape& shape, DType dtype) { return full(graph, shape, 1, dtype); }
Value full_like(const Value& a, Number value) { return call("full_like", {a}, {{"value", value.attr()}}); }

Value constant(Graph& graph, const Shape& shape, std::span<const double> values, DType dtype) {
  const Attrs attrs{{"values", Floats(values.begin(), values.end())}, {"shape", to_ints(shape)}, {"dtype", dtype}};
  return call(*find_op("constant"), {}, attrs, {}, &graph).front();
}

Value constant(Graph& graph, const Shape& shape, std::span<const std::int64_t> values, DType dtype) {
  const Attrs attrs{{"values", exact_numbers(values)}, {"shape", to_ints(shape)}, {"dtype", dtype}};
  return call(*find_op("constant"), {}, attrs, {}, &graph).front();
}

Value shape_of(const Value& a) { return call("shape", {a}); }

}  // namespace paoding
