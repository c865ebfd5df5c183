// SPDX-License-Identifier: Apache-2.0
// minimize(): gradients, then values that they share (norm, finiteness, counters), then one update per parameter. A
// decision about an update is a select inside its kernel, never a branch: a run always does the same work.
#include "paoding/optimizer.h"

#include <algorithm>
#include <cmath>
#include <set>

#include "base/check.h"
#include "base/one_line.h"
#include "nn/update_rule.h"
#include "paoding/autodiff.h"
#include "paoding/nn.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/program.h"
#include "paoding/range.h"

namespace paoding {
namespace {

const std::string kAverage = "average/";
constexpr double kLargest = 3.4028234663852886e38;  // f32

// Whether a glob stands for a name: '*' for any characters, '?' for one.
bool fits(std::string_view glob, std::string_view name) {
  if (glob.empty()) return name.empty();
  if (glob[0] != '*')
    return !name.empty() && (glob[0] == '?' || glob[0] == name[0]) && fits(glob.substr(1), name.substr(1));
  const std::string_view rest =
      glob.substr(glob.find_first_not_of('*') == glob.npos ? glob.size() : glob.find_first_not_of('*'));
  for (std::size_t skipped = 0; skipped <= name.size(); ++skipped) {
    if (fits(rest, name.substr(skipped))) return true;
  }
  return false;
}

// The optimizer of a group: its own or the common one, with the decay that the group wants.
Optimizer optimizer_of(const ParameterGroup& group, const Optimizer& common) {
  Optimizer own = group.optimizer ? *group.optimizer : common;
  if (group.weight_decay) std::visit([&](auto& numbers) { numbers.weight_decay = *group.weight_decay; }, own);
  return own;
}

// The parameters among the ancestors of a value.
std::vector<NodeId> parameters_of(const Value& loss) {
  const Graph& graph = loss.graph();
  std::vector<char> needed(static_cast<std::size_t>(loss.ref().node) + 1, 0);
  needed.back() = 1;
  for (NodeId id = loss.ref().node; id >= 0; --id) {
    if (!needed[static_cast<std::size_t>(id)]) continue;
    for (const Ref& ref : graph.node(id).inputs) needed[static_cast<std::size_t>(ref.node)] = 1;
  }
  std::vector<NodeId> found;
  for (NodeId id : graph.parameters()) {
    if (static_cast<std::size_t>(id) < needed.size() && needed[static_cast<std::size_t>(id)] &&
        is_float(graph.node(id).types[0].dtype)) {
      found.push_back(id);
    }
  }
  return found;
}

class Minimize {
 public:
  Minimize(const Value& loss, const Optimizer& optimizer, const MinimizeOptions& options)
      : loss_(loss), graph_(loss.graph()), options_(options), optimizers_{optimizer} {
    for (const ParameterGroup& group : options.groups) optimizers_.push_back(optimizer_of(group, optimizer));
    check_options();
  }

  TrainingStep run() {
    choose_parameters();
    take_gradients();
    made_.loss = loss_;
    if (options_.data_parallel) reduce_over_ranks();
    const Scope scope(graph_, options_.name);
    sum_gradients();
    measure();
    count();
    for (std::size_t k = 0; k < optimizers_.size(); ++k) {
      rules_.push_back(UpdateRule::make(optimizers_[k], step_, k == 0 ? 1 : options_.groups[k - 1].rate_factor));
    }
    for (std::size_t i = 0; i < made_.parameters.size(); ++i) update(i);
    made_.learning_rate = rules_[0]->learning_rate();
    return made_;
  }

 private:
  [[noreturn]] void wrong(const std::string& what) const { fail(ErrorKind::argument, "minimize: {}", what); }

