// SPDX-License-Identifier: Apache-2.0
// Random ops: formulas of (index, run, seed), so they fuse, lift out of loops and cost no memory. They are random by
// the source of their inputs: random_key() below.
#include <cmath>
#include <numbers>

#include "base/check.h"
#include "base/one_line.h"
#include "graph/body_scope.h"
#include "ops/families.h"
#include "ops/random_key.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "paoding/range.h"

namespace paoding {
namespace {

constexpr std::string_view kStates = "random/", kPurpose = "state";  // by default
constexpr double kStreamSize = 4294967296.0;                         // runs of one stream

std::string place(const Graph& graph) { return in_scope(graph.scope.str()); }

// {seed, run}. Seeds stay below 2^48, where float64 holds them.
Tensor initial_state(const Type& type, std::uint64_t seed) {
  Tensor state(type);
  state.data<std::int64_t>()[0] = static_cast<std::int64_t>(seed & 0xffff'ffff'ffff);
  state.data<std::int64_t>()[1] = 0;
  return state;
}

constexpr Range kProbability = Range::between(0, 1), kDropped = Range::from_up_to(0, 1);

Graph& root_of(Graph& inner) {
  Graph* root = &inner;
  while (root->parent != nullptr) root = root->parent;
  return *root;
}

// The key of a graph's next op, whose first of `elements` numbers has index 0 where it stands in no loop.
template <class Index>
RandomKey key_from(Graph& of_values, std::int64_t elements, int streams, const Index& index_in) {
  Graph& graph = BodyScope::home(of_values);
  if (BodyScope::is_in_endless_loop()) {
    fail(ErrorKind::unsupported,
         "random numbers in a while_loop without a limit would be the same in all its steps{}\n"
         "hint: while_loop(..., max_iterations)",
         place(graph));
  }
  BodyScope::nest(graph);  // every step of every loop around draws anew
  Graph& root = root_of(graph);
  const std::string name =
      std::string(kStates) + (root.random_purpose.empty() ? std::string(kPurpose) : root.random_purpose.str());
  Value state = root.find(name);
  if (!state.valid()) {
    const BodyScope outside(nullptr, BodyKind::loop);  // runs are counted whichever branches they take
    state = root.parameter(name, i64, {2}, initial_state, ParameterRole::random);
    assign(state, state + iota(root, Shape{2}, 0, i64));
  }
  RandomKey key;
  std::int64_t& made = root.random_streams[name];
  key.stream = made;
  made += streams;
  const Value seed = slice(state, 0, 0, 1), run = slice(state, 0, 1, 2);
  key.seed = reshape(seed, Shape{});
  key.run = reshape(run, Shape{});
  key.index = index_in(graph);
  // Steps of the loops around come first: all of a step, then all of the next.
  auto size = static_cast<double>(elements);
  for (Graph* loop = &graph; loop->parent != nullptr; loop = loop->parent) {
    if (loop->step_count < 0) continue;  // a branch
    key.index = key.index + step_index(*loop) * size;
    size *= static_cast<double>(loop->step_count);
  }
  return key;
}

// The position of every element of `shape` among all that this op makes in a run, and where its numbers come from.
RandomKey random_key(Graph& of_values, const Shape& shape, int streams) {
  return key_from(of_values, shape.elements(), streams,
                  [&](Graph& graph) { return reshape(iota(graph, Shape{shape.elements()}, 0, i64), shape); });
}

// The numbers that a run counts from. Streams are numbered by the functions below; one that a text names may be
// anything.
Scalar stream_of(Scalar run, const Attrs& attrs, int number = 0) {
  constexpr std::int64_t kMostStream = (std::int64_t{1} << 31) - 2;  // that of all runs fit 63 bits
  const std::int64_t stream = attrs.get_int("stream");
  if (stream < 0 || stream > kMostStream) {
    fail(ErrorKind::argument, "stream = {}; it must be from 0 to {}", stream, kMostStream);
  }
  return run + static_cast<double>(stream + number) * kStreamSize;
}

// A function, because ops may be registered before the constants of this file exist: in a static library.
const std::vector<std::string>& key_inputs() {
  static const std::vector<std::string> made{"index", "run", "seed"};
  return made;
}
const AttrSpec& stream_attr() {
  static const AttrSpec made{
      .name = "stream", .example = std::int64_t{0}, .required = true, .doc = "which op's numbers"};
  return made;
}
const AttrSpec& dtype_attr() {
  static const AttrSpec made{.name = "dtype", .example = f32, .doc = "the result's dtype"};
  return made;
}

AttrSpec number(const char* name, double value, const char* doc) {
  return {.name = name, .example = value, .doc = doc};
}

std::vector<OpCase> key_cases(const Attrs& attrs) {
  return {{.shapes = {{4, 3}, {}, {}}, .attrs = attrs, .dtypes = {i64, i64, i64}},
          {.shapes = {{2, 0}, {}, {}}, .attrs = attrs, .dtypes = {i64, i64, i64}},
          {.shapes = {{}, {}, {}}, .attrs = attrs, .dtypes = {i64, i64, i64}}};
}

void check_probability(const Graph& graph, const char* op, double probability, const Range& range) {
  if (range.contains(probability)) return;
  fail(ErrorKind::argument, "{}: probability = {}, needs to be {}{}", op, probability, to_string(range), place(graph));
}

// An attribute of a formula, whose errors get the op's name in front.
double number_in(const Attrs& attrs, const char* name, const Range& range) {
  const double number = attrs.get_float(name);
  if (range.contains(number)) return number;
  fail(ErrorKind::argument, "{} = {}, needs to be {}", name, number, to_string(range));
}

std::vector<OpCase> with(std::vector<OpCase> cases, Attrs wrong, const char* error) {
  OpCase refused = cases[0];
  refused.attrs = std::move(wrong);
  refused.error = error;
  cases.push_back(refused);
  return cases;
}

void check_float(const Graph& graph, const char* op, DType dtype) {
  if (is_float(dtype)) return;
  fail(ErrorKind::dtype, "{}: dtype is {}, needed is a float{}", op, to_string(dtype), place(graph));
}

}  // namespace

RandomKey random_key_of_first(Graph& graph, std::int64_t elements) {
  return key_from(graph, elements, 1, [](Graph& home) { return full(home, {}, 0, i64); });
}

RandomPurpose::RandomPurpose(Graph& graph, std::string_view purpose)
    : root_(root_of(BodyScope::home(graph))), saved_(root_.random_purpose) {
  if (purpose.empty()) fail(ErrorKind::argument, "RandomPurpose: the purpose is empty{}", place(graph));
  root_.random_purpose = purpose;
}

void register_random_ops() {
  // ---- random_uniform ----
  register_op({
      .name = "random_uniform",
      .summary = "uniform numbers in [low, high) of a stream",
      .kind = OpKind::formula,
      .inputs = key_inputs(),
      .attrs = {stream_attr(), number("low", 0, "the least"), number("high", 1, "above the greatest"), dtype_attr()},
      .formula =
          [](std::span<const Scalar> in, const Attrs& attrs) {
            const DType dtype = attrs.get_dtype("dtype");
            const double low = number_in(attrs, "low", {}), high = number_in(attrs, "high", {});
            if (low > high) fail(ErrorKind::argument, "low is {} and high is {}; low <= high is needed", low, high);
            const Scalar u = random_uniform(in[0], stream_of(in[1], attrs), in[2], compute_dtype(dtype));
            return convert(low + (high - low) * u, dtype);
          },
      .cases = with(key_cases({{"stream", std::int64_t{3}}, {"low", -1.0}, {"high", 2.0}}),
                    {{"stream", std::int64_t{3}}, {"low", 2.0}}, "low is 2 and high is 1"),
  });

  // ---- random_normal ----
  register_op({
      .name = "random_normal",
      .summary = "normal numbers of two streams",
      .kind = OpKind::formula,
      .inputs = key_inputs(),
      .attrs = {stream_attr(), number("mean", 0, "of all"), number("deviation", 1, "standard deviation"), dtype_attr()},
      .formula =
          [](std::span<const Scalar> in, const Attrs& attrs) {
            const DType dtype = attrs.get_dtype("dtype"), wide = compute_dtype(dtype);
            const Scalar u = random_uniform(in[0], stream_of(in[1], attrs), in[2], wide);
            const Scalar v = random_uniform(in[0], stream_of(in[1], attrs, 1), in[2], wide);
            // 1 - u is never 0.
            const Scalar radius = sqrt(-2.0 * log(1.0 - u)), normal = radius * cos(2 * std::numbers::pi * v);
            return convert(number_in(attrs, "mean", {}) + number_in(attrs, "deviation", Range::at_least(0)) * normal,
                           dtype);
          },
      .cases = with(key_cases({{"stream", std::int64_t{3}}, {"mean", 1.0}, {"deviation", 0.5}}),
                    {{"stream", std::int64_t{3}}, {"deviation", -0.5}}, "deviation = -0.5, needs to be at least 0"),
  });

  // ---- random_bernoulli ----
  register_op({
      .name = "random_bernoulli",
      .summary = "bools of a stream that are true with probability",
      .kind = OpKind::formula,
      .inputs = key_inputs(),
      .attrs = {stream_attr(), number("probability", 0.5, "of true")},
      .formula =
          [](std::span<const Scalar> in, const Attrs& attrs) {
            return random_uniform(in[0], stream_of(in[1], attrs), in[2], f32) <
                   number_in(attrs, "probability", kProbability);
          },
      .cases = with(key_cases({{"stream", std::int64_t{3}}, {"probability", 0.25}}),
                    {{"stream", std::int64_t{3}}, {"probability", 1.5}}, "probability = 1.5"),
  });

  // ---- dropout ----
  std::vector<std::string> inputs = key_inputs();
  inputs.emplace_back("x");
  register_op({
      .name = "dropout",
      .summary = "0 with probability, else x / (1 - probability)",
      .kind = OpKind::formula,
      .inputs = inputs,
      .attrs = {stream_attr(), number("probability", 0.5, "of 0")},
      .conditions = 3,
      .formula =
          [](std::span<const Scalar> in, const Attrs& attrs) {
            const double probability = number_in(attrs, "probability", kDropped);
            const Scalar u = random_uniform(in[0], stream_of(in[1], attrs), in[2], f32), x = in[3];
            return select(u < probability, x.constant(0), x * (1 / (1 - probability)));
          },
      // The same numbers again rather than a mask in memory.
      .gradient =
          [](const GradCall& call) {
            const Value dx = paoding::call("dropout", {call.inputs[0], call.inputs[1], call.inputs[2], call.grads[0]},
                                           call.node.attrs);
            return Values{Value(), Value(), Value(), dx};
          },
      .cases = {{.shapes = {{4, 3}, {}, {}, {4, 3}},
                 .attrs = {{"stream", std::int64_t{1}}},
                 .dtypes = {i64, i64, i64, f32}},
                {.shapes = {{2, 0}, {}, {}, {2, 0}},
                 .attrs = {{"stream", std::int64_t{1}}, {"probability", 0.2}},
                 .dtypes = {i64, i64, i64, f32}}},
  });
}

Value random_uniform(Graph& graph, const Shape& shape, double low, double high, DType dtype) {
  check_float(graph, "random_uniform", dtype);
  const RandomKey key = random_key(graph, shape, 1);
  return call("random_uniform", {key.index, key.run, key.seed},
              {{"stream", key.stream}, {"low", low}, {"high", high}, {"dtype", dtype}});
}

Value random_normal(Graph& graph, const Shape& shape, double mean, double deviation, DType dtype) {
  check_float(graph, "random_normal", dtype);
  const RandomKey key = random_key(graph, shape, 2);
  return call("random_normal", {key.index, key.run, key.seed},
              {{"stream", key.stream}, {"mean", mean}, {"deviation", deviation}, {"dtype", dtype}});
}

Value random_bernoulli(Graph& graph, const Shape& shape, double probability) {
  check_probability(graph, "random_bernoulli", probability, kProbability);
  const RandomKey key = random_key(graph, shape, 1);
  return call("random_bernoulli", {key.index, key.run, key.seed},
              {{"stream", key.stream}, {"probability", probability}});
}

Value dropout(const Value& x, double probability, bool training) {
  check_probability(x.graph(), "dropout", probability, kDropped);
  check_float(x.graph(), "dropout", x.dtype());
  if (!training || probability == 0) return x;
  const RandomKey key = random_key(x.graph(), x.shape(), 1);
  return call("dropout", {key.index, key.run, key.seed, x}, {{"stream", key.stream}, {"probability", probability}});
}

}  // namespace paoding
