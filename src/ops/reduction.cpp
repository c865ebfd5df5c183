// SPDX-License-Identifier: Apache-2.0
// Reductions: groups compute sum, max, min and prod; the others are composed of them.
#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

#include "base/check.h"
#include "ops/axes.h"
#include "ops/families.h"
#include "ops/views.h"
#include "paoding/autodiff.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/range.h"

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
  return to_shape(dims);
}

std::vector<Type> infer_reduction(const OpCall& call) {
  const Type& a = call.inputs[0];
  const std::vector<int> axes = plain_axes(call, call.attrs.get_ints("axes"), a.shape.rank());
  return {Type{a.dtype, reduced_shape(a.shape, axes, call.attrs.get_bool("keepdims"))}};
}

std::vector<Type> infer_number_reduction(const OpCall& call) {
  if (call.inputs[0].dtype == DType::boolean) call.fail(ErrorKind::dtype, "a is bool; cast it to an integer first");
  return infer_reduction(call);
}

Value reduce(const std::string& op, const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return call(op, {a}, {{"axes", Ints(axes.begin(), axes.end())}, {"keepdims", keepdims}});
}

Values reduction_lift(const LiftCall& call) {
  const int rank = call.inputs[0].shape().rank() - 1;
  Ints axes;
  for (int axis : plain_axes(call.node.attrs.get_ints("axes"), rank)) axes.push_back(axis + 1);
  if (axes.empty()) return {call.inputs[0]};  // of no axis (of a scalar): the value itself
  return {reduce(call.node.op->name, call.inputs[0], axes, call.node.attrs.get_bool("keepdims"))};
}

// ---- gradients ----

// f16 and bf16 are too coarse to count or to sum in.
Value widened(const Value& a) { return a.dtype() == DType::f16 || a.dtype() == DType::bf16 ? cast(a, DType::f32) : a; }

// A value of the reduction's result with the reduced axes as extent 1.
Value with_kept_axes(const GradCall& call, const Value& value) {
  const Shape& shape = call.inputs[0].shape();
  return reshape(value, reduced_shape(shape, plain_axes(call.node.attrs.get_ints("axes"), shape.rank()), true));
}

Values sum_gradient(const GradCall& call) {
  return {expand(with_kept_axes(call, call.grads[0]), call.inputs[0].shape())};
}

// Those that equal the result share its gradient.
Values choice_gradient(const GradCall& call) {
  const Value &a = call.inputs[0], result = with_kept_axes(call, call.outputs[0]);
  const Value g = widened(with_kept_axes(call, call.grads[0]));
  const Value is_chosen = cast(equal(a, result), g.dtype());
  return {is_chosen * (g / sum(is_chosen, call.node.attrs.get_ints("axes"), true))};
}

Values prod_gradient(const GradCall& call) {
  const Value others =
      paoding::call("prod_others", {widened(call.inputs[0])}, {{"axes", call.node.attrs.get_ints("axes")}});
  return {with_kept_axes(call, call.grads[0]) * others};
}

// With no 0 among all, the product over the element; with one, at that one the product of the others and 0 elsewhere;
// with more, 0. Two reductions, but its derivatives, taken branch by branch, would be wrong where an element is 0.
Values compose_prod_others(std::span<const Value> in, const Attrs& attrs) {
  const OpCall call{*find_op("prod_others"), {}, attrs, {}, in[0].graph().scope};
  if (!is_float(in[0].dtype())) {
    call.fail(ErrorKind::dtype, fmt::format("a is {}, not a float; cast it first", to_string(in[0].dtype())));
  }
  plain_axes(call, attrs.get_ints("axes"), in[0].shape().rank());
  const Value a = widened(in[0]);
  const Ints& axes = attrs.get_ints("axes");
  const auto number = [&](double value) { return full(a.graph(), {}, value, a.dtype()); };
  const Value is_zero = equal(a, number(0)), others = select(is_zero, number(1), a);
  const Value product = prod(others, axes, true), zeros = sum(cast(is_zero, a.dtype()), axes, true);
  const Value at_zero = select(equal(zeros, number(1)), product, number(0));
  const Value elsewhere = select(equal(zeros, number(0)), product / others, number(0));
  return {cast(select(is_zero, at_zero, elsewhere), in[0].dtype())};
}

