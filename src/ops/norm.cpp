// SPDX-License-Identifier: Apache-2.0
// Normalisation: statistics that keep their axes, then elementwise ops. They are results too, so that the gradient
// reads x and two elements a row; the derived gradient would need three passes over each row where two do.
#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/axes.h"
#include "ops/composing.h"
#include "ops/families.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

Value wide(const Value& value) { return cast(value, compute_dtype(value.dtype())); }

// How many elements a row has, as a factor.
double elements_of(const Shape& shape, const Ints& axes) {
  double count = 1;
  for (std::int64_t axis : axes)
    count *= static_cast<double>(shape[static_cast<int>(axis < 0 ? axis + shape.rank() : axis)]);
  return count;
}

void check_affine(const char* op, const Value& x, const char* name, const Value& affine) {
  Shape joint;
  if (broadcast(x.shape(), affine.shape(), &joint) && joint == x.shape()) return;
  fail_in_scope(op, x, ErrorKind::shape,
                fmt::format("{} has shape {}, which does not broadcast to {} of x", name, to_string(affine.shape()),
                            to_string(x.shape())));
}

void check_input(const char* op, const Value& x, const Ints& axes) {
  const Type& type = x.type();
  const Attrs attrs;
  const OpCall call{*find_op(op), std::span(&type, 1), attrs, {}, x.graph().scope};
  if (!is_float(type.dtype))
    call.fail(ErrorKind::dtype, fmt::format("x is {}, needed are floats", to_string(type.dtype)));
  if (axes.empty()) call.fail(ErrorKind::argument, "axes are empty");
  plain_axes(call, axes, type.shape.rank());
}

// ---- mean and variance ----

void check_normalize(const char* op, std::span<const Value> in, const Attrs& attrs) {
  check_input(op, in[0], attrs.get_ints("axes"));
  check_range(op, "epsilon", attrs.get_float("epsilon"), Range::at_least(0));
  check_affine(op, in[0], "gamma", in[1]);
  check_affine(op, in[0], "beta", in[2]);
}

// The first element of every row, roughly: near enough to its mean that sums of squared distances from it lose nothing.
// (In 16 bits, so that nobody takes x itself for something that is wanted in more.)
Value near_means(const Value& x, const Ints& axes) {
  Value first = x;
  for (const int axis : plain_axes(axes, x.shape().rank())) first = slice(first, axis, 0, 1);
  return cast(cast(first, bf16), compute_dtype(x.dtype()));
}

// Where rows are spread over all images, kernels of their own make statistics and results, and each had better read x
// (of 16 bits, perhaps) than a difference x - mean in f32 that one of them would have to write. So no value of that
// size has two readers: (x - mean) factor is x factor - mean factor, the second of them one element a row. That loses
// no more than rounding x has lost. Mean and variance come from one read: with d = x - a number near the row's mean,
// mean = that + mean(d), variance = mean(d^2) - mean(d)^2.
Values compose_batch_norm(std::span<const Value> in, const Attrs& attrs) {
  const Ints axes = attrs.get_ints("axes");
  check_normalize("batch_norm", in, attrs);
  const Value x = wide(in[0]);
  Value center, variance;
  if (x.shape().elements() == 0) {
    center = mean(x, axes, true);
    variance = mean(square(x - center), axes, true);
  } else {
    const Value near = near_means(in[0], axes), distance = x - near;
    const Value shift = mean(distance, axes, true);
    center = near + shift;
    variance = maximum(mean(square(distance), axes, true) - square(shift), 0.0);
  }
  const Value factor = rsqrt(variance + attrs.get_float("epsilon")) * wide(in[1]);
  return {cast(x * factor + (wide(in[2]) - center * factor), in[0].dtype()), center, variance};
}

Values compose_layer_norm(std::span<const Value> in, const Attrs& attrs) {
  const Ints axes = attrs.get_ints("axes");
  check_normalize("layer_norm", in, attrs);
  const Value x = wide(in[0]), center = mean(x, axes, true), offset = x - center;
  const Value variance = mean(offset * offset, axes, true);
  const Value scale = rsqrt(variance + attrs.get_float("epsilon"));
  const Value y = offset * scale * wide(in[1]) + wide(in[2]);
  return {cast(y, in[0].dtype()), center, variance};
}

// With n = (x - mean) s, s = 1 / sqrt(variance + epsilon), h = g gamma and means over the row:
// dx = s (h - mean(h) - n mean(h n)), dgamma = g n, dbeta = g; the driver sums the last two.
Values normalize_gradient(const GradCall& call) {
  const Ints& axes = call.node.attrs.get_ints("axes");
  const Value x = wide(call.inputs[0]), gamma = wide(call.inputs[1]), offset = x - call.outputs[1];
  const double count = elements_of(x.shape(), axes);
  Values result(3);
  if (call.grads[0].valid()) {
    const Value g = wide(call.grads[0]), scale = rsqrt(call.outputs[2] + call.node.attrs.get_float("epsilon"));
    const Value n = offset * scale;
    if (call.wanted[0]) {
      const Value h = g * gamma;
      const Value mean_h = mean(h, axes, true), mean_hn = mean(h * n, axes, true);
      result[0] = (h - mean_h - n * mean_hn) * scale;
    }
    if (call.wanted[1]) result[1] = g * n;
    if (call.wanted[2]) result[2] = g;
  }
  const auto add = [&](const Value& term) { result[0] = result[0].valid() ? result[0] + term : term; };
  if (call.wanted[0] && call.grads[1].valid()) add(expand(call.grads[1] * (1 / count), x.shape()));
  if (call.wanted[0] && call.grads[2].valid()) add(offset * (call.grads[2] * (2 / count)));
  return result;
}

