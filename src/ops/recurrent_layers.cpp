// SPDX-License-Identifier: Apache-2.0
// Stacks of recurrent layers: for each layer and direction a product of the input for all steps and a recurrence, which
// a kernel may claim as a whole; or a scan, out of which the passes take the part that does not depend on the state.
#include "base/check.h"
#include "base/one_line.h"
#include "graph/value_scope.h"
#include "ops/composing.h"
#include "ops/index/check_indices.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

enum class Kind { lstm, gru, rnn };

class Stack {
 public:
  Stack(Kind kind, const Value& xs, std::span<const RecurrentParameters> parameters, const RecurrentOptions& options)
      : kind_(kind), xs_(xs), parameters_(parameters), options_(options), directions_(options.bidirectional ? 2 : 1) {
    check();
  }

  RecurrentResult run() {
    lengths();  // in the scope of the stack, not of its first layer
    RecurrentResult result;
    Value layer_input = xs_;
    const std::size_t layers = parameters_.size() / directions_;
    for (std::size_t layer = 0; layer < layers; ++layer) {
      if (layer > 0) layer_input = dropout(layer_input, options_.dropout, options_.training);
      Values outputs;
      for (std::size_t direction = 0; direction < directions_; ++direction) {
        outputs.push_back(run_direction(layer_input, layer * directions_ + direction, direction == 1, &result));
      }
      layer_input = directions_ == 2 ? concat(outputs, 2) : outputs[0];
    }
    result.outputs = layer_input;
    return result;
  }

 private:
  const char* name() const { return kind_ == Kind::lstm ? "lstm" : kind_ == Kind::gru ? "gru" : "rnn"; }
  int gates() const { return kind_ == Kind::lstm ? 4 : kind_ == Kind::gru ? 3 : 1; }
  int biases() const { return kind_ == Kind::gru && options_.reset_after ? 4 : gates(); }
  static std::int64_t hidden_of(const RecurrentParameters& p, int gates) { return p.w.shape()[1] / gates; }
  // The width of a step's output.
  std::int64_t width_of(const RecurrentParameters& p) const {
    return p.projection.valid() ? p.projection.shape()[1] : hidden_of(p, gates());
  }

  void check() const {
    const auto wrong = [&](ErrorKind error, const std::string& what) {
      fail(error, "{}: {}{}", name(), what, scope_text(xs_));
    };
    if (xs_.shape().rank() != 3)
      wrong(ErrorKind::shape, fmt::format("xs has shape {}, needed is [T, B, I]", to_string(xs_.shape())));
    if (parameters_.empty() || parameters_.size() % directions_ != 0) {
      wrong(ErrorKind::argument,
            fmt::format("has {} sets of parameters, needs {} per layer", parameters_.size(), directions_));
    }
    const std::pair<const char*, double> shares[] = {{"dropout", options_.dropout},
                                                     {"recurrent_dropout", options_.recurrent_dropout},
                                                     {"zoneout_h", options_.zoneout_h},
                                                     {"zoneout_c", options_.zoneout_c}};
    constexpr Range range = Range::from_up_to(0, 1);
    for (const auto& [what, share] : shares) {
      if (range.contains(share)) continue;
      wrong(ErrorKind::argument, fmt::format("{} = {}, needs to be {}", what, share, to_string(range)));
    }
    if (options_.recompute < 0)
      wrong(ErrorKind::argument, fmt::format("recompute = {}, needs to be at least 0", options_.recompute));
    if (options_.lengths.valid()) {
      if (!is_integer(options_.lengths.dtype())) {
        wrong(ErrorKind::dtype,
              fmt::format("lengths are {}, needed are integers", to_string(options_.lengths.dtype())));
      }
      if (!(options_.lengths.shape() == Shape{xs_.shape()[1]})) {
        wrong(ErrorKind::shape, fmt::format("lengths have shape {}, needed is [{}]",
                                            to_string(options_.lengths.shape()), xs_.shape()[1]));
      }
    }
    std::int64_t features = xs_.shape()[2];
    for (std::size_t i = 0; i < parameters_.size(); ++i) {
      check_parameters(i, features);
      const std::int64_t width = width_of(parameters_[i]);
      check_initial("initial_h", options_.initial_h, i, width);
      if (kind_ == Kind::lstm) check_initial("initial_c", options_.initial_c, i, hidden_of(parameters_[i], gates()));
      if ((i + 1) % directions_ != 0) continue;
      if (directions_ == 2 && width_of(parameters_[i - 1]) != width) {
        wrong(ErrorKind::shape, fmt::format("the directions of layer {} differ in width: {} and {}", i / 2,
                                            width_of(parameters_[i - 1]), width));
      }
      features = width * static_cast<std::int64_t>(directions_);
    }
    if (kind_ != Kind::lstm && !options_.initial_c.empty())
      wrong(ErrorKind::argument, "has no cell state, but initial_c is given");
    if (kind_ != Kind::lstm && options_.zoneout_c != 0)
      wrong(ErrorKind::argument, "has no cell state, but zoneout_c is given");
  }

