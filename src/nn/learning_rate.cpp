// SPDX-License-Identifier: Apache-2.0
// Learning rates as formulas of the number of updates made: part of the graph, so that a run needs no feed for them.
#include <algorithm>
#include <numbers>

#include "base/check.h"
#include "paoding/ops.h"
#include "paoding/optimizer.h"

namespace paoding {
namespace {

Value constant(const Value& step, double value) { return full(step.graph(), {}, value, step.dtype()); }

double checked(const char* schedule, const char* name, std::int64_t steps) {
  if (steps < 1) fail(ErrorKind::argument, "{}: {} = {}, needs to be at least 1", schedule, name, steps);
  return static_cast<double>(steps);
}

// 1 / steps at the first update, 1 from update `steps` on.
Value rise(const Value& step, double steps) {
  const Value share = (step + 1.0) * (1 / steps);
  return minimum(share, constant(step, 1));
}

}  // namespace

LearningRate::LearningRate(double rate) : formula_([rate](const Value& step) { return constant(step, rate); }) {}

LearningRate linear_warmup(double rate, std::int64_t steps) {
  const double count = checked("linear_warmup", "steps", steps);
  return [=](const Value& step) { return rise(step, count) * rate; };
}

LearningRate inverse_square_root(double rate, std::int64_t warmup) {
  const double count = checked("inverse_square_root", "warmup", warmup);
  return [=](const Value& step) {
    const Value falling = sqrt(count / (step + 1.0));
    return minimum(rise(step, count), falling) * rate;
  };
}

}  // namespace paoding