  void check_options() const {
    if (loss_.shape().elements() != 1 || !is_float(loss_.dtype())) {
      wrong(fmt::format("the loss is {}, needed is a scalar float", to_string(loss_.type())));
    }
    if (graph_.parent != nullptr) wrong("the loss is a value of a loop's step");
    if (options_.name.empty()) wrong("name is empty");
    if (graph_.find(options_.name + "/step").valid()) {
      wrong(fmt::format("the graph has an optimizer '{}' already\nhint: another one needs a name of its own",
                        one_line(options_.name)));
    }
    check_range("minimize", "accumulate", options_.accumulate, Range::at_least(1));
    check_range("minimize", "clip_norm", options_.clip_norm, Range::at_least(0));
    check_range("minimize", "average_decay", options_.average_decay, Range::from_up_to(0, 1));
    for (const Optimizer& optimizer : optimizers_) check(optimizer);
    for (const ParameterGroup& group : options_.groups) {
      check_range("minimize: a group", "rate_factor", group.rate_factor, Range::at_least(0));
      if (group.names.empty() && !group.rank && !group.predicate) {
        wrong("a group has no names, no rank and no predicate: it would have every parameter");
      }
    }
    check_loss_weight();
    if (!options_.loss_scale) return;
    const LossScale& scale = *options_.loss_scale;
    check_range("minimize: loss_scale", "least", scale.least, Range::above(0));
    check_range("minimize: loss_scale", "most", scale.most, Range::at_least(scale.least));
    check_range("minimize: loss_scale", "initial", scale.initial, Range::between(scale.least, scale.most));
    check_range("minimize: loss_scale", "growth", scale.growth, Range::at_least(1));
    check_range("minimize: loss_scale", "backoff", scale.backoff, Range::between(0.001, 1));
    check_range("minimize: loss_scale", "interval", static_cast<double>(scale.interval), Range::at_least(1));
  }

  void check_loss_weight() const {
    const Value& weight = options_.loss_weight;
    if (!weight.valid()) return;
    if (!options_.data_parallel) wrong("loss_weight is given without data_parallel");
    if (&weight.graph() != &graph_ || weight.shape().elements() != 1 || !is_float(weight.dtype())) {
      wrong(fmt::format("loss_weight is {}, needed is a scalar float of the loss's graph", to_string(weight.type())));
    }
  }

  void choose_parameters() {
    std::set<std::string> used;  // patterns that fit something
    for (NodeId id : parameters_of(loss_)) {
      const std::string& name = graph_.node(id).name.str();
      const auto names_it = [&](const std::string& pattern) {
        if (!fits(pattern, name)) return false;
        used.insert(pattern);
        return true;
      };
      if (std::any_of(options_.frozen.begin(), options_.frozen.end(), names_it)) continue;
      std::size_t rule = 0;
      for (std::size_t g = 0; g < options_.groups.size() && rule == 0; ++g) {
        const ParameterGroup& group = options_.groups[g];
        const Type& type = graph_.node(id).types[0];
        if (!group.names.empty() && std::none_of(group.names.begin(), group.names.end(), names_it)) continue;
        if (group.rank && *group.rank != type.shape.rank()) continue;
        if (group.predicate && !group.predicate(name, type)) continue;
        rule = g + 1;
      }
      if (rule > 0 && options_.groups[rule - 1].frozen) continue;
      made_.parameters.push_back(graph_.value({id, 0}));
      rule_of_.push_back(rule);
    }
    if (made_.parameters.empty()) wrong("the loss depends on no parameter that is not frozen");
    std::vector<std::string> patterns = options_.frozen;
    for (const ParameterGroup& group : options_.groups) {
      patterns.insert(patterns.end(), group.names.begin(), group.names.end());
    }
    for (const std::string& pattern : patterns) {
      if (!used.contains(pattern))
        wrong(fmt::format("'{}' fits no parameter that the loss depends on", one_line(pattern)));
    }
  }

  const std::string& name(std::size_t i) const { return graph_.node(made_.parameters[i].ref().node).name.str(); }
  Value constant(DType dtype, double value) { return full(graph_, {}, value, dtype); }
  // A value that training keeps from run to run.
  Value state(std::string_view state_name, DType dtype, const Shape& shape, Initializer initial = {}) {
    return graph_.parameter(state_name, dtype, shape, std::move(initial), ParameterRole::optimizer);
  }
  Value counter(const char* counter_name) { return state(options_.name + "/" + counter_name, i64, {}); }

  // Takes gradients of the loss, or of it times the scale, and then divides by that where nothing is rounded to 0 any
  // more.
  void take_gradients() {
    Value seed;
    if (options_.loss_weight.valid()) seed = cast(options_.loss_weight, loss_.dtype());
    if (options_.loss_scale) {
      loss_scale_ = state(options_.name + "/loss_scale", f32, {}, nn::constant(options_.loss_scale->initial));
      const Value scale = cast(loss_scale_, loss_.dtype());
      seed = seed.valid() ? seed * scale : scale;
    }
    if (!seed.valid()) {
      made_.gradients = gradients(std::array{loss_}, made_.parameters);
      return;
    }
    seed = expand(reshape(seed, Shape{}), loss_.shape());
    made_.gradients = gradients(std::array{loss_}, made_.parameters, std::array{seed});
    if (!options_.loss_scale) return;
    const Scope scope(graph_, options_.name);
    for (Value& gradient : made_.gradients) {
      const DType wide = compute_dtype(gradient.dtype());
      gradient = cast(gradient, wide) * cast(1.0 / loss_scale_, wide);
    }
  }