  void check_parameters(std::size_t i, std::int64_t features) const {
    const RecurrentParameters& p = parameters_[i];
    const auto shape = [](const Value& value) { return value.valid() ? to_string(value.shape()) : "absent"; };
    bool fits = p.w.valid() && p.u.valid() && p.b.valid() && p.w.shape().rank() == 2 && p.w.shape()[0] == features &&
                p.w.shape()[1] % gates() == 0;
    if (fits) {
      const std::int64_t hidden = hidden_of(p, gates());
      if (p.projection.valid())
        fits = kind_ == Kind::lstm && p.projection.shape().rank() == 2 && p.projection.shape()[0] == hidden;
      fits = fits && p.u.shape() == Shape{width_of(p), gates() * hidden} && p.b.shape() == Shape{biases() * hidden};
    }
    if (fits) return;
    fail(ErrorKind::shape,
         "{}: parameters {} have w {}, u {}, b {}, projection {}; needed are w [{}, {}H], u [P, {}H], b [{}H], "
         "projection [H, P]{}{}",
         name(), i, shape(p.w), shape(p.u), shape(p.b), shape(p.projection), features, gates(), gates(), biases(),
         kind_ == Kind::lstm ? " or absent" : " absent", scope_text(xs_));
  }

  void check_initial(const char* what, const Values& given, std::size_t i, std::int64_t width) const {
    if (given.empty()) return;
    if (given.size() != parameters_.size()) {
      fail(ErrorKind::argument, "{}: {} has {} states for {} sets of parameters{}", name(), what, given.size(),
           parameters_.size(), scope_text(xs_));
    }
    if (!(given[i].shape() == Shape{xs_.shape()[1], width})) {
      fail(ErrorKind::shape, "{}: {}[{}] has shape {}, needed is [{}, {}]{}", name(), what, i,
           to_string(given[i].shape()), xs_.shape()[1], width, scope_text(xs_));
    }
  }

  Value initial(const Values& given, std::size_t i, std::int64_t width) const {
    if (!given.empty()) return given[i];
    return expand(full(xs_.graph(), {}, 0, parameters_[i].u.dtype()), Shape{xs_.shape()[1], width});
  }

  // The lengths as the recurrences take them; invalid where there are none. On a GPU they are not checked: the launch
  // that does it would be one more in front of few, and recurrences take them as the nearest that is legal.
  const Value& lengths() {
    if (options_.lengths.valid() && !lengths_.valid()) {
      const std::int64_t most = xs_.shape()[0];
      const bool is_wide = options_.lengths.dtype() == i64;
      const Value checked = check_indices(is_wide ? options_.lengths : cast(options_.lengths, i32), most,
                                          {.on_gpu = false, .what = fmt::format("{}: lengths", name())});
      lengths_ = is_wide ? cast(minimum(checked, most), i32) : checked;
    }
    return lengths_;
  }

  // Whether the layer is one recurrence, which a kernel may claim: with a projection, with r in front of the product of
  // a GRU, or with zoneout, it is a scan.
  bool is_recurrence(const RecurrentParameters& p) const {
    if (options_.zoneout_h > 0 || options_.zoneout_c > 0) return false;
    return kind_ == Kind::gru ? options_.reset_after : !p.projection.valid();
  }

  // Some steps of a layer: their outputs, and the states after them.
  struct Steps {
    Value outputs;
    Values states;
  };

  // [T, B, H], of [T + 1, B, H] with the start.
  static Value outputs_of(const Value& states, bool is_reverse) {
    const std::int64_t entries = states.shape()[0];
    return is_reverse ? slice(states, 0, 0, entries - 1) : slice(states, 0, 1, entries);
  }

