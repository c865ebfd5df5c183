// SPDX-License-Identifier: Apache-2.0
// Softmax and its logarithm: reductions that keep their axis, then elementwise ops, which one kernel can do in a pass
// over each row. Their gradients are given: the derived ones would read the unnormalised exponentials again, and keep
// them for it.
#include <array>

#include "ops/axes.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

struct Row {
  Value wide;  // in the dtype that is computed in
  std::array<std::int64_t, 1> axis;
};

Row row_of(std::span<const Value> in, const Attrs& attrs, const char* op) {
  const Type& type = in[0].type();
  const OpCall call{*find_op(op), std::span(&type, 1), attrs, {}, in[0].graph().scope};
  if (!is_float(type.dtype))
    call.fail(ErrorKind::dtype, "a is " + std::string(to_string(type.dtype)) + ", needed are floats");
  const int axis = plain_axis(call, attrs.get_int("axis"), type.shape.rank());
  return {cast(in[0], compute_dtype(type.dtype)), {axis}};
}

Values compose_softmax(std::span<const Value> in, const Attrs& attrs) {
  const auto [a, axis] = row_of(in, attrs, "softmax");
  const Value e = exp(a - max(a, axis, true));
  return {cast(e / sum(e, axis, true), in[0].dtype())};
}

Values softmax_gradient(const GradCall& call) {
  const Value& y = call.outputs[0];
  const DType wide = compute_dtype(y.dtype());
  const std::array axis{call.node.attrs.get_int("axis")};
  const Value wide_y = cast(y, wide), g = cast(call.grads[0], wide);
  const Value shared = sum(g * wide_y, axis, true);
  return {cast(wide_y * (g - shared), y.dtype())};
}

Values compose_log_softmax(std::span<const Value> in, const Attrs& attrs) {
  const auto [a, axis] = row_of(in, attrs, "log_softmax");
  const Value shifted = a - max(a, axis, true);
  return {cast(shifted - log(sum(exp(shifted), axis, true)), in[0].dtype())};
}

Values log_softmax_gradient(const GradCall& call) {
  const Value& y = call.outputs[0];
  const DType wide = compute_dtype(y.dtype());
  const std::array axis{call.node.attrs.get_int("axis")};
  const Value g = cast(call.grads[0], wide);
  const Value total = sum(g, axis, true);
  return {cast(g - exp(cast(y, wide)) * total, y.dtype())};
}

// A function, because ops may be registered before the constants of this file exist: in a static library.
const std::vector<OpCase>& softmax_cases() {
  static const std::vector<OpCase> made{
      {.shapes = {{4, 7}}},
      {.shapes = {{3, 4, 5}}, .attrs = {{"axis", std::int64_t{1}}}},
      {.shapes = {{3, 4}}, .attrs = {{"axis", std::int64_t{-2}}}},
      {.shapes = {{1}}},
      {.shapes = {{0, 5}}},
      {.shapes = {{5, 0}}},
      {.shapes = {{2, 600}}},
      {.shapes = {{}}, .error = "axis -1 of a value of rank 0"},
      {.shapes = {{4}}, .dtypes = {i32}, .error = "a is i32"},
  };
  return made;
}

}  // namespace

void register_softmax_ops() {
  const std::vector<AttrSpec> attrs = {
      {.name = "axis", .example = std::int64_t{-1}, .doc = "negative counts from the end"}};

  // ---- softmax ----
  register_op({
      .name = "softmax",
      .summary = "e^a over its sum along axis",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = attrs,
      .gradient = softmax_gradient,
      .compose = compose_softmax,
      .cases = softmax_cases(),
  });

  // ---- log_softmax ----
  register_op({
      .name = "log_softmax",
      .summary = "the logarithm of softmax along axis",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = attrs,
      .gradient = log_softmax_gradient,
      .compose = compose_log_softmax,
      .cases = softmax_cases(),
  });
}

Value softmax(const Value& a, std::int64_t axis) { return call("softmax", {a}, {{"axis", axis}}); }
Value log_softmax(const Value& a, std::int64_t axis) { return call("log_softmax", {a}, {{"axis", axis}}); }

}  // namespace paoding
