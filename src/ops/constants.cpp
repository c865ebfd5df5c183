// SPDX-License-Identifier: Apache-2.0
// Values that are not computed: input, parameter, full, constant and what is written with them.
#include <algorithm>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "ops/views.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;
using Floats = std::vector<double>;

constexpr std::int64_t kMostConstants = 65536;  // elements of a constant: it is part of the graph's text

Ints to_ints(const Shape& shape) { return {shape.begin(), shape.end()}; }

// input and parameter are made by Graph alone; their types are their own.
std::vector<Type> infer_named(const OpCall& call) {
  call.fail(ErrorKind::argument, "is made by Graph::input or Graph::parameter, not called");
}

std::vector<Type> infer_full(const OpCall& call) {
  const DType dtype = call.attrs.get_dtype("dtype");
  const double value = call.attrs.get_float("value");
  if (!can_hold(dtype, value)) {
    call.fail(ErrorKind::argument, fmt::format("value = {}, which {} cannot hold", value, to_string(dtype)));
  }
  return {Type{dtype, Shape{std::span<const std::int64_t>(call.attrs.get_ints("shape"))}}};
}

std::vector<Type> infer_constant(const OpCall& call) {
  const Floats& values = call.attrs.get_floats("values");
  const DType dtype = call.attrs.get_dtype("dtype");
  const Shape shape{std::span<const std::int64_t>(call.attrs.get_ints("shape"))};
  const auto count = static_cast<std::int64_t>(values.size());
  if (count > kMostConstants) {
    call.fail(ErrorKind::argument,
              fmt::format("has {} values, at most {} may be part of a graph: feed them as an input, or keep them in a "
                          "parameter",
                          count, kMostConstants));
  }
  if (count != shape.elements()) {
    call.fail(ErrorKind::shape,
              fmt::format("has {} values for shape {}, which has {} elements", count, to_string(shape),
                          shape.elements()));
  }
  for (std::size_t i = 0; i < values.size(); ++i) {
    if (!can_hold(dtype, values[i])) {
      call.fail(ErrorKind::argument,
                fmt::format("values[{}] = {}, which {} cannot hold", i, values[i], to_string(dtype)));
    }
  }
  return {Type{dtype, shape}};
}

}  // namespace

bool can_hold(DType dtype, double value) {
  switch (dtype) {
    case DType::i64: return value >= -0x1p63 && value < 0x1p63;
    case DType::i32: return value > -0x1p31 - 1 && value < 0x1p31;
    case DType::u8: return value > -1 && value < 256;  // a stored u8 would wrap where one in a group does not
    default: return true;
  }
}

void register_constants() {
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

  // ---- constant ----
  register_op({
      .name = "constant",
      .summary = "a small tensor that is part of the graph",
      .kind = OpKind::structural,
      .attrs = {{.name = "values", .example = Floats{}, .required = true, .doc = "the elements, at most 65536"},
                {.name = "shape", .example = Ints{}, .doc = "extents; a scalar by default"},
                {.name = "dtype", .example = f32, .doc = "the result's dtype"}},
      .infer = infer_constant,
      .cases = {{.attrs = {{"values", Floats{1.5}}}},
                {.attrs = {{"values", Floats{0, 1, 2, 3, 4, 250}}, {"shape", Ints{2, 3}}, {"dtype", u8}}},
                {.attrs = {{"values", Floats{}}, {"shape", Ints{2, 0}}, {"dtype", f64}}},
                {.attrs = {{"values", Floats{1, 2}}, {"shape", Ints{3}}}, .error = "has 2 values for shape [3]"},
                {.attrs = {{"values", Floats{1, 300}}, {"shape", Ints{2}}, {"dtype", u8}},
                 .error = "values[1] = 300, which u8 cannot hold"}},
  });

  // ---- full_like ----
  register_op({
      .name = "full_like",
      .summary = "the shape and dtype of a, filled with value",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {{.name = "value", .example = 0.0, .required = true, .doc = "the number"}},
      .compose =
          [](std::span<const Value> in, const Attrs& attrs) {
            return Values{full(in[0].graph(), in[0].shape(), attrs.get_float("value"), in[0].dtype())};
          },
      .cases = {{.shapes = {{4, 3}}, .attrs = {{"value", 2.0}}}, {.shapes = {{}}, .attrs = {{"value", -1.0}}}},
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

Value full(Graph& graph, const Shape& shape, double value, DType dtype) {
  return call(*find_op("full"), {}, {{"value", value}, {"shape", to_ints(shape)}, {"dtype", dtype}}, {}, &graph)
      .front();
}

Value zeros(Graph& graph, const Shape& shape, DType dtype) { return full(graph, shape, 0, dtype); }
Value ones(Graph& graph, const Shape& shape, DType dtype) { return full(graph, shape, 1, dtype); }
Value full_like(const Value& a, double value) { return call("full_like", {a}, {{"value", value}}); }

Value constant(Graph& graph, const Shape& shape, std::span<const double> values, DType dtype) {
  const Attrs attrs{{"values", Floats(values.begin(), values.end())}, {"shape", to_ints(shape)}, {"dtype", dtype}};
  return call(*find_op("constant"), {}, attrs, {}, &graph).front();
}

Value shape_of(const Value& a) { return call("shape", {a}); }

}  // namespace paoding
