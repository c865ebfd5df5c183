// SPDX-License-Identifier: Apache-2.0
// gradients() against finite differences in double, through the reference evaluator: every case of every op, scans in
// all their forms, broadcasts, gradients of gradients.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <cmath>
#include <random>

#include "graph/verify.h"
#include "paoding/autodiff.h"
#include "paoding/op.h"
#include "paoding/ops.h"
#include "tests/reference/reference_evaluator.h"
#include "tests/support/op_case.h"

namespace paoding {
namespace {

using Dense = std::vector<double>;
using Ints = std::vector<std::int64_t>;
using Feeds = std::map<std::string, Dense>;

constexpr double kDifferenceStep = 1e-5;
constexpr std::size_t kMostElements = 10;  // of one input that are probed

// Magnitudes of 0.3 to 1.3: away from the poles of log and division and from the kinks at 0.
Dense random_values(std::int64_t count, bool positive, std::mt19937* random) {
  std::uniform_real_distribution<double> magnitude(0.3, 1.3);
  Dense values;
  for (std::int64_t i = 0; i < count; ++i) {
    const double value = magnitude(*random);
    values.push_back(positive || (*random)() % 2 == 0 ? value : -value);
  }
  return values;
}

Feeds random_feeds(const Graph& graph, bool positive, std::mt19937* random) {
  Feeds feeds;
  for (const auto* list : {&graph.inputs(), &graph.parameters()}) {
    for (NodeId id : *list) {
      const Type& type = graph.node(id).types[0];
      Dense& values = feeds[graph.node(id).name.str()];
      values = random_values(type.shape.elements(), positive, random);
      if (!is_float(type.dtype)) {
        for (double& value : values) value = value > 0 ? 1 : 0;
      }
    }
  }
  return feeds;
}

// Compares gradients(loss, inputs) with central differences at random feeds.
void expect_gradients(Graph& graph, const Value& loss, const Values& inputs, bool positive = false,
                      std::mt19937::result_type seed = 1) {
  const Values made = gradients(std::array{loss}, inputs);
  graph.fetch("loss", loss);
  for (std::size_t i = 0; i < made.size(); ++i) {
    ASSERT_EQ(made[i].type(), inputs[i].type());
    graph.fetch("gradient of " + graph.node(inputs[i].ref().node).name.str(), made[i]);
  }
  ASSERT_NO_THROW(verify(graph, "gradients"));
  std::mt19937 random(seed);
  const Feeds feeds = random_feeds(graph, positive, &random);
  const auto analytic = evaluate_graph(graph, feeds);
  auto forward = graph.clone();  // the loss alone, for speed
  std::erase_if(forward->mutable_fetches(), [](const Graph::Fetch& fetch) { return fetch.name != "loss"; });
  forward->compact();
  for (const Value& input : inputs) {
    const std::string name = graph.node(input.ref().node).name.str();
    const Dense& gradient = analytic.at("gradient of " + name);
    const std::size_t count = feeds.at(name).size();
    ASSERT_EQ(gradient.size(), count);
    for (std::size_t probe = 0; probe < std::min(count, kMostElements); ++probe) {
      const std::size_t element = count <= kMostElements ? probe : random() % count;
      Feeds moved = feeds;
      moved[name][element] += kDifferenceStep;
      const double above = evaluate_graph(*forward, moved).at("loss")[0];
      moved[name][element] -= 2 * kDifferenceStep;
      const double below = evaluate_graph(*forward, moved).at("loss")[0];
      const double expected = (above - below) / (2 * kDifferenceStep);
      EXPECT_NEAR(gradient[element], expected,
                  1e-7 * (1 + std::fabs(expected)) + 1e-10 * std::fabs(above) / kDifferenceStep)
          << "element " << element << " of " << name;
    }
  }
}

// A scalar that weighs every element differently, so that no error cancels. The logarithm of a sum of nothing, which
// does not move, has no weight.
Value weighted_sum(Graph& graph, std::span<const Value> values) {
  Values terms;
  for (const Value& value : values) {
    if (!is_float(value.dtype())) continue;
    const Value weights = graph.input("weights" + std::to_string(terms.size()), value.dtype(), value.shape());
    terms.push_back(sum(select(isfinite(value), value, 0.0) * weights));
  }
  return terms.empty() ? Value() : add_n(terms);
}

// ---- every case of every op ----

struct NamedCase {
  const OpDef* op;
  std::size_t index;
};

struct BuiltCase {
  Values floats;  // the inputs that have gradients
  Value loss;     // invalid when no result is a float
};

BuiltCase build_case(Graph& graph, const OpDef& op, const OpCase& test_case) {
  BuiltCase built;
  Values inputs;
  for (std::size_t i = 0; i < test_case.shapes.size(); ++i) {
    const DType usual = op.name.starts_with("logical") ? boolean : f32;
    const DType dtype = i < test_case.dtypes.size() ? test_case.dtypes[i] : usual;
    inputs.push_back(graph.input("in" + std::to_string(i), dtype, test_case.shapes[i]));
    if (is_float(dtype)) built.floats.push_back(inputs.back());
  }
  built.loss = weighted_sum(graph, call(op, inputs, test_case.attrs, {}, &graph));
  return built;
}

std::vector<NamedCase> differentiable_cases() {
  std::vector<NamedCase> cases;
  for (const OpDef* op : all_ops()) {
    if (op->name == "stop_gradient") continue;  // its gradient is 0 by definition: see Gradients.StopWhereTold
    for (std::size_t i = 0; i < op->cases.size(); ++i) {
      const OpCase& test_case = op->cases[i];
      const AttrValue* dtype = test_case.attrs.find("dtype");
      // A cast to fewer bits is a staircase: its gradient is that of the identity by definition.
      const bool rounds = op->name == "store_as" || op->name == "matmul_wide" ||
                          op->name == "conv2d_grad_weight_wide" ||
                          (dtype != nullptr && std::get<DType>(*dtype) != f64 && std::get<DType>(*dtype) != f32);
      if (!test_case.error.empty() || rounds) continue;
      Graph graph;
      const BuiltCase built = build_case(graph, *op, test_case);
      if (built.loss.valid() && !built.floats.empty()) cases.push_back({op, i});
    }
  }
  return cases;
}

class OpGradient : public testing::TestWithParam<NamedCase> {};

TEST_P(OpGradient, EqualsFiniteDifferences) {
  const OpDef& op = *GetParam().op;
  const OpCase& test_case = op.cases[GetParam().index];
  Graph graph;
  const BuiltCase built = build_case(graph, op, test_case);
  expect_gradients(graph, built.loss, built.floats, testing_program::takes_positive_only(op));
}

INSTANTIATE_TEST_SUITE_P(EveryOp, OpGradient, testing::ValuesIn(differentiable_cases()), [](const auto& info) {
  return info.param.op->name + "_case" + std::to_string(info.param.index);
});

// ---- sums over uses and broadcasts ----

// So that reports know where the time of the sums goes that no op of the forward pass made.
TEST(Gradients, OfAScanBelongToItsScope) {
  Graph g;
  const Value w = g.input("w", f32, {3}), xs = g.input("xs", f32, {4, 3});
  Value last;
  {
    const Scope scope(g, "rnn");
    last = scan({w}, {xs}, [&](const Values& carries, const Values& x) {
             const Value h = carries[0] * w + x[0] * w * carries[0];
             return step({h}, {});
           }).carries[0];
  }
  gradients(sum(last), {w});
  int scans = 0;
  for (NodeId id = 0; id < g.size(); ++id) {
    if (g.node(id).op->name != "scan") continue;
    ++scans;
    const Graph& body = *g.node(id).bodies[0];
    for (NodeId inner = 0; inner < body.size(); ++inner) {
      if (body.node(inner).op->name == "input") continue;
      EXPECT_EQ(body.node(inner).scope.str(), "rnn") << body.node(inner).title();
    }
  }
  EXPECT_EQ(scans, 2);
}

TEST(Gradients, SumOverAllUsesOfAValue) {
  Graph g;
  const Value x = g.input("x", f32, {3});
  expect_gradients(g, sum(x * x + tanh(x) * x), {x});
}

TEST(Gradients, SumOverBroadcastAxes) {
  Graph g;
  const Value a = g.input("a", f32, {4, 1, 3}), b = g.input("b", f32, {5, 1}), c = g.input("c", f32, {}),
              d = g.input("d", f32, {1, 1, 1});
  const std::array out{sigmoid(a * b + c) * d};
  expect_gradients(g, weighted_sum(g, out), {a, b, c, d});
}

TEST(Gradients, AreZeroForInputsThatDoNotMatter) {
  Graph g;
  const Value x = g.input("x", f32, {3}), y = g.input("y", f32, {2, 2}), n = g.input("n", f32, {3});
  expect_gradients(g, sum(select(less(n, x), x * x, x)), {x, y, n});
}

TEST(Gradients, StopWhereTold) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  const Value stopped = stop_gradient(x);
  g.fetch("all", gradients(std::array{sum(stopped * stopped)}, std::array{x})[0]);
  g.fetch("part", gradients(std::array{sum(x * stopped)}, std::array{x})[0]);
  const auto got = evaluate_graph(g, {{"x", {2, -3}}});
  EXPECT_EQ(got.at("all"), (Dense{0, 0}));
  EXPECT_EQ(got.at("part"), (Dense{2, -3}));
}

TEST(Gradients, TakeSeeds) {
  Graph g;
  const Value x = g.input("x", f32, {2}), s = g.input("s", f32, {2});
  g.fetch("dx", gradients(std::array{x * x}, std::array{x}, std::array{s})[0]);
  EXPECT_EQ(evaluate_graph(g, {{"x", {2, 3}}, {"s", {10, 100}}}).at("dx"), (Dense{40, 600}));
}

TEST(Gradients, OfGradientsEqualFiniteDifferences) {
  Graph g;
  const Value x = g.input("x", f32, {3, 4}), w = g.input("w", f32, {4, 2}), b = g.input("b", f32, {2});
  const Value y = sum(tanh(matmul(x, w) + b) * sigmoid(b));
  const Values first = gradients(std::array{y}, std::array{x, b});
  expect_gradients(g, sum(first[0] * first[0]) + sum(first[1] * exp(first[1])), {x, w, b});
}

// ---- scan ----

struct Lstm {
  Value x, h0, c0, w, u, b;
  StepResult made;
};

Lstm build_lstm_layer(Graph& g, bool reverse = false) {
  constexpr std::int64_t T = 5, B = 2, I = 3, H = 2;
  Lstm m{g.input("x", f32, {T, B, I}),
         g.input("h0", f32, {B, H}),
         g.input("c0", f32, {B, H}),
         g.parameter("w", f32, {I, 4 * H}),
         g.parameter("u", f32, {H, 4 * H}),
         g.parameter("b", f32, {4 * H}),
         {}};
  m.made = scan(
      {m.h0, m.c0}, {m.x},
      [&](const Values& carry, const Values& element) {
        const auto [h, c] = lstm_cell(element[0], carry[0], carry[1], m.w, m.u, m.b);
        return step({h, c}, {h, h + c});  // no recurrence of an op's own
      },
      reverse);
  return m;
}

TEST(ScanGradients, OfAnLstmEqualFiniteDifferences) {
  for (const bool reverse : {false, true}) {
    Graph g;
    const Lstm m = build_lstm_layer(g, reverse);
    const std::array out{m.made.outputs[0], m.made.carries[0], m.made.carries[1]};
    expect_gradients(g, weighted_sum(g, out), {m.x, m.h0, m.c0, m.w, m.u, m.b});
  }
}

TEST(ScanGradients, OfTheLastCarryOnly) {
  Graph g;
  const Lstm m = build_lstm_layer(g);
  expect_gradients(g, weighted_sum(g, std::array{m.made.carries[1]}), {m.x, m.h0, m.c0, m.w, m.u, m.b});
}

TEST(ScanGradients, OfSomeInputsOnly) {
  for (int which = 0; which < 6; ++which) {
    Graph g;
    const Lstm m = build_lstm_layer(g);
    const std::array all{m.x, m.h0, m.c0, m.w, m.u, m.b};
    expect_gradients(g, weighted_sum(g, m.made.outputs), {all[static_cast<std::size_t>(which)]});
  }
}

TEST(ScanGradients, TakenTwiceFromOneScan) {
  Graph g;
  const Lstm m = build_lstm_layer(g);
  const Value first = sum(gradients(sum(m.made.outputs[0]), {m.u})[0]);
  EXPECT_TRUE(first.valid());
  expect_gradients(g, weighted_sum(g, m.made.outputs), {m.x, m.w, m.u});
}

TEST(ScanGradients, WithAnUnusedCarryAndConstant) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), k0 = g.input("k0", f32, {3}), xs = g.input("xs", f32, {4, 2}),
              w = g.input("w", f32, {2}), v = g.input("v", f32, {2});
  const StepResult made = scan({h0, k0}, {xs}, [&](const Values& carry, const Values& x) {
    const Value h = tanh(carry[0] * w + x[0]);
    return step({h, carry[1] * 2.0}, {h * v, h});
  });
  expect_gradients(g, weighted_sum(g, std::array{made.outputs[1]}), {h0, k0, xs, w, v});
}

