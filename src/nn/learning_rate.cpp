// SPDX-License-Identifier: Apache-2.0
// Learning rates as formulas of the number of updates made: part of the graph, so that a run needs no feed for them.
#include <algorithm>
#include <numbers>

#include "base/check.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"
#include "paoding/range.h"

namespace paoding {
namespace {

Value constant(const Value& step, double value) { return full(step.graph(), {}, value, step.dtype()); }

double checked(const char* schedule, double rate, const char* name, std::int64_t steps) {
  check_range(schedule, "rate", rate, Range::at_least(0));
  check_range(schedule, name, static_cast<double>(steps), Range::at_least(1));
  return static_cast<double>(steps);
}

// 1 / steps at the first update, 1 from update `steps` on.
Value rise(const Value& step, double steps) {
  const Value share = (step + 1.0) * (1 / steps);
  return minimum(share, constant(step, 1));
}

}  // namespace

LearningRate::LearningRate(double rate) : formula_([rate](const Value& step) { return constant(step, rate); }) {
  check_range("learning rate", "rate", rate, Range::at_least(0));
}

LearningRate linear_warmup(double rate, std::int64_t steps) {
  const double count = checked("linear_warmup", rate, "steps", steps);
  return [=](const Value& step) { return rise(step, count) * rate; };
}

LearningRate cosine_decay(double rate, std::int64_t steps, double last, std::int64_t warmup) {
  const double count = checked("cosine_decay", rate, "steps", steps);
  check_range("cosine_decay", "last", last, Range::at_least(0));
  if (warmup < 0 || warmup >= steps) {
    fail(ErrorKind::argument, "cosine_decay: warmup = {}, needs to be at least 0 and below steps = {}", warmup, steps);
  }
  const auto first = static_cast<double>(warmup);
  return [=](const Value& step) {
    const Value share = (step - first) * (1 / (count - first));
    const Value done = minimum(maximum(share, constant(step, 0)), constant(step, 1));
    const Value decayed = last + (1.0 + call("cos", {done * std::numbers::pi})) * ((rate - last) / 2);
    return warmup == 0 ? decayed : select(less(step, constant(step, first)), rise(step, first) * rate, decayed);
  };
}

LearningRate step_decay(double rate, std::int64_t every, double factor) {
  const double count = checked("step_decay", rate, "every", every);
  check_range("step_decay", "factor", factor, Range::above(0));
  return [=](const Value& step) {
    return call("pow", {constant(step, factor), call("floor", {step * (1 / count)})}) * rate;
  };
}

LearningRate inverse_square_root(double rate, std::int64_t warmup) {
  const double count = checked("inverse_square_root", rate, "warmup", warmup);
  return [=](const Value& step) {
    const Value falling = sqrt(count / (step + 1.0));
    return minimum(rise(step, count), falling) * rate;
  };
}

}  // namespace paoding
