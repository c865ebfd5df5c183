// SPDX-License-Identifier: Apache-2.0
// The optimizers' formulas, one struct each.
#include "nn/update_rule.h"

#include <cfloat>
#include <cmath>

#include "base/check.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

// Values that the formulas of one update share.
struct Shared {
  Value rate, made;  // f64: the learning rate; updates before this one
  Value t() const { return made + 1.0; }
};

// 1 - beta^t, in f64 so that it has its digits while it is small.
Value bias_correction(double beta, const Value& t) {
  const Value zero = full(t.graph(), {}, 0, t.dtype());
  return beta == 0 ? zero + 1.0 : 1.0 - exp(t * std::log(beta));
}

Value running_mean(const Value& mean, const Value& now, double keep) { return mean * keep + now * (1 - keep); }
Value towards(const Value& mean, const Value& now, double keep) { return mean + (now - mean) * (1 - keep); }
Value like(const Value& number, const Value& of) { return cast(number, of.dtype()); }
Value number(const Value& of, double value) { return full(of.graph(), {}, value, of.dtype()); }

// p (1 - rate weight_decay).
Value decayed(const Value& p, const Value& rate, double weight_decay) {
  return weight_decay > 0 ? p * like(1.0 - rate * weight_decay, p) : p;
}
Value with_decay(const Value& gradient, const Value& p, double weight_decay) {
  return weight_decay > 0 ? gradient + p * weight_decay : gradient;
}

Value length(const Value& a) { return sqrt(sum(a * a)); }

// ---- SGD ----

struct SgdRule {
  static constexpr const char* kName = "minimize: sgd";
  static void check(const Sgd& sgd) {
    check_range(kName, "momentum", sgd.momentum, Range::at_least(0));
    if (sgd.nesterov) check_range("minimize: sgd with nesterov", "momentum", sgd.momentum, Range::above(0));
  }
  SgdRule(const Sgd& sgd, const Shared& shared) : n(sgd), rate(shared.rate) {}
  std::vector<UpdateState> states(const Shape& p) const {
    return n.momentum > 0 ? std::vector<UpdateState>{{"sgd/momentum/", p}} : std::vector<UpdateState>{};
  }
  Updated update(const Updated& old, const Value& gradient) const {
    Value d = with_decay(gradient, old.value, n.weight_decay);
    Values states;
    if (n.momentum > 0) {
      const Value m = old.states[0] * n.momentum + d;
      states = {m};
      d = n.nesterov ? d + m * n.momentum : m;
    }
    return {old.value - d * like(rate, old.value), states};
  }
  Sgd n;
  Value rate;
};

// ---- Adam, AdamW, LAMB ----

// The means of the gradient and its square, and their quotient.
template <class Numbers>
struct Moments {
  static void check(const char* name, const Numbers& n) {
    check_range(name, "beta1", n.beta1, Range::from_up_to(0, 1));
    check_range(name, "beta2", n.beta2, Range::from_up_to(0, 1));
    check_range(name, "epsilon", n.epsilon, Range::at_least(0));
  }
  Moments(const Numbers& numbers, const Shared& shared) : Moments(numbers, shared.rate, shared.t()) {}
  Moments(const Numbers& numbers, const Value& given_rate, const Value& t)
      : n(numbers),
        rate(given_rate),
        first_correction(bias_correction(n.beta1, t)),
        root_scale(rsqrt(bias_correction(n.beta2, t))) {}
  Values next(const Values& old, const Value& d) const {
    return {towards(old[0], d, n.beta1), running_mean(old[1], d * d, n.beta2)};
  }
  Value root(const Values& states) const { return sqrt(states[1]) * like(root_scale, states[1]) + n.epsilon; }
  Numbers n;
  Value rate, first_correction, root_scale;  // f64: 1 - beta1^t, 1 / sqrt(1 - beta2^t)
};

template <class Numbers>
struct AdamRule : Moments<Numbers> {
  static constexpr bool kIsDecoupled = std::is_same_v<Numbers, AdamW>;
  static constexpr const char* kName = kIsDecoupled ? "minimize: adamw" : "minimize: adam";
  static void check(const Numbers& n) { Moments<Numbers>::check(kName, n); }
  AdamRule(const Numbers& n, const Shared& shared)
      : Moments<Numbers>(n, shared), step_size(this->rate / this->first_correction) {}
  std::vector<UpdateState> states(const Shape& p) const { return {{"adam/m/", p}, {"adam/v/", p}}; }
  Updated update(const Updated& old, const Value& gradient) const {
    const double decay = this->n.weight_decay;
    const Value start = kIsDecoupled ? decayed(old.value, this->rate, decay) : old.value;
    const Values states = this->next(old.states, kIsDecoupled ? gradient : with_decay(gradient, old.value, decay));
    return {start - states[0] * like(step_size, start) / this->root(states), states};
  }
  Value step_size;
};