  Steps run_recurrence(const Value& input, const Value& lengths, const Values& states, const RecurrentParameters& p,
                       bool is_reverse) const {
    const Value product = matmul(input, p.w);
    if (kind_ == Kind::lstm) {
      const Value xw = product + p.b;
      const DType wide = compute_dtype(states[1].dtype());  // the cell state of 16 bit types is carried in f32
      const bool is_none = states[1] == no_c_ && wide != states[1].dtype();
      const Value c = is_none ? expand(full(input.graph(), {}, 0, wide), states[1].shape())
                              : cast(states[1], wide);  // which zeros would be given to anew in every run
      const LstmRecurrence made = lstm_recurrence(xw, p.u, states[0], c, lengths, is_reverse);
      return {outputs_of(made.states, is_reverse), {made.last_h, cast(made.last_c, states[1].dtype())}};
    }
    if (kind_ == Kind::gru) {
      const std::int64_t hidden = hidden_of(p, gates());
      const Value xw = product + slice(p.b, 0, 0, 3 * hidden), inner = slice(p.b, 0, 3 * hidden, 4 * hidden);
      const GruRecurrence made = gru_recurrence(xw, p.u, inner, states[0], lengths, is_reverse);
      return {outputs_of(made.states, is_reverse), {made.last_h}};
    }
    const RnnRecurrence made = rnn_recurrence(product + p.b, p.u, states[0], lengths, is_reverse, options_.relu);
    return {outputs_of(made.states, is_reverse), {made.last_h}};
  }

  Steps run_scan(const Value& input, const Value& lengths, const Values& states, const RecurrentParameters& p,
                 bool is_reverse) const {
    Values sequences = {input};
    if (lengths.valid()) {
      const Value last = reshape(lengths, Shape{1, lengths.shape()[0], 1});
      sequences.push_back(less(iota(input.graph(), Shape{input.shape()[0], 1, 1}, 0, i32), last));
    }
    const StepResult made = scan(
        states, sequences,
        [&](const Values& before, const Values& element) {
          Values after = cell(element[0], before, p);
          if (element.size() == 1) return step(after, {after[0]});
          const Value& counts = element[1];
          const Value output = select(counts, after[0], full(after[0].graph(), {}, 0, after[0].dtype()));
          for (std::size_t k = 0; k < after.size(); ++k) after[k] = select(counts, after[k], before[k]);
          return step(after, {output});
        },
        is_reverse);
    return {made.outputs[0], made.carries};
  }

  Steps run_steps(const Value& input, const Value& lengths, const Values& states, const RecurrentParameters& p,
                  bool is_reverse) const {
    return is_recurrence(p) ? run_recurrence(input, lengths, states, p, is_reverse)
                            : run_scan(input, lengths, states, p, is_reverse);
  }

  // The same as a checkpoint: outputs, then states.
  Values recomputed(const Value& input, const Value& lengths, const Values& states, const RecurrentParameters& p,
                    bool is_reverse) const {
    Values inputs = {input};
    inputs.insert(inputs.end(), states.begin(), states.end());
    if (lengths.valid()) inputs.push_back(lengths);
    return checkpoint(
        [&](const Values& in) {
          const auto behind = in.begin() + 1 + static_cast<std::ptrdiff_t>(states.size());
          const Steps made =
              run_steps(in[0], lengths.valid() ? in.back() : Value(), Values(in.begin() + 1, behind), p, is_reverse);
          Values results = {made.outputs};
          results.insert(results.end(), made.states.begin(), made.states.end());
          return results;
        },
        inputs);
  }