// The gradient of its definition without a division: the product of those before times that of those after, along the
// reduced axes as one.
Values prod_others_gradient(const GradCall& call) {
  const Value& a = call.inputs[0];
  const int rank = a.shape().rank();
  const std::vector<int> axes = plain_axes(call.node.attrs.get_ints("axes"), rank);
  if (axes.empty() || a.shape().elements() == 0) return {Value()};  // of no other: 1
  std::vector<int> permutation;
  for (int axis = 0; axis < rank; ++axis) {
    if (!std::binary_search(axes.begin(), axes.end(), axis)) permutation.push_back(axis);
  }
  permutation.insert(permutation.end(), axes.begin(), axes.end());
  const Value last = transpose(widened(a), permutation);
  const std::int64_t rows = reduced_shape(a.shape(), axes, false).elements();
  const Value row = reshape(last, Shape{rows, a.shape().elements() / rows});
  const Value others = cumprod(row, 1, true) * cumprod(row, 1, true, true);
  const Value made = cast(transpose(reshape(others, last.shape()), inverse(permutation)), a.dtype());
  return gradients(std::array{made}, std::array{a}, std::array{call.grads[0]});
}

// ---- composed ----

OpCall where(const char* op, const Value& a) {
  static const Attrs none;  // an OpCall refers to them
  return {*find_op(op), {}, none, {}, a.graph().scope};
}

void check_float(const char* op, const Value& a) {
  if (is_float(a.dtype())) return;
  where(op, a).fail(ErrorKind::dtype, fmt::format("a is {}, not a float; cast it first", to_string(a.dtype())));
}

// How many elements fall on one of the result.
double count_of(const char* op, const Value& a, const Ints& axes) {
  double count = 1;
  for (int axis : plain_axes(where(op, a), axes, a.shape().rank())) count *= static_cast<double>(a.shape()[axis]);
  return count;
}

Value is_nonzero(const Value& a) {
  if (a.dtype() == DType::boolean) return a;
  return call("logical_not", {equal(a, full(a.graph(), {}, 0, a.dtype()))});
}

Values compose_mean(std::span<const Value> inputs, const Attrs& attrs) {
  const Value& a = inputs[0];
  check_float("mean", a);
  const double count = count_of("mean", a, attrs.get_ints("axes"));
  return {cast(sum(widened(a), attrs.get_ints("axes"), attrs.get_bool("keepdims")) / count, a.dtype())};
}

Values compose_var(std::span<const Value> inputs, const Attrs& attrs) {
  check_float("var", inputs[0]);
  check_range("var", "correction", static_cast<double>(attrs.get_int("correction")), Range::at_least(0));
  const Value a = widened(inputs[0]);
  const Ints& axes = attrs.get_ints("axes");
  const double count = count_of("var", a, axes);
  const Value from_mean = a - sum(a, axes, true) / count;
  const Value squares = sum(from_mean * from_mean, axes, attrs.get_bool("keepdims"));
  return {cast(squares / std::max(count - static_cast<double>(attrs.get_int("correction")), 0.0), inputs[0].dtype())};
}

Values compose_logsumexp(std::span<const Value> inputs, const Attrs& attrs) {
  check_float("logsumexp", inputs[0]);
  const Value a = widened(inputs[0]);
  const Ints& axes = attrs.get_ints("axes");
  const std::vector<int> plain = plain_axes(where("logsumexp", a), axes, a.shape().rank());
  // Infinite maxima are not taken out: inf - inf would be NaN.
  const auto number = [&](double value) { return full(a.graph(), {}, value, a.dtype()); };
  const Value most = stop_gradient(max(a, axes, true));
  const Value shift = select(less(abs(most), number(INFINITY)), most, number(0));
  const Value result = log(sum(exp(a - shift), axes, true)) + shift;
  return {cast(reshape(result, reduced_shape(a.shape(), plain, attrs.get_bool("keepdims"))), inputs[0].dtype())};
}

// The first element that equals `best`, or is NaN.
Values compose_arg(const char* op, const Value& given, const Attrs& attrs,
                   Value (*best)(const Value&, std::span<const std::int64_t>, bool)) {
  const Value a = given.dtype() == DType::boolean ? cast(given, DType::i32) : given;
  const int axis = plain_axis(where(op, a), attrs.get_int("axis"), a.shape().rank());
  const std::int64_t extent = a.shape()[axis];
  if (extent == 0) {
    where(op, a).fail(ErrorKind::shape, fmt::format("axis {} of a {} has no element", axis, to_string(a.shape())));
  }
  const Ints axes{axis};
  Value is_best = equal(a, best(a, axes, true));
  if (is_float(a.dtype())) is_best = call("logical_or", {is_best, call("logical_not", {equal(a, a)})});
  const DType dtype = extent <= std::numeric_limits<std::int32_t>::max() ? DType::i32 : DType::i64;
  Ints aligned(static_cast<std::size_t>(a.shape().rank() - axis), 1);
  aligned[0] = extent;
  const Value index = iota(a.graph(), to_shape(aligned), 0, dtype);
  const Value none = full(a.graph(), {}, static_cast<double>(extent), dtype);
  return {cast(min(select(is_best, index, none), axes, attrs.get_bool("keepdims")), DType::i64)};
}