  // Gradients were taken of the loss times its weight; the sums over the ranks are divided by that of the weights.
  void reduce_over_ranks() {
    const Scope scope(graph_, "ranks");
    const Value& weight = options_.loss_weight;
    if (!weight.valid()) {
      made_.loss = all_reduce(loss_, "mean");
      for (Value& gradient : made_.gradients) gradient = all_reduce(gradient, "mean");
      return;
    }
    const Value mine = reshape(weight, Shape{});
    const Value inverse = 1.0 / all_reduce(mine);
    made_.loss = all_reduce(loss_ * cast(mine, loss_.dtype())) * cast(inverse, loss_.dtype());
    for (Value& gradient : made_.gradients) {
      const DType wide = compute_dtype(gradient.dtype());
      gradient = cast(all_reduce(gradient), wide) * cast(inverse, wide);
    }
  }

  bool skips() const { return options_.skip_nonfinite || options_.loss_scale.has_value(); }

  // The gradient for the update: this run's, or the mean of the runs since the last update.
  void sum_gradients() {
    if (options_.accumulate > 1) {
      const Value micro = counter("micro");
      is_last_ = equal(micro, constant(i64, options_.accumulate - 1));
      assign(micro, select(is_last_, constant(i64, 0), micro + 1));
    }
    for (std::size_t i = 0; i < made_.gradients.size(); ++i) {
      const Value& gradient = made_.gradients[i];
      const DType wide = compute_dtype(gradient.dtype());
      Value total = cast(gradient, wide);
      if (options_.accumulate > 1) {
        if (skips() && i == smallest_gradient()) {
          total = select(loss_is_finite(), total, constant(wide, std::nan("")));
        }
        const Value sum = state("gradient/" + name(i), wide, gradient.shape());
        total = sum + total;
        assign(sum, select(is_last_, constant(wide, 0), total));
        total = total * (1.0 / options_.accumulate);
      }
      used_.push_back(total);
    }
  }

  void measure() {
    if (options_.clip_norm == 0 && !skips()) return;
    Values squares;
    for (const Value& gradient : used_) squares.push_back(cast(sum(gradient * gradient), norm_dtype()));
    const Value square = add_n(squares);
    made_.gradient_norm = sqrt(square);
    if (skips()) {
      // A loss can be infinite, or NaN, by a term whose gradient is not.
      const Value gradients_are_finite = less_equal(square, constant(norm_dtype(), kLargest));
      is_finite_ = call("logical_and", {gradients_are_finite, loss_is_finite()});
    }
    if (options_.clip_norm > 0) {
      // torch.nn.utils.clip_grad_norm_ adds 1e-6 too, which keeps the quotient finite.
      const Value ratio = options_.clip_norm / (made_.gradient_norm + 1e-6);
      scale_ = minimum(ratio, constant(norm_dtype(), 1));
    }
  }

  Value loss_is_finite() { return isfinite(reshape(made_.loss, Shape{})); }

  // The gradient with the fewest elements carries on to the last micro-batch that the loss of one was non-finite.
  std::size_t smallest_gradient() const {
    const auto smaller = [](const Value& a, const Value& b) { return a.shape().elements() < b.shape().elements(); };
    const auto& all = made_.gradients;
    return static_cast<std::size_t>(std::min_element(all.begin(), all.end(), smaller) - all.begin());
  }

  DType norm_dtype() const {
    return std::any_of(used_.begin(), used_.end(), [](const Value& g) { return g.dtype() == f64; }) ? f64 : f32;
  }

  void count() {
    step_ = counter("step");
    apply_ = is_last_;
    if (is_finite_.valid()) {
      const Value skipped = counter("skipped");
      Value is_overflow;
      if (loss_scale_.valid()) {
        const Value can_be_lowered = greater(loss_scale_, constant(f32, options_.loss_scale->least));
        const Value is_finite = is_finite_;
        is_overflow = both(both(call("logical_not", {is_finite}), loss_is_finite()), can_be_lowered);
        if (options_.stop_at_nonfinite) is_overflow = both(is_overflow, equal(skipped, 0));
      }
      if (options_.stop_at_nonfinite) is_finite_ = both(is_finite_, equal(skipped, 0));
      Value is_bad = call("logical_not", {is_finite_});
      if (is_overflow.valid()) is_bad = both(is_bad, call("logical_not", {is_overflow}));
      assign(skipped, select(in_last(is_bad), skipped + 1, skipped));
      apply_ = in_last(is_finite_);
      if (is_overflow.valid()) adjust_loss_scale(in_last(is_overflow));
    }
    assign(step_, apply_.valid() ? select(apply_, step_ + 1, step_) : step_ + 1);
  }