  // A scan over stretches of so many steps, each of them a checkpoint; the remaining steps at the end are one more.
  Steps run_stretches(const Value& input, const Value& lengths, const Values& states, const RecurrentParameters& p,
                      bool is_reverse) const {
    const Shape& shape = input.shape();
    const std::int64_t each = options_.recompute, count = shape[0] / each, most = count * each, rest = shape[0] - most;
    Steps made{{}, states};
    Value whole, last;  // the outputs of the stretches, and of the rest
    const auto run_rest = [&] {
      if (rest == 0) return;
      const Value left = lengths.valid() ? maximum(lengths - static_cast<double>(most), 0.0) : Value();
      const Values results = recomputed(slice(input, 0, most, shape[0]), left, made.states, p, is_reverse);
      last = results[0], made.states = Values(results.begin() + 1, results.end());
    };
    if (is_reverse) run_rest();
    Values sequences = {reshape(slice(input, 0, 0, most), Shape{count, each, shape[1], shape[2]})};
    if (lengths.valid()) {  // of each stretch
      const Value passed = iota(input.graph(), Shape{count, 1}, 0, i32) * static_cast<double>(each);
      sequences.push_back(minimum(maximum(lengths - passed, 0.0), static_cast<double>(each)));
    }
    const StepResult scanned = scan(
        made.states, sequences,
        [&](const Values& before, const Values& element) {
          const Value of_stretch = element.size() > 1 ? element[1] : Value();
          const Values results = recomputed(element[0], of_stretch, before, p, is_reverse);
          return step(Values(results.begin() + 1, results.end()), {results[0]});
        },
        is_reverse);
    made.states = scanned.carries;
    whole = reshape(scanned.outputs[0], Shape{most, shape[1], width_of(p)});
    if (!is_reverse) run_rest();
    made.outputs = rest == 0 ? whole : concat(std::array{whole, last}, 0);
    return made;
  }

  Value run_direction(const Value& input, std::size_t i, bool is_reverse, RecurrentResult* result) {
    const std::string layer = fmt::format("l{}{}", i / directions_, is_reverse ? "_reverse" : "");
    const ValueScope scope(parameters_.size() > 1 ? layer : "", xs_);
    RecurrentParameters p = parameters_[i];
    Values states = {initial(options_.initial_h, i, width_of(p))};
    if (kind_ == Kind::lstm) states.push_back(initial(options_.initial_c, i, hidden_of(p, gates())));
    if (kind_ == Kind::lstm && options_.initial_c.empty()) no_c_ = states[1];
    p.u = dropout(p.u, options_.recurrent_dropout, options_.training);
    const bool is_cut = options_.recompute > 0 && options_.recompute < input.shape()[0];
    const Steps made = is_cut ? run_stretches(input, lengths(), states, p, is_reverse)
                              : run_steps(input, lengths(), states, p, is_reverse);
    result->last_h.push_back(made.states[0]);
    if (kind_ == Kind::lstm) result->last_c.push_back(made.states[1]);
    return made.outputs;
  }

  // h + (1 - chance) times the change after dropout: 0 with the chance, else all of it; in the mean, a mixture.
  Value zoned(const Value& before, const Value& after, double chance) const {
    if (chance == 0) return after;
    const Value change = dropout(after - before, chance, options_.training);
    return before + change * (1 - chance);
  }

  Values cell(const Value& x, const Values& state, const RecurrentParameters& p) const {
    const Value& h = state[0];
    if (kind_ == Kind::gru) return {zoned(h, gru_cell(x, h, p.w, p.u, p.b, options_.reset_after), options_.zoneout_h)};
    if (kind_ == Kind::rnn) return {zoned(h, rnn_cell(x, h, p.w, p.u, p.b, options_.relu), options_.zoneout_h)};
    const auto [made, c] = lstm_cell(x, h, state[1], p.w, p.u, p.b);
    const Value next_h = p.projection.valid() ? matmul(made, p.projection) : made;
    const Value zoned_h = zoned(h, next_h, options_.zoneout_h), zoned_c = zoned(state[1], c, options_.zoneout_c);
    return {zoned_h, zoned_c};
  }

  const Kind kind_;
  const Value xs_;
  const std::span<const RecurrentParameters> parameters_;
  const RecurrentOptions& options_;
  const std::size_t directions_;
  Value lengths_;
  Value no_c_;  // the cell state that a layer begins with where none is given
};

}  // namespace

RecurrentResult lstm(const Value& xs, std::span<const RecurrentParameters> parameters,
                     const RecurrentOptions& options) {
  return Stack(Kind::lstm, xs, parameters, options).run();
}

RecurrentResult gru(const Value& xs, std::span<const RecurrentParameters> parameters, const RecurrentOptions& options) {
  return Stack(Kind::gru, xs, parameters, options).run();
}

RecurrentResult rnn(const Value& xs, std::span<const RecurrentParameters> parameters, const RecurrentOptions& options) {
  return Stack(Kind::rnn, xs, parameters, options).run();
}

}  // namespace paoding
