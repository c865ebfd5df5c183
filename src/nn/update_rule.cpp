// SPDX-License-Identifier: Apache-2.0
#include "nn/update_rule.h"

#include <cmath>

#include "base/check.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

AdamW as_adamw(const Adam& adam) {
  return {adam.learning_rate, adam.beta1, adam.beta2, adam.epsilon, adam.weight_decay};
}

void check_adam(const char* name, const AdamW& adam) {
  check_range(name, "beta1", adam.beta1, Range::from_up_to(0, 1));
  check_range(name, "beta2", adam.beta2, Range::from_up_to(0, 1));
  check_range(name, "epsilon", adam.epsilon, Range::at_least(0));
  check_range(name, "weight_decay", adam.weight_decay, Range::at_least(0));
}

// 1 - beta^t, in f64 so that it has its digits while it is small.
Value bias_correction(double beta, const Value& t) {
  const Value zero = full(t.graph(), {}, 0, t.dtype());
  return beta == 0 ? zero + 1.0 : 1.0 - exp(t * std::log(beta));
}

}  // namespace

void check(const Optimizer& optimizer) {
  if (const auto* adam = std::get_if<Adam>(&optimizer)) return check_adam("minimize: adam", as_adamw(*adam));
  if (const auto* adam = std::get_if<AdamW>(&optimizer)) return check_adam("minimize: adamw", *adam);
  const Sgd& sgd = std::get<Sgd>(optimizer);
  check_range("minimize: sgd", "momentum", sgd.momentum, Range::at_least(0));
  check_range("minimize: sgd", "weight_decay", sgd.weight_decay, Range::at_least(0));
  if (sgd.nesterov) check_range("minimize: sgd with nesterov", "momentum", sgd.momentum, Range::above(0));
}

UpdateRule::UpdateRule(const Optimizer& optimizer, const Value& step) : optimizer_(optimizer) {
  const Value made = cast(step, f64);
  const auto rate = [&](const auto& of) {
    const Value value = of.learning_rate.at(made);
    if (!value.valid() || value.shape().rank() != 0 || !is_float(value.dtype())) {
      fail(ErrorKind::argument, "minimize: a learning rate's formula gave {}, needed is a scalar float",
           value.valid() ? to_string(value.type()) : "no value");
    }
    return cast(value, f64);
  };
  rate_ = std::visit(rate, optimizer_);
  if (std::holds_alternative<Sgd>(optimizer_)) return;
  const auto* adam = std::get_if<Adam>(&optimizer_);
  const AdamW numbers = adam != nullptr ? as_adamw(*adam) : std::get<AdamW>(optimizer_);
  const Value t = made + 1.0;
  step_size_ = rate_ / bias_correction(numbers.beta1, t);
  root_scale_ = rsqrt(bias_correction(numbers.beta2, t));
}

std::vector<const char*> UpdateRule::states() const {
  if (const auto* sgd = std::get_if<Sgd>(&optimizer_)) {
    return sgd->momentum > 0 ? std::vector{"sgd/momentum/"} : std::vector<const char*>{};
  }
  return {"adam/m/", "adam/v/"};
}

UpdateRule::Updated UpdateRule::update(const Value& value, const Value& gradient, const Values& states) const {
  if (const auto* adam = std::get_if<Adam>(&optimizer_)) {
    return update_adam(value, gradient, states, as_adamw(*adam), false);
  }
  if (const auto* adam = std::get_if<AdamW>(&optimizer_)) return update_adam(value, gradient, states, *adam, true);
  return update_sgd(value, gradient, states, std::get<Sgd>(optimizer_));
}

UpdateRule::Updated UpdateRule::update_adam(const Value& value, const Value& gradient, const Values& states,
                                            const AdamW& adam, bool is_decoupled) const {
  const DType dtype = value.dtype();
  Value start = value, d = gradient;
  if (adam.weight_decay > 0 && is_decoupled) start = value * cast(1.0 - rate_ * adam.weight_decay, dtype);
  if (adam.weight_decay > 0 && !is_decoupled) d = gradient + value * adam.weight_decay;
  const Value m = states[0] + (d - states[0]) * (1 - adam.beta1);
  const Value v = states[1] * adam.beta2 + d * d * (1 - adam.beta2);
  const Value root = sqrt(v) * cast(root_scale_, dtype) + adam.epsilon;
  const Value now = start - m * cast(step_size_, dtype) / root;
  return {now, {m, v}};
}

UpdateRule::Updated UpdateRule::update_sgd(const Value& value, const Value& gradient, const Values& states,
                                           const Sgd& sgd) const {
  Value d = gradient;
  if (sgd.weight_decay > 0) d = d + value * sgd.weight_decay;
  Values updated;
  if (sgd.momentum > 0) {
    const Value m = states[0] * sgd.momentum + d;
    updated = {m};
    d = sgd.nesterov ? d + m * sgd.momentum : m;
  }
  return {value - d * cast(rate_, value.dtype()), updated};
}

}  // namespace paoding