  static Value both(const Value& a, const Value& b) { return call("logical_and", {a, b}); }
  // `condition`, in a run that makes an update, or would.
  Value in_last(const Value& condition) const { return is_last_.valid() ? both(is_last_, condition) : condition; }

  void adjust_loss_scale(const Value& is_overflow) {
    made_.loss_scale = loss_scale_;
    made_.is_overflow = is_overflow;
    const LossScale& scale = *options_.loss_scale;
    const Value overflows = counter("overflows"), unscaled = counter("unscaled");
    assign(overflows, select(is_overflow, overflows + 1, overflows));
    const Value is_time = both(apply_, greater_equal(unscaled + 1, constant(i64, static_cast<double>(scale.interval))));
    const Value raised = minimum(loss_scale_ * scale.growth, constant(f32, scale.most));
    const Value lowered = maximum(loss_scale_ * scale.backoff, constant(f32, scale.least));
    assign(loss_scale_, select(is_overflow, lowered, select(is_time, raised, loss_scale_)));
    const Value counted = select(apply_, unscaled + 1, unscaled);
    assign(unscaled, select(call("logical_or", {is_overflow, is_time}), constant(i64, 0), counted));
  }

  // Old values stay where the update does not apply.
  void set(const Value& parameter, const Value& now) {
    const Value stored = cast(now, parameter.dtype());
    assign(parameter, apply_.valid() ? select(apply_, stored, parameter) : stored);
  }

  void update(std::size_t i) {
    const Value& parameter = made_.parameters[i];
    const DType wide = compute_dtype(parameter.dtype());
    Value gradient = used_[i];
    if (scale_.valid()) gradient = gradient * cast(scale_, wide);
    Value value = cast(parameter, wide), master;
    if (options_.master_weights && wide != parameter.dtype()) {
      master = state("master/" + name(i), wide, parameter.shape());
      value = select(equal(step_, constant(i64, 0)), value, master);  // it starts as the parameter does
    }
    const UpdateRule& rule = *rules_[rule_of_[i]];
    Values states;
    for (const UpdateState& kept : rule.states(parameter.shape())) {
      states.push_back(state(kept.prefix + name(i), wide, kept.shape));
    }
    const Updated updated = rule.update({value, states}, gradient);
    for (std::size_t k = 0; k < states.size(); ++k) set(states[k], updated.states[k]);
    set(parameter, updated.value);
    if (master.valid()) set(master, updated.value);
    if (options_.average_decay == 0) return;
    const double keep = options_.average_decay;
    const Value average = state(kAverage + name(i), wide, parameter.shape());
    const Value old = select(equal(step_, constant(i64, 0)), value, average);  // it starts as the parameter does
    set(average, old * keep + updated.value * (1 - keep));
  }

  const Value loss_;
  Graph& graph_;
  const MinimizeOptions& options_;
  std::vector<Optimizer> optimizers_;  // the common one, then those of groups
  std::vector<std::unique_ptr<UpdateRule>> rules_;
  std::vector<std::size_t> rule_of_;  // per parameter
  TrainingStep made_;
  Values used_;
  Value loss_scale_, is_last_, is_finite_, apply_, scale_, step_;  // absent where they are always true or 1
};

}  // namespace

TrainingStep minimize(const Value& loss, const Optimizer& optimizer, const MinimizeOptions& options) {
  return Minimize(loss, optimizer, options).run();
}

std::map<std::string, Tensor> averages_of(const Parameters& parameters) {
  std::map<std::string, Tensor> averages;
  const std::vector<std::string> names = parameters.names();
  const std::set<std::string> all(names.begin(), names.end());
  for (const std::string& each : names) {
    const std::string name = each.starts_with(kAverage) ? each.substr(kAverage.size()) : "";
    if (!all.contains(name)) continue;
    const Tensor average = parameters.get(each);
    const DType dtype = parameters.get(name).dtype();
    averages[name] = average.dtype() == dtype ? average : Tensor::from(dtype, average.shape(), average.to_doubles());
  }
  if (averages.empty()) {
    fail(ErrorKind::argument, "averages_of: the store has no averages; minimize with average_decay keeps them");
  }
  return averages;
}

}  // namespace paoding