// A function, because ops may be registered before the constants of this file exist: in a static library.
const std::vector<AttrSpec>& reduction_attrs() {
  static const std::vector<AttrSpec> made{{.name = "axes", .example = Ints{}, .doc = "axes to reduce; all when empty"},
                                          {.name = "keepdims", .example = false, .doc = "keep them as extent 1"}};
  return made;
}

const std::vector<OpCase>& reduction_cases() {
  static const std::vector<OpCase> made{
      {.shapes = {{4, 3, 5}}},
      {.shapes = {{4, 3, 5}}, .attrs = {{"axes", Ints{1}}}},
      {.shapes = {{4, 3, 5}}, .attrs = {{"axes", Ints{0, -1}}, {"keepdims", true}}},
      {.shapes = {{2, 70}}, .attrs = {{"axes", Ints{1}}}},
      {.shapes = {{3, 0}}, .attrs = {{"axes", Ints{0}}}},
      {.shapes = {{}}},
      {.shapes = {{4, 3}}, .attrs = {{"axes", Ints{2}}}, .error = "axis 2 of a value of rank 2"},
      {.shapes = {{4, 3}}, .attrs = {{"axes", Ints{1, -1}}}, .error = "name one axis twice"}};
  return made;
}

std::vector<OpCase> with(std::vector<OpCase> cases, const std::vector<OpCase>& more) {
  cases.insert(cases.end(), more.begin(), more.end());
  return cases;
}

const OpCase& of_nothing() {
  static const OpCase made{.shapes = {{0, 3}}, .attrs = {{"axes", Ints{0}}}};
  return made;
}
const OpCase& of_bools() {
  static const OpCase made{.shapes = {{4, 9}}, .attrs = {{"axes", Ints{1}}}, .dtypes = {boolean}};
  return made;
}
const OpCase& not_of_bools() {
  static const OpCase made{.shapes = {{4, 3}}, .dtypes = {boolean}, .error = "a is bool"};
  return made;
}
const OpCase& not_of_integers() {
  static const OpCase made{.shapes = {{4, 3}}, .dtypes = {i32}, .error = "a is i32, not a float"};
  return made;
}

void register_reduction(const char* name, const char* summary, Prim combine, std::vector<Type> (*infer)(const OpCall&),
                        Values (*gradient)(const GradCall&), const std::vector<OpCase>& own_cases) {
  register_op({.name = name,
               .summary = summary,
               .kind = OpKind::reduction,
               .inputs = {"a"},
               .attrs = reduction_attrs(),
               .reduces_with = combine,
               .infer = infer,
               .gradient = gradient,
               .lift = reduction_lift,
               .cases = with(reduction_cases(), own_cases)});
}

void register_composed(const char* name, const char* summary,
                       std::function<Values(std::span<const Value>, const Attrs&)> compose, std::vector<OpCase> cases,
                       const std::vector<AttrSpec>& attrs = reduction_attrs()) {
  register_op({.name = name,
               .summary = summary,
               .kind = OpKind::composed,
               .inputs = {"a"},
               .attrs = attrs,
               .compose = std::move(compose),
               .cases = std::move(cases)});
}

}  // namespace