TEST(ScanGradients, ThroughACarryThatPassesThrough) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {3, 2});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    return step({carry[0]}, {carry[0] * x[0], x[0]});
  });
  const std::array out{made.carries[0], made.outputs[0], made.outputs[1]};
  expect_gradients(g, weighted_sum(g, out), {h0, xs});
}

TEST(ScanGradients, WhenTheStepReturnsAConstant) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {3, 2}), w = g.input("w", f32, {2});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    return step({w}, {carry[0] * x[0], w});
  });
  const std::array out{made.carries[0], made.outputs[0], made.outputs[1]};
  expect_gradients(g, weighted_sum(g, out), {h0, xs, w});
}

TEST(ScanGradients, WithAnIntegerCarry) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), n0 = g.input("n0", i32, {}), xs = g.input("xs", f32, {4, 2});
  const StepResult made = scan({n0, h0}, {xs}, [&](const Values& carry, const Values& x) {
    const Value n = carry[0] + 1.0;
    return step({n, carry[1] * x[0] * 0.5 + cast(n, f32)}, {carry[1]});
  });
  const std::array out{made.carries[1], made.outputs[0]};
  expect_gradients(g, weighted_sum(g, out), {h0, xs});
}

TEST(ScanGradients, OfOneStepAndOfNone) {
  for (const std::int64_t length : {1, 0}) {
    Graph g;
    const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {length, 2}), w = g.input("w", f32, {2});
    const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
      const Value h = tanh(carry[0] * w + x[0]);
      return step({h}, {h});
    });
    const std::array out{made.carries[0], made.outputs[0]};
    expect_gradients(g, weighted_sum(g, out), {h0, xs, w});
  }
}

