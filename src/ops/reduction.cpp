// SPDX-License-Identifier: Apache-2.0
// Reductions: outputs of a group with a reduce mask.
#include <algorithm>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

Shape reduced_shape(const Shape& shape, const std::vector<int>& axes, bool keepdims) {
  Ints dims;
  for (int axis = 0; axis < shape.rank(); ++axis) {
    if (!std::binary_search(axes.begin(), axes.end(), axis)) {
      dims.push_back(shape[axis]);
    } else if (keepdims) {
      dims.push_back(1);
    }
  }
  return Shape{std::span<const std::int64_t>(dims)};
}

std::vector<Type> infer_sum(const OpCall& call) {
  const Type& a = call.inputs[0];
  if (a.dtype == DType::boolean) call.fail(ErrorKind::dtype, "a is bool; cast it to an integer first");
  const std::vector<int> axes = plain_axes(call, call.attrs.get_ints("axes"), a.shape.rank());
  return {Type{a.dtype, reduced_shape(a.shape, axes, call.attrs.get_bool("keepdims"))}};
}

Values sum_gradient(const GradCall& call) {
  const Shape& shape = call.inputs[0].shape();
  const std::vector<int> axes = plain_axes(call.node.attrs.get_ints("axes"), shape.rank());
  return {expand(reshape(call.grads[0], reduced_shape(shape, axes, true)), shape)};
}

Values sum_lift(const LiftCall& call) {
  const int rank = call.inputs[0].shape().rank() - 1;
  Ints axes;
  for (int axis : plain_axes(call.node.attrs.get_ints("axes"), rank)) axes.push_back(axis + 1);
  if (axes.empty()) return {call.inputs[0]};  // a sum over no axis (of a scalar) is the value itself
  return {sum(call.inputs[0], axes, call.node.attrs.get_bool("keepdims"))};
}

}  // namespace

void register_reduction_ops() {
  // ---- sum ----
  register_op({
      .name = "sum",
      .summary = "sum over axes",
      .kind = OpKind::reduction,
      .inputs = {"a"},
      .attrs = {{.name = "axes", .example = Ints{}, .doc = "axes to sum over; all when empty"},
                {.name = "keepdims", .example = false, .doc = "keep them as extent 1"}},
      .infer = infer_sum,
      .gradient = sum_gradient,
      .lift = sum_lift,
      .cases = {{.shapes = {{4, 3, 5}}},
                {.shapes = {{4, 3, 5}}, .attrs = {{"axes", Ints{1}}}},
                {.shapes = {{4, 3, 5}}, .attrs = {{"axes", Ints{0, -1}}, {"keepdims", true}}},
                {.shapes = {{0, 3}}, .attrs = {{"axes", Ints{0}}}},
                {.shapes = {{}}},
                {.shapes = {{4, 3}}, .attrs = {{"axes", Ints{2}}}, .error = "axis 2 of a value of rank 2"}},
  });
}

Value sum(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return call("sum", {a}, {{"axes", Ints(axes.begin(), axes.end())}, {"keepdims", keepdims}});
}

}  // namespace paoding