void register_reduction_ops() {
  // ---- reductions that groups compute ----
  register_reduction("sum", "sum over axes", Prim::add, infer_number_reduction, sum_gradient,
                     {of_nothing(), not_of_bools()});
  register_reduction("max", "the largest element over axes", Prim::maximum, infer_reduction, choice_gradient,
                     {of_nothing(), of_bools()});
  register_reduction("min", "the smallest element over axes", Prim::minimum, infer_reduction, choice_gradient,
                     {of_nothing(), of_bools()});
  register_reduction("prod", "product over axes", Prim::mul, infer_number_reduction, prod_gradient,
                     {of_nothing(), not_of_bools()});

  register_op({.name = "prod_others",
               .summary = "the product of all other elements over axes: prod's derivative",
               .kind = OpKind::composed,
               .inputs = {"a"},
               .attrs = {reduction_attrs()[0]},
               .gradient = prod_others_gradient,
               .compose = compose_prod_others,
               .cases = {{.shapes = {{4, 3, 5}}},
                         {.shapes = {{4, 3, 5}}, .attrs = {{"axes", Ints{1}}}},
                         {.shapes = {{2, 3, 4}}, .attrs = {{"axes", Ints{0, -1}}}},
                         {.shapes = {{3, 0}}, .attrs = {{"axes", Ints{0}}}},
                         {.shapes = {{}}},
                         {.shapes = {{4, 3}}, .dtypes = {i32}, .error = "a is i32, not a float"},
                         {.shapes = {{4, 3}}, .attrs = {{"axes", Ints{2}}}, .error = "axis 2 of a value of rank 2"}}});

  // ---- composed of them ----
  register_composed("mean", "sum / count over axes", compose_mean, with(reduction_cases(), {not_of_integers()}));
  register_composed("var", "sum((a - mean(a))^2) / (count - correction) over axes", compose_var,
                    with(reduction_cases(),
                         {{.shapes = {{4, 6}}, .attrs = {{"axes", Ints{1}}, {"correction", std::int64_t{1}}}},
                          {.shapes = {{4}}, .attrs = {{"correction", std::int64_t{-1}}}, .error = "correction = -1"},
                          not_of_integers()}),
                    {reduction_attrs()[0],
                     reduction_attrs()[1],
                     {.name = "correction", .example = std::int64_t{0}, .doc = "taken off the count"}});
  register_composed("logsumexp", "log(sum(e^a)) over axes", compose_logsumexp,
                    with(reduction_cases(), {of_nothing(), not_of_integers()}));
  register_composed("any", "whether any element is true, or not 0",
                    [](std::span<const Value> inputs, const Attrs& attrs) {
                      return Values{max(is_nonzero(inputs[0]), attrs.get_ints("axes"), attrs.get_bool("keepdims"))};
                    },
                    {reduction_cases()[1], of_nothing(), of_bools()});
  register_composed("all", "whether all elements are true, or not 0",
                    [](std::span<const Value> inputs, const Attrs& attrs) {
                      return Values{min(is_nonzero(inputs[0]), attrs.get_ints("axes"), attrs.get_bool("keepdims"))};
                    },
                    {reduction_cases()[1], of_nothing(), of_bools()});

  const std::vector<AttrSpec> arg_attrs = {
      {.name = "axis", .example = std::int64_t{0}, .required = true, .doc = "negative counts from the end"},
      reduction_attrs()[1]};
  const std::vector<OpCase> arg_cases = {
      {.shapes = {{4, 3, 5}}, .attrs = {{"axis", std::int64_t{1}}}},
      {.shapes = {{4, 70}}, .attrs = {{"axis", std::int64_t{-1}}, {"keepdims", true}}},
      {.shapes = {{4, 0}}, .attrs = {{"axis", std::int64_t{0}}}},
      {.shapes = {{3, 9}}, .attrs = {{"axis", std::int64_t{1}}}, .dtypes = {boolean}},
      {.shapes = {{4, 0}}, .attrs = {{"axis", std::int64_t{1}}}, .error = "has no element"},
      {.shapes = {{}}, .attrs = {{"axis", std::int64_t{0}}}, .error = "axis 0 of a value of rank 0"}};
  register_composed(
      "argmax", "index of the largest element along axis, the first of several",
      [](std::span<const Value> inputs, const Attrs& attrs) { return compose_arg("argmax", inputs[0], attrs, max); },
      arg_cases, arg_attrs);
  register_composed(
      "argmin", "index of the smallest element along axis, the first of several",
      [](std::span<const Value> inputs, const Attrs& attrs) { return compose_arg("argmin", inputs[0], attrs, min); },
      arg_cases, arg_attrs);
}

// ---- the functions of ops.h ----

Value sum(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("sum", a, axes, keepdims);
}
Value max(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("max", a, axes, keepdims);
}
Value min(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("min", a, axes, keepdims);
}
Value prod(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("prod", a, axes, keepdims);
}
Value mean(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("mean", a, axes, keepdims);
}
Value logsumexp(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("logsumexp", a, axes, keepdims);
}
Value any(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("any", a, axes, keepdims);
}
Value all(const Value& a, std::span<const std::int64_t> axes, bool keepdims) {
  return reduce("all", a, axes, keepdims);
}
Value var(const Value& a, std::span<const std::int64_t> axes, bool keepdims, std::int64_t correction) {
  const Ints list(axes.begin(), axes.end());
  return call("var", {a}, {{"axes", list}, {"keepdims", keepdims}, {"correction", correction}});
}
Value argmax(const Value& a, int axis, bool keepdims) {
  return call("argmax", {a}, {{"axis", std::int64_t{axis}}, {"keepdims", keepdims}});
}
Value argmin(const Value& a, int axis, bool keepdims) {
  return call("argmin", {a}, {{"axis", std::int64_t{axis}}, {"keepdims", keepdims}});
}

}  // namespace paoding