TEST(ScanGradients, ThroughAScanInAScan) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {3, 2}), ys = g.input("ys", f32, {4, 2}),
              w = g.input("w", f32, {2, 2});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    const StepResult inner = scan(
        {carry[0]}, {ys},
        [&](const Values& state, const Values& y) {
          const Value s = tanh(reshape(matmul(reshape(state[0] * y[0], Ints{1, 2}), w), Ints{2}) + x[0]);
          return step({s}, {s});
        },
        true);
    return step({inner.carries[0]}, {sum(inner.outputs[0], Ints{0})});
  });
  const std::array out{made.carries[0], made.outputs[0]};
  expect_gradients(g, weighted_sum(g, out), {h0, xs, ys, w});
}

TEST(ScanGradients, OfScanGradients) {
  Graph g;
  const Value h0 = g.input("h0", f32, {2}), xs = g.input("xs", f32, {3, 2}), w = g.input("w", f32, {2});
  const StepResult made = scan({h0}, {xs}, [&](const Values& carry, const Values& x) {
    const Value h = tanh(carry[0] * w + x[0]);
    return step({h}, {h});
  });
  const Values first = gradients(std::array{sum(made.outputs[0] * made.outputs[0])}, std::array{h0, xs, w});
  expect_gradients(g, sum(first[0] * first[0]) + sum(first[1] * first[1]) + sum(first[2]), {h0, xs, w});
}

}  // namespace
}  // namespace paoding