struct LambRule : Moments<Lamb> {
  static constexpr const char* kName = "minimize: lamb";
  static void check(const Lamb& n) { Moments<Lamb>::check(kName, n); }
  using Moments::Moments;
  std::vector<UpdateState> states(const Shape& p) const { return {{"lamb/m/", p}, {"lamb/v/", p}}; }
  Updated update(const Updated& old, const Value& gradient) const {
    const Value& p = old.value;
    const Values states = next(old.states, gradient);
    const Value u = with_decay(states[0] * like(1.0 / first_correction, p) / root(states), p, n.weight_decay);
    const Value p_length = length(p), u_length = length(u), zero = number(p_length, 0);
    const Value is_usual = logical_and(greater(p_length, zero), greater(u_length, zero));
    const Value ratio = select(is_usual, p_length / select(is_usual, u_length, 1), 1);
    return {p - u * (ratio * like(rate, ratio)), states};
  }
};

// ---- RMSProp ----

struct RmsPropRule {
  static constexpr const char* kName = "minimize: rmsprop";
  static void check(const RmsProp& n) {
    check_range(kName, "decay", n.decay, Range::from_up_to(0, 1));
    check_range(kName, "epsilon", n.epsilon, Range::at_least(0));
    check_range(kName, "momentum", n.momentum, Range::at_least(0));
  }
  RmsPropRule(const RmsProp& numbers, const Shared& shared) : n(numbers), rate(shared.rate) {}
  std::vector<UpdateState> states(const Shape& p) const {
    std::vector<UpdateState> all{{"rmsprop/v/", p}};
    if (n.centered) all.push_back({"rmsprop/m/", p});
    if (n.momentum > 0) all.push_back({"rmsprop/momentum/", p});
    return all;
  }
  Updated update(const Updated& old, const Value& gradient) const {
    const Value d = with_decay(gradient, old.value, n.weight_decay);
    Values states{running_mean(old.states[0], d * d, n.decay)};
    Value square = states[0];
    if (n.centered) {
      states.push_back(running_mean(old.states[1], d, n.decay));
      square = square - states[1] * states[1];
    }
    Value step = d / (sqrt(square) + n.epsilon);
    if (n.momentum > 0) {
      step = old.states.back() * n.momentum + step;
      states.push_back(step);
    }
    return {old.value - step * like(rate, old.value), states};
  }
  RmsProp n;
  Value rate;
};

// ---- Lion ----

struct LionRule {
  static constexpr const char* kName = "minimize: lion";
  static void check(const Lion& n) {
    check_range(kName, "beta1", n.beta1, Range::from_up_to(0, 1));
    check_range(kName, "beta2", n.beta2, Range::from_up_to(0, 1));
  }
  LionRule(const Lion& numbers, const Shared& shared) : n(numbers), rate(shared.rate) {}
  std::vector<UpdateState> states(const Shape& p) const { return {{"lion/m/", p}}; }
  Updated update(const Updated& old, const Value& gradient) const {
    const Value direction = sign(running_mean(old.states[0], gradient, n.beta1));
    const Value start = decayed(old.value, rate, n.weight_decay);
    return {start - direction * like(rate, start), {running_mean(old.states[0], gradient, n.beta2)}};
  }
  Lion n;
  Value rate;
};

// ---- Adafactor ----