// Whether there is one element a row.
bool is_per_row(const Value& affine, const Shape& x, const Ints& axes) {
  const Shape& extents = affine.shape();
  return std::all_of(axes.begin(), axes.end(), [&](std::int64_t axis) {
    const std::int64_t behind = (axis < 0 ? axis : axis - x.rank()) + extents.rank();
    return behind < 0 || extents[static_cast<int>(behind)] == 1;
  });
}

// The same for rows that are spread, with sums over rows that both dx and dgamma read:
// dx = s gamma (g - mean(g) - n mean(g n)) = g a + x b + c.
Values batch_norm_gradient(const GradCall& call) {
  const Ints& axes = call.node.attrs.get_ints("axes");
  const Shape& extents = call.inputs[0].shape();
  const bool is_plain = call.grads[0].valid() && !call.grads[1].valid() && !call.grads[2].valid();
  if (!is_plain || !is_per_row(call.inputs[1], extents, axes) || !is_per_row(call.inputs[2], extents, axes)) {
    return normalize_gradient(call);
  }
  const Value x = wide(call.inputs[0]), gamma = wide(call.inputs[1]), g = wide(call.grads[0]), center = call.outputs[1];
  const Value scale = rsqrt(call.outputs[2] + call.node.attrs.get_float("epsilon"));
  const Value sum_g = sum(g, axes, true), sum_gn = sum(g * (x * scale - center * scale), axes, true);
  Values result{{}, sum_gn, sum_g};
  if (call.wanted[0]) {
    const double share = 1 / elements_of(extents, axes);
    const Value a = scale * gamma, b = a * scale * sum_gn * -share;
    result[0] = g * a + (x * b - (center * b + a * sum_g * share));
  }
  return result;
}

void register_normalize(const char* name, const char* summary, Values (*compose)(std::span<const Value>, const Attrs&),
                        Values (*gradient)(const GradCall&), const Ints& axes, const std::vector<OpCase>& cases) {
  register_op({
      .name = name,
      .summary = summary,
      .kind = OpKind::composed,
      .inputs = {"x", "gamma", "beta"},
      .attrs = {{.name = "axes", .example = axes, .doc = "axes of a row"},
                {.name = "epsilon", .example = 1e-5, .doc = "added to the variance"}},
      .gradient = gradient,
      .compose = compose,
      .cases = cases,
  });
}

// ---- mean square ----

Values compose_rms_norm(std::span<const Value> in, const Attrs& attrs) {
  const Ints axes{-1};
  check_input("rms_norm", in[0], axes);
  check_range("rms_norm", "epsilon", attrs.get_float("epsilon"), Range::at_least(0));
  check_affine("rms_norm", in[0], "gamma", in[1]);
  const Value x = wide(in[0]), square = mean(x * x, axes, true);
  const Value y = x * rsqrt(square + attrs.get_float("epsilon")) * wide(in[1]);
  return {cast(y, in[0].dtype()), square};
}

Values rms_norm_gradient(const GradCall& call) {
  const Ints axes{-1};
  const Value x = wide(call.inputs[0]), gamma = wide(call.inputs[1]);
  Values result(2);
  if (call.grads[0].valid()) {
    const Value g = wide(call.grads[0]), scale = rsqrt(call.outputs[1] + call.node.attrs.get_float("epsilon"));
    const Value n = x * scale;
    if (call.wanted[0]) {
      const Value h = g * gamma, mean_hn = mean(h * n, axes, true);
      result[0] = (h - n * mean_hn) * scale;
    }
    if (call.wanted[1]) result[1] = g * n;
  }
  if (call.wanted[0] && call.grads[1].valid()) {
    const Value term = x * (call.grads[1] * (2 / elements_of(x.shape(), axes)));
    result[0] = result[0].valid() ? result[0] + term : term;
  }
  return result;
}

Value one_or(const Value& given, const Value& like, double value) {
  return given.valid() ? given : full(like.graph(), {}, value, like.dtype());
}

}  // namespace

