// SPDX-License-Identifier: Apache-2.0
// Losses. Cross entropy keeps the logarithm of the sum as a second result: with it the gradient reads the logits once.
#include <array>

#include "base/check.h"
#include "base/one_line.h"
#include "ops/composing.h"
#include "ops/families.h"
#include "ops/index/check_indices.h"
#include "paoding/op.h"
#include "paoding/ops.h"

namespace paoding {
namespace {

constexpr std::array<std::int64_t, 1> kLast{-1};

Value with_last(const Value& value) { return reshape(value, value.shape().with_inserted(value.shape().rank(), 1)); }

// ---- cross_entropy ----

void check_cross_entropy(const Value& logits, const Value& labels, double smoothing) {
  const char* op = "cross_entropy";
  const Shape &all = logits.shape(), &rows = labels.shape();
  if (!is_float(logits.dtype())) {
    fail_in_scope(op, logits, ErrorKind::dtype,
                  fmt::format("logits are {}, needed are floats", to_string(logits.dtype())));
  }
  if (!is_integer(labels.dtype())) {
    fail_in_scope(op, logits, ErrorKind::dtype,
                  fmt::format("labels are {}, needed are integers", to_string(labels.dtype())));
  }
  if (all.rank() < 1 || !(all.with_removed(all.rank() - 1) == rows)) {
    fail_in_scope(op, logits, ErrorKind::shape,
                  fmt::format("labels have shape {}, logits {}; needed are labels [..] for logits [.., V]",
                              to_string(rows), to_string(all)));
  }
  if (!(smoothing >= 0 && smoothing < 1)) {
    fail_in_scope(op, logits, ErrorKind::argument,
                  fmt::format("label_smoothing = {}, needs to be at least 0 and below 1", smoothing));
  }
}

std::int64_t classes_of(const Value& logits) { return logits.shape()[logits.shape().rank() - 1]; }

// Whether the element of a row is the one that the label names: [.., V]. All values made of labels need this too, so
// this is where a run checks that they are classes, or negative; other readers of labels need not wait for it. A GPU
// does not check, as that would be one more launch in front of every loss.
Value is_label(const Value& logits, const Value& labels) {
  const std::int64_t classes = classes_of(logits);
  const Value checked = check_indices(labels.dtype() == i64 ? labels : cast(labels, i32), classes - 1,
                                      {.may_be_negative = true, .on_gpu = false, .what = "cross_entropy: labels"});
  return equal(iota(logits.graph(), Shape{classes}, 0, i64), with_last(cast(checked, i64)));
}

Values compose_cross_entropy(std::span<const Value> in, const Attrs& attrs) {
  const double smoothing = attrs.get_float("label_smoothing");
  check_cross_entropy(in[0], in[1], smoothing);
  const Value logits = cast(in[0], compute_dtype(in[0].dtype())), labels = cast(in[1], i64);
  const auto classes = static_cast<double>(classes_of(logits));
  const Value largest = max(logits, kLast, true);
  const Value total = sum(exp(logits - largest), kLast, true);
  const Value log_total = reshape(largest + log(total), labels.shape());
  const Value at_label = sum(select(is_label(logits, in[1]), logits, scalar_like(logits, 0)), kLast);
  Value loss = log_total - at_label * (1 - smoothing);
  if (smoothing > 0) loss = loss - sum(logits, kLast) * (smoothing / classes);
  // On a GPU the loss of a label that is no class is NaN: the root of -1, which graph text can say.
  const Value one = scalar_like(loss, 1), is_known = less(labels, scalar_like(labels, classes));
  loss = loss * sqrt(select(is_known, one, -one));
  return {select(less(labels, scalar_like(labels, 0)), scalar_like(loss, 0), loss), log_total};
}

Values cross_entropy_gradient(const GradCall& call) {
  const Value logits = cast(call.inputs[0], call.outputs[0].dtype()), labels = call.inputs[1];
  const double smoothing = call.node.attrs.get_float("label_smoothing");
  const auto classes = static_cast<double>(classes_of(logits));
  const Value likely = exp(logits - with_last(call.outputs[1]));  // softmax
  Value result;
  if (call.grads[0].valid()) {
    const Value counts = less(labels, scalar_like(labels, 0));
    const Value g = with_last(select(counts, scalar_like(logits, 0), call.grads[0]));
    const Value target = select(is_label(logits, labels), scalar_like(logits, 1 - smoothing + smoothing / classes),
                                scalar_like(logits, smoothing / classes));
    result = (likely - target) * g;
  }
  if (call.grads[1].valid()) {
    const Value of_sum = likely * with_last(call.grads[1]);
    result = result.valid() ? result + of_sum : of_sum;
  }
  return {result, Value()};
}

// ---- losses of pairs ----

LossReduction reduction_of(const char* op, const Value& at, const Attrs& attrs) {
  const std::string& name = std::get<std::string>(*attrs.find("reduction"));
  if (name == "mean") return LossReduction::mean;
  if (name == "sum") return LossReduction::sum;
  if (name == "none") return LossReduction::none;
  fail_in_scope(op, at, ErrorKind::argument,
                fmt::format("reduction = '{}', needs to be mean, sum or none", one_line(name)));
}

std::string name_of(LossReduction reduction) {
  return reduction == LossReduction::mean ? "mean" : reduction == LossReduction::sum ? "sum" : "none";
}

Value reduced(const Value& losses, LossReduction reduction) {
  if (reduction == LossReduction::none) return losses;
  return reduction == LossReduction::sum ? sum(losses) : mean(losses);
}

// A composed op of two inputs whose losses are reduced as its attribute says.
void register_pair_loss(const char* name, const char* summary, Value (*loss)(const Value&, const Value&, const Attrs&),
                        std::vector<AttrSpec> more = {}, std::vector<OpCase> more_cases = {},
                        std::function<Values(const GradCall&)> gradient = {}) {
  std::vector<AttrSpec> attrs = {{.name = "reduction", .example = std::string("mean"), .doc = "mean, sum or none"}};
  attrs.insert(attrs.end(), more.begin(), more.end());
  std::vector<OpCase> cases = {
      {.shapes = {{4, 3}, {4, 3}}},
      {.shapes = {{4, 3}, {4, 3}}, .attrs = {{"reduction", std::string("sum")}}},
      {.shapes = {{4, 3}, {3}}, .attrs = {{"reduction", std::string("none")}}},
      {.shapes = {{}, {}}},
      {.shapes = {{4}, {4}}, .attrs = {{"reduction", std::string("total")}}, .error = "reduction = 'total'"},
      {.shapes = {{4}, {4}}, .dtypes = {u8, u8}, .error = "prediction is u8"},
  };
  cases.insert(cases.end(), more_cases.begin(), more_cases.end());
  register_op({
      .name = name,
      .summary = summary,
      .kind = OpKind::composed,
      .inputs = {"prediction", "target"},
      .attrs = attrs,
      .gradient = std::move(gradient),
      .compose =
          [name, loss](std::span<const Value> in, const Attrs& given) {
            const LossReduction reduction = reduction_of(name, in[0], given);
            // A difference of u8 would wrap, and no gradient reaches an integer.
            if (!is_float(in[0].dtype()) && !is_float(in[1].dtype())) {
              fail_in_scope(name, in[0], ErrorKind::dtype,
                            fmt::format("prediction is {}, target {}, one needs to be of floats",
                                        to_string(in[0].dtype()), to_string(in[1].dtype())));
            }
            return Values{reduced(loss(in[0], in[1], given), reduction)};
          },
      .cases = cases,
  });
}

Value huber(const Value& prediction, const Value& target, const Attrs& attrs) {
  const double delta = attrs.get_float("delta");
  if (!(delta > 0)) {
    fail_in_scope("huber_loss", prediction, ErrorKind::argument, fmt::format("delta = {}, needs to be above 0", delta));
  }
  const Value d = prediction - target, size = abs(d);
  const Value near = d * d * 0.5, far = (size - delta / 2) * delta;
  return select(less(size, scalar_like(size, delta)), near, far);
}

// ---- binary cross entropy ----

// The type that logits and targets are computed in together: a target may be a bool or an integer.
std::pair<Value, Value> as_floats(const Value& logits, const Value& target) {
  const bool is_float_target = is_float(target.dtype());
  return {is_float(logits.dtype()) ? logits : cast(logits, target.dtype()),
          is_float_target ? target : cast(target, logits.dtype())};
}

// x towards 0 from below: the logit of the less likely side.
Value against(const Value& x) { return select(greater(x, 0.0), -x, x); }

// -target log(s) - (1 - target) log(1 - s) is (1 - target) x right of 0 and -target x left of it, and log(1 + e^-|x|):
// no difference of large numbers. A term whose share is 0 is 0 for infinite logits too.
Value binary_cross_entropy(const Value& logits, const Value& target, const Attrs&) {
  const auto [x, t] = as_floats(logits, target);
  const Value share = select(greater(x, 0.0), 1.0 - t, -t);
  return select(equal(share, 0.0), 0.0, share * x) + softplus(against(x));
}

// sigmoid(x) - target, with the digits of the difference where they agree. It has a rule of its own, as the
// composition's has the kink of its parts at 0.
Values binary_cross_entropy_gradient(const GradCall& call) {
  const auto [x, t] = as_floats(call.inputs[0], call.inputs[1]);
  Value g = call.grads[0];
  if (std::get<std::string>(*call.node.attrs.find("reduction")) == "mean") {
    Shape both;
    broadcast(x.shape(), t.shape(), &both);
    g = g / static_cast<double>(std::max<std::int64_t>(both.elements(), 1));
  }
  Values result(2);
  const Value unlikely = sigmoid(against(x));
  if (call.wanted[0]) result[0] = select(greater(x, 0.0), 1.0 - t - unlikely, unlikely - t) * g;
  if (call.wanted[1]) result[1] = -x * g;
  return result;
}

}  // namespace

void register_loss_ops() {
  // ---- cross_entropy ----
  register_op({
      .name = "cross_entropy",
      .summary = "log(sum(e^logits)) - logits[label] per row, and log(sum(e^logits))",
      .kind = OpKind::composed,
      .inputs = {"logits", "labels"},
      .attrs = {{.name = "label_smoothing", .example = 0.0, .doc = "share of the target spread over all classes"}},
      .gradient = cross_entropy_gradient,
      .compose = compose_cross_entropy,
      .cases = {{.shapes = {{6, 6}, {6}}, .dtypes = {f32, i64}},  // labels are 0 to 5
                {.shapes = {{2, 3, 7}, {2, 3}}, .attrs = {{"label_smoothing", 0.1}}, .dtypes = {f32, i32}},
                {.shapes = {{6}, {}}, .dtypes = {f32, i32}},
                {.shapes = {{0, 5}, {0}}, .dtypes = {f32, i32}},
                {.shapes = {{3, 700}, {3}}, .dtypes = {f32, i64}},
                {.shapes = {{6, 5}, {6}}, .error = "labels are f32"},
                {.shapes = {{6, 5}, {5}}, .dtypes = {f32, i32}, .error = "labels have shape [5]"},
                {.shapes = {{6, 5}, {6}},
                 .attrs = {{"label_smoothing", 1.0}},
                 .dtypes = {f32, i32},
                 .error = "label_smoothing = 1"}},
  });

  // ---- losses of pairs ----
  register_pair_loss("mse_loss", "(prediction - target)^2, reduced",
                     [](const Value& prediction, const Value& target, const Attrs&) {
                       const Value d = prediction - target;
                       return d * d;
                     });
  register_pair_loss(
      "l1_loss", "|prediction - target|, reduced",
      [](const Value& prediction, const Value& target, const Attrs&) { return abs(prediction - target); });
  register_pair_loss("huber_loss",
                     "d^2 / 2 for |d| < delta, else delta (|d| - delta / 2), of prediction - target, reduced", huber,
                     {{.name = "delta", .example = 1.0, .doc = "where the square becomes a line"}},
                     {{.shapes = {{4, 3}, {4, 3}}, .attrs = {{"delta", 0.37}}},
                      {.shapes = {{4}, {4}}, .attrs = {{"delta", 0.0}}, .error = "delta = 0"}});
  register_pair_loss("binary_cross_entropy_with_logits",
                     "-target log(s) - (1 - target) log(1 - s) of s = sigmoid(logits), reduced", binary_cross_entropy,
                     {}, {}, binary_cross_entropy_gradient);
}

Value cross_entropy(const Value& logits, const Value& labels, const CrossEntropyOptions& options) {
  const Value losses = call("cross_entropy", {logits, labels}, {{"label_smoothing", options.label_smoothing}});
  Value weights;
  if (options.weights.valid()) {
    weights = cast(options.weights, losses.dtype());
    if (!(weights.shape() == losses.shape())) {
      fail_in_scope(
          "cross_entropy", losses, ErrorKind::shape,
          fmt::format("weights have shape {}, labels {}", to_string(weights.shape()), to_string(losses.shape())));
    }
  }
  const Value weighted = weights.valid() ? losses * weights : losses;
  if (options.reduction == LossReduction::none) return weighted;
  if (options.reduction == LossReduction::sum) return sum(weighted);
  // Labels that do not count take their weight with them.
  const Value zero = scalar_like(losses, 0), one = scalar_like(losses, 1);
  const Value counted = select(less(labels, scalar_like(labels, 0)), zero, weights.valid() ? weights : one);
  const Value all = sum(counted);
  return sum(weighted) / select(equal(all, zero), one, all);
}

namespace {
Value pair_loss(const char* op, const Value& prediction, const Value& target, LossReduction reduction,
                Attrs attrs = {}) {
  attrs.set("reduction", name_of(reduction));
  return call(op, {prediction, target}, std::move(attrs));
}
}  // namespace

Value mse_loss(const Value& prediction, const Value& target, LossReduction reduction) {
  return pair_loss("mse_loss", prediction, target, reduction);
}
Value l1_loss(const Value& prediction, const Value& target, LossReduction reduction) {
  return pair_loss("l1_loss", prediction, target, reduction);
}
Value huber_loss(const Value& prediction, const Value& target, double delta, LossReduction reduction) {
  return pair_loss("huber_loss", prediction, target, reduction, {{"delta", delta}});
}
Value binary_cross_entropy_with_logits(const Value& logits, const Value& target, LossReduction reduction) {
  return pair_loss("binary_cross_entropy_with_logits", logits, target, reduction);
}

}  // namespace paoding