struct AdafactorRule {
  static constexpr const char* kName = "minimize: adafactor";
  static void check(const Adafactor& n) {
    check_range(kName, "beta2_decay", n.beta2_decay, {.most = 0});
    check_range(kName, "epsilon2", n.epsilon2, Range::at_least(0));
    check_range(kName, "clip", n.clip, Range::above(0));
  }
  AdafactorRule(const Adafactor& numbers, const Shared& shared) : AdafactorRule(numbers, shared.rate, shared.t()) {}
  AdafactorRule(const Adafactor& numbers, const Value& given_rate, const Value& t)
      : n(numbers), rate(given_rate), share(exp(log(t) * n.beta2_decay)), bounded_rate(minimum(given_rate, rsqrt(t))) {}
  std::vector<UpdateState> states(const Shape& p) const {
    const int last = p.rank() - 1;
    if (last < 1) return {{"adafactor/v/", p}};
    return {{"adafactor/row/", p.with_dim(last, 1)}, {"adafactor/column/", p.with_dim(last - 1, 1)}};
  }
  Updated update(const Updated& old, const Value& gradient) const {
    const Value& p = old.value;
    const int last = p.shape().rank() - 1;
    const std::int64_t row_axis[] = {last}, column_axis[] = {last - 1};
    const double least = p.dtype() == f64 ? DBL_EPSILON : FLT_EPSILON;
    const Value square = gradient * gradient;
    const auto moved = [&](const Value& mean, const Value& now) { return mean + (now - mean) * like(share, mean); };
    Values states;
    Value estimate;
    if (last < 1) {
      states = {moved(old.states[0], square)};
      estimate = states[0];
    } else {
      states = {moved(old.states[0], mean(square, row_axis, true)),
                moved(old.states[1], mean(square, column_axis, true))};
      const Value of_all = maximum(mean(states[0], column_axis, true), number(p, least));
      estimate = states[0] * states[1] / of_all;
    }
    const Value u = gradient * rsqrt(maximum(estimate, number(p, least * least)));
    const double root_count = std::sqrt(static_cast<double>(std::max<std::int64_t>(p.shape().elements(), 1)));
    const Value too_long = maximum(length(u) * (1 / (root_count * n.clip)), number(u, 1));
    const Value scale = maximum(length(p) * (1 / root_count), number(p, n.epsilon2));
    return {decayed(p, rate, n.weight_decay) - u * (scale * like(bounded_rate, scale) / too_long), states};
  }
  Adafactor n;
  Value rate, share, bounded_rate;  // f64; share: t^beta2_decay
};

// ---- which rule an optimizer has ----

template <class Numbers>
struct RuleOf;
template <>
struct RuleOf<Sgd> {
  using Type = SgdRule;
};
template <>
struct RuleOf<Adam> {
  using Type = AdamRule<Adam>;
};
template <>
struct RuleOf<AdamW> {
  using Type = AdamRule<AdamW>;
};
template <>
struct RuleOf<RmsProp> {
  using Type = RmsPropRule;
};
template <>
struct RuleOf<Lion> {
  using Type = LionRule;
};
template <>
struct RuleOf<Lamb> {
  using Type = LambRule;
};
template <>
struct RuleOf<Adafactor> {
  using Type = AdafactorRule;
};

template <class Numbers>
class Rule : public UpdateRule {
 public:
  Rule(const Numbers& numbers, const Shared& shared) : rule_(numbers, shared), rate_(shared.rate) {}
  std::vector<UpdateState> states(const Shape& parameter) const override { return rule_.states(parameter); }
  Updated update(const Updated& old, const Value& gradient) const override { return rule_.update(old, gradient); }
  const Value& learning_rate() const override { return rate_; }

 private:
  typename RuleOf<Numbers>::Type rule_;
  Value rate_;
};

}  // namespace

void check(const Optimizer& optimizer) {
  std::visit(
      []<class Numbers>(const Numbers& numbers) {
        using Rule = typename RuleOf<Numbers>::Type;
        Rule::check(numbers);
        check_range(Rule::kName, "weight_decay", numbers.weight_decay, Range::at_least(0));
      },
      optimizer);
}

std::unique_ptr<UpdateRule> UpdateRule::make(const Optimizer& optimizer, const Value& step, double rate_factor) {
  const Value made = cast(step, f64);
  return std::visit(
      [&]<class Numbers>(const Numbers& numbers) -> std::unique_ptr<UpdateRule> {
        const Value given = numbers.learning_rate.at(made);
        if (!given.valid() || given.shape().rank() != 0 || !is_float(given.dtype())) {
          fail(ErrorKind::argument, "minimize: a learning rate's formula gave {}, needed is a scalar float",
               given.valid() ? to_string(given.type()) : "no value");
        }
        const Value rate = cast(given, f64);
        return std::make_unique<Rule<Numbers>>(numbers, Shared{rate_factor == 1 ? rate : rate * rate_factor, made});
      },
      optimizer);
}

}  // namespace paoding