void register_norm_ops() {
  // ---- layer_norm ----
  register_normalize(
      "layer_norm", "(x - mean) / sqrt(variance + epsilon) * gamma + beta over axes; mean, variance",
      compose_layer_norm, normalize_gradient, Ints{-1},
      {{.shapes = {{4, 6}, {6}, {6}}},
       {.shapes = {{3, 4, 5}, {4, 5}, {}}, .attrs = {{"axes", Ints{1, 2}}}},
       {.shapes = {{0, 6}, {6}, {6}}},
       {.shapes = {{2, 600}, {600}, {600}}},
       {.shapes = {{4, 6}, {2, 4, 6}, {6}}, .error = "gamma has shape [2, 4, 6]"},
       {.shapes = {{4, 6}, {6}, {5}}, .error = "beta has shape [5]"},
       {.shapes = {{4, 6}, {6}, {6}}, .attrs = {{"axes", Ints{2}}}, .error = "axis 2 of a value of rank 2"},
       {.shapes = {{4, 6}, {6}, {6}}, .attrs = {{"epsilon", -1e-5}}, .error = "epsilon = -1e-05"}});

  // ---- batch_norm ----
  register_normalize("batch_norm", "layer_norm over the axes that are not channels; mean, variance", compose_batch_norm,
                     batch_norm_gradient, Ints{0},
                     {{.shapes = {{5, 3}, {3}, {3}}},
                      {.shapes = {{4, 3, 2, 2}, {3, 1, 1}, {3, 1, 1}}, .attrs = {{"axes", Ints{0, 2, 3}}}}});

  // ---- rms_norm ----
  register_op({
      .name = "rms_norm",
      .summary = "x / sqrt(mean(x^2) + epsilon) * gamma over the last axis; the mean square",
      .kind = OpKind::composed,
      .inputs = {"x", "gamma"},
      .attrs = {{.name = "epsilon", .example = 1e-6, .doc = "added to the mean square"}},
      .gradient = rms_norm_gradient,
      .compose = compose_rms_norm,
      .cases = {{.shapes = {{4, 6}, {6}}},
                {.shapes = {{2, 3, 4}, {}}},
                {.shapes = {{4, 6}, {6}}, .attrs = {{"epsilon", -1.0}}, .error = "epsilon = -1"},
                {.shapes = {{4, 6}, {5}}, .error = "gamma has shape [5]"}},
  });
}

Value layer_norm(const Value& x, const Value& gamma, const Value& beta, std::span<const std::int64_t> axes,
                 double epsilon) {
  const Ints over = axes.empty() ? Ints{-1} : Ints(axes.begin(), axes.end());
  return call("layer_norm", {x, one_or(gamma, x, 1), one_or(beta, x, 0)}, {{"axes", over}, {"epsilon", epsilon}});
}

Value rms_norm(const Value& x, const Value& gamma, double epsilon) {
  return call("rms_norm", {x, one_or(gamma, x, 1)}, {{"epsilon", epsilon}});
}

Value batch_norm(const Value& x, const Value& gamma, const Value& beta, const Value& running_mean,
                 const Value& running_variance, const BatchNormOptions& options) {
  const char* op = "batch_norm";
  const int rank = x.shape().rank();
  if (rank < 2)
    fail_in_scope(op, x, ErrorKind::shape, fmt::format("x has shape {}, needed is [N, C, ..]", to_string(x.shape())));
  check_range(op, "momentum", options.momentum, Range::between(0, 1));
  check_range(op, "epsilon", options.epsilon, Range::at_least(0));
  const std::int64_t channels = x.shape()[1];
  Ints along(static_cast<std::size_t>(rank - 1), 1);  // [C, 1, ..]: beside the axes after the channels
  along[0] = channels;
  const auto per_channel = [&](const char* name, const Value& value) {
    if (value.valid() && !(value.shape() == Shape{channels})) {
      fail_in_scope(op, x, ErrorKind::shape,
                    fmt::format("{} has shape {}, needed is [{}]", name, to_string(value.shape()), channels));
    }
    return value.valid() ? reshape(value, along) : value;
  };
  const Value scale = per_channel("gamma", gamma), shift = per_channel("beta", beta);
  const Value old_mean = per_channel("running_mean", running_mean);
  const Value old_variance = per_channel("running_variance", running_variance);
  if (!options.training) {
    if (!old_mean.valid() || !old_variance.valid()) {
      fail_in_scope(op, x, ErrorKind::argument, "has no running mean and variance, which it needs outside of training");
    }
    const Value factor = rsqrt(wide(old_variance) + options.epsilon) * wide(one_or(scale, x, 1));
    return cast((wide(x) - wide(old_mean)) * factor + wide(one_or(shift, x, 0)), x.dtype());
  }
  Ints axes{0};
  for (int axis = 2; axis < rank; ++axis) axes.push_back(axis);
  const Values made = call(*find_op(op), std::vector{x, one_or(scale, x, 1), one_or(shift, x, 0)},
                           {{"axes", axes}, {"epsilon", options.epsilon}});
  const double count = elements_of(x.shape(), axes);
  const auto update = [&](const Value& running, const Value& now, double factor) {
    if (!running.valid()) return;
    const Value batch = reshape(now, Shape{channels}) * (factor * options.momentum);
    assign(running, cast(wide(running) * (1 - options.momentum) + batch, running.dtype()));
  };
  update(running_mean, made[1], 1);
  update(running_variance, made[2], count > 1 ? count / (count - 1) : 1);
  return made[0];
}

}  // namespace paoding
