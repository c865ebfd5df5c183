// SPDX-License-Identifier: Apache-2.0
// sort, topk, argsort, cumsum, cumprod. Kernels: sort_cpu.cpp.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

AttrSpec axis_attr(std::int64_t axis) {
  return {.name = "axis", .example = axis, .doc = "negative counts from the end"};
}

int axis_of(const Node& node) {
  const auto axis = static_cast<int>(node.attrs.get_int("axis"));
  return axis < 0 ? axis + node.types[0].shape.rank() : axis;
}

// The attributes of the node for a value with one more axis in front.
Attrs lifted_attrs(const LiftCall& call) {
  Attrs attrs = call.node.attrs;
  attrs.set("axis", std::int64_t{axis_of(call.node) + 1});
  return attrs;
}

Values lift_along_axis(const LiftCall& call) { return paoding::call(*call.node.op, call.inputs, lifted_attrs(call)); }

std::vector<Type> infer_sort(const OpCall& call) {
  const Type& a = call.inputs[0];
  plain_axis(call, call.attrs.get_int("axis"), a.shape.rank());
  return {a, Type{i64, a.shape}};
}

std::vector<Type> infer_topk(const OpCall& call) {
  const Type& a = call.inputs[0];
  const int axis = plain_axis(call, call.attrs.get_int("axis"), a.shape.rank());
  const std::int64_t k = call.attrs.get_int("k");
  if (k < 0 || k > a.shape[axis]) {
    call.fail(ErrorKind::shape,
              fmt::format("k = {}, but axis {} of a, {}, has extent {}", k, axis, to_string(a.shape), a.shape[axis]));
  }
  const Shape shape = a.shape.with_dim(axis, k);
  return {Type{a.dtype, shape}, Type{i64, shape}};
}

// Elements that were moved take their gradients back with them.
Values sort_gradient(const GradCall& call) {
  if (!call.grads[0].valid()) return {Value()};
  const int axis = axis_of(call.node);
  return {scatter_add_elements(call.outputs[1], call.grads[0], axis, call.inputs[0].shape()[axis])};
}

std::vector<Type> infer_cumsum(const OpCall& call) {
  const Type& a = call.inputs[0];
  if (a.dtype == boolean) call.fail(ErrorKind::dtype, "a is bool; cast it to an integer first");
  plain_axis(call, call.attrs.get_int("axis"), a.shape.rank());
  return {a};
}

// Products of 1, 2, 4 .. neighbours (Hillis, Steele 1986): no element is divided by, so a gradient of any order is
// right where one is 0.
Values compose_cumprod(std::span<const Value> in, const Attrs& attrs) {
  const Type type = in[0].type();
  const OpCall call{*find_op("cumprod"), std::span(&type, 1), attrs, {}, in[0].graph().scope};
  if (type.dtype == boolean) call.fail(ErrorKind::dtype, "a is bool; cast it to an integer first");
  const int axis = plain_axis(call, attrs.get_int("axis"), type.shape.rank());
  const bool reverse = attrs.get_bool("reverse");
  const std::int64_t extent = type.shape[axis];
  if (type.shape.elements() == 0) return {in[0]};
  // The part that has a neighbour `distance` before it (after it, in reverse), that neighbour, and the others.
  const auto moved = [&](const Value& a, std::int64_t distance) {
    return reverse ? slice(a, axis, distance, extent) : slice(a, axis, 0, extent - distance);
  };
  const auto rest = [&](const Value& a, std::int64_t distance) {
    return reverse ? slice(a, axis, extent - distance, extent) : slice(a, axis, 0, distance);
  };
  const auto concatenated = [&](const Value& first, const Value& others) {
    return concat(reverse ? std::array{others, first} : std::array{first, others}, axis);
  };
  Value products = is_float(type.dtype) ? cast(in[0], compute_dtype(type.dtype)) : in[0];
  for (std::int64_t distance = 1; distance < extent; distance *= 2) {
    const Value later = reverse ? slice(products, axis, 0, extent - distance) : slice(products, axis, distance, extent);
    products = concatenated(rest(products, distance), later * moved(products, distance));
  }
  if (attrs.get_bool("exclusive")) {
    const Value one = full(products.graph(), type.shape.with_dim(axis, 1), 1, products.dtype());
    products = extent == 1 ? one : concatenated(one, moved(products, 1));
  }
  return {cast(products, type.dtype)};
}

OpCost sort_cost(const CostCall& call) {
  const auto elements = static_cast<double>(call.inputs[0].shape.elements());
  return {.flops = elements * std::log2(std::max(elements, 2.0))};
}

}  // namespace

void register_sort_ops() {
  register_op({
      .name = "sort",
      .summary = "a in order along axis, and where each element came from; stable, NaN counts as greatest",
      .kind = OpKind::kernel,
      .inputs = {"a"},
      .attrs = {axis_attr(-1), {.name = "descending", .example = false, .doc = "the greatest first"}},
      .cost = sort_cost,
      .precision = PrecisionRule::exact,
      .infer = infer_sort,
      .gradient = sort_gradient,
      .lift = lift_along_axis,
      .cases = {{.shapes = {{4, 9}}},
                {.shapes = {{7}}, .attrs = {{"descending", true}}},
                {.shapes = {{2, 6, 3}}, .attrs = {{"axis", std::int64_t{1}}}},
                {.shapes = {{2, 0}}},
                {.shapes = {{3, 1}}},
                {.shapes = {{}}, .error = "axis -1 of a value of rank 0"}},
  });

  register_op({
      .name = "argsort",
      .summary = "where the elements of a in order along axis come from",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {axis_attr(-1), {.name = "descending", .example = false, .doc = "the greatest first"}},
      .compose = [](std::span<const Value> in,
                    const Attrs& attrs) { return Values{call(*find_op("sort"), in, attrs)[1]}; },
      .cases = {{.shapes = {{4, 9}}},
                {.shapes = {{7, 2}}, .attrs = {{"axis", std::int64_t{0}}, {"descending", true}}, .dtypes = {i64}}},
  });

  register_op({
      .name = "topk",
      .summary = "the k greatest (or least) elements along axis in order, and where they came from",
      .kind = OpKind::kernel,
      .inputs = {"a"},
      .attrs = {{.name = "k", .example = std::int64_t{1}, .required = true, .doc = "how many"},
                axis_attr(-1),
                {.name = "largest", .example = true, .doc = "the greatest in descending order, else the least"}},
      .cost = sort_cost,
      .precision = PrecisionRule::exact,
      .infer = infer_topk,
      .gradient = sort_gradient,
      .lift = lift_along_axis,
      .cases = {{.shapes = {{4, 9}}, .attrs = {{"k", std::int64_t{3}}}},
                {.shapes = {{5, 3}}, .attrs = {{"k", std::int64_t{2}}, {"axis", std::int64_t{0}}, {"largest", false}}},
                {.shapes = {{2, 4}}, .attrs = {{"k", std::int64_t{0}}}},
                {.shapes = {{2, 4}}, .attrs = {{"k", std::int64_t{4}}}},
                {.shapes = {{2, 4}}, .attrs = {{"k", std::int64_t{5}}}, .error = "k = 5, but axis 1 of a"}},
  });

  register_op({
      .name = "cumsum",
      .summary = "running sums along axis",
      .kind = OpKind::kernel,
      .inputs = {"a"},
      .attrs = {axis_attr(0),
                {.name = "exclusive", .example = false, .doc = "without the element itself"},
                {.name = "reverse", .example = false, .doc = "from the end"}},
      .infer = infer_cumsum,
      .gradient =
          [](const GradCall& call) {
            return Values{cumsum(call.grads[0], axis_of(call.node), call.node.attrs.get_bool("exclusive"),
                                 !call.node.attrs.get_bool("reverse"))};
          },
      .lift = lift_along_axis,
      .cases = {{.shapes = {{9}}},
                {.shapes = {{4, 6}}, .attrs = {{"axis", std::int64_t{-1}}, {"exclusive", true}}},
                {.shapes = {{2, 5, 3}}, .attrs = {{"axis", std::int64_t{1}}, {"reverse", true}}},
                {.shapes = {{4, 70}}, .attrs = {{"exclusive", true}, {"reverse", true}}},
                {.shapes = {{0, 3}}},
                {.shapes = {{3}}, .dtypes = {boolean}, .error = "a is bool"}},
  });

  register_op({
      .name = "cumprod",
      .summary = "running products along axis",
      .kind = OpKind::composed,
      .inputs = {"a"},
      .attrs = {axis_attr(0),
                {.name = "exclusive", .example = false, .doc = "without the element itself"},
                {.name = "reverse", .example = false, .doc = "from the end"}},
      .compose = compose_cumprod,
      .cases = {{.shapes = {{9}}},
                {.shapes = {{4, 6}}, .attrs = {{"axis", std::int64_t{-1}}, {"exclusive", true}}},
                {.shapes = {{2, 5, 3}}, .attrs = {{"axis", std::int64_t{1}}, {"reverse", true}}},
                {.shapes = {{2, 19}}, .attrs = {{"axis", std::int64_t{1}}, {"exclusive", true}, {"reverse", true}}},
                {.shapes = {{3, 1}}, .attrs = {{"axis", std::int64_t{1}}, {"exclusive", true}}},
                {.shapes = {{1, 4}}},
                {.shapes = {{0, 3}}},
                {.shapes = {{3, 0}}},
                {.shapes = {{}}, .error = "axis 0 of a value of rank 0"},
                {.shapes = {{3}}, .attrs = {{"axis", std::int64_t{-2}}}, .error = "axis -2 of a value of rank 1"},
                {.shapes = {{3}}, .dtypes = {boolean}, .error = "a is bool"}},
  });
}

Sorted sort(const Value& a, int axis, bool descending) {
  const Values made = call(*find_op("sort"), std::array{a}, {{"axis", std::int64_t{axis}}, {"descending", descending}});
  return {made[0], made[1]};
}

Value argsort(const Value& a, int axis, bool descending) {
  return call("argsort", {a}, {{"axis", std::int64_t{axis}}, {"descending", descending}});
}

Sorted topk(const Value& a, std::int64_t k, int axis, bool largest) {
  const Values made =
      call(*find_op("topk"), std::array{a}, {{"k", k}, {"axis", std::int64_t{axis}}, {"largest", largest}});
  return {made[0], made[1]};
}

Value cumsum(const Value& a, int axis, bool exclusive, bool reverse) {
  return call("cumsum", {a}, {{"axis", std::int64_t{axis}}, {"exclusive", exclusive}, {"reverse", reverse}});
}

Value cumprod(const Value& a, int axis, bool exclusive, bool reverse) {
  return call("cumprod", {a}, {{"axis", std::int64_t{axis}}, {"exclusive", exclusive}, {"reverse", reverse}});
}

}  // namespace paoding
