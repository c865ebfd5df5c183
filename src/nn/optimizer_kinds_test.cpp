// SPDX-License-Identifier: Apache-2.0
// RMSProp, Lion, LAMB and Adafactor against their formulas in double; groups by glob, rank and predicate; averages.
#include <cfloat>

#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kRows = 3, kColumns = 4;
using Rule = std::function<void(Dense* p, const Dense& g, double t)>;

// Gradients that differ from run to run, the same for both sides.
Dense gradient_of(const Dense& p, int run) {
  Dense g;
  for (std::size_t i = 0; i < p.size(); ++i) g.push_back(std::sin(p[i] * 3 + run + static_cast<double>(i)));
  return g;
}

Dense start_of(std::size_t count) {
  Dense p;
  for (std::size_t i = 0; i < count; ++i) p.push_back(std::cos(static_cast<double>(i)) + 0.1);
  return p;
}

// Six updates of a matrix and a vector; the loss is linear, so that its gradient is the input.
void check(const Optimizer& optimizer, const Rule& of_matrix, const Rule& of_vector) {
  Graph g;
  const Value m = g.parameter("m", f64, {kRows, kColumns}), v = g.parameter("v", f64, {kRows});
  const Value gm = g.input("gm", f64, {kRows, kColumns}), gv = g.input("gv", f64, {kRows});
  minimize(sum(m * gm) + sum(v * gv), optimizer);
  Parameters parameters(g, Device::cpu());
  Dense mine_m = start_of(kRows * kColumns), mine_v = start_of(kRows);
  parameters.set("m", Tensor::from(f64, {kRows, kColumns}, mine_m));
  parameters.set("v", Tensor::from(f64, {kRows}, mine_v));
  Program program(g, {}, &parameters);
  for (int run = 0; run < 6; ++run) {
    const Dense dm = gradient_of(mine_m, run), dv = gradient_of(mine_v, run);
    program.run({{"gm", Tensor::from(f64, {kRows, kColumns}, dm)}, {"gv", Tensor::from(f64, {kRows}, dv)}});
    of_matrix(&mine_m, dm, run + 1.0);
    of_vector(&mine_v, dv, run + 1.0);
  }
  expect_close("m", parameters.get("m").to_doubles(), mine_m, 1e-12);
  expect_close("v", parameters.get("v").to_doubles(), mine_v, 1e-12);
}

double length(const Dense& a) {
  double total = 0;
  for (const double value : a) total += value * value;
  return std::sqrt(total);
}

// The rule of torch.optim.RMSprop.
Rule rmsprop(const RmsProp& n, double rate) {
  return [=, v = Dense(100), m = Dense(100), b = Dense(100)](Dense* p, const Dense& g, double) mutable {
    for (std::size_t i = 0; i < g.size(); ++i) {
      const double d = g[i] + n.weight_decay * (*p)[i];
      v[i] = n.decay * v[i] + (1 - n.decay) * d * d;
      m[i] = n.decay * m[i] + (1 - n.decay) * d;
      const double root = std::sqrt(n.centered ? v[i] - m[i] * m[i] : v[i]) + n.epsilon;
      b[i] = n.momentum * b[i] + d / root;
      (*p)[i] -= rate * (n.momentum > 0 ? b[i] : d / root);
    }
  };
}

TEST(OptimizerKinds, RmsPropUpdatesAsItsFormulaSays) {
  for (const RmsProp& n : {RmsProp{.learning_rate = 0.05}, RmsProp{.learning_rate = 0.05, .weight_decay = 0.1},
                           RmsProp{.learning_rate = 0.05, .decay = 0.9, .epsilon = 1e-3, .momentum = 0.8},
                           RmsProp{.learning_rate = 0.05, .momentum = 0.5, .centered = true}}) {
    check(n, rmsprop(n, 0.05), rmsprop(n, 0.05));
  }
}

TEST(OptimizerKinds, LionUpdatesAsItsFormulaSays) {
  const Lion n{.learning_rate = 0.01, .beta1 = 0.8, .weight_decay = 0.2};
  const auto rule = [&] {
    return [n, m = Dense(100)](Dense* p, const Dense& g, double) mutable {
      for (std::size_t i = 0; i < g.size(); ++i) {
        const double c = n.beta1 * m[i] + (1 - n.beta1) * g[i];
        (*p)[i] -= 0.01 * ((c > 0) - (c < 0) + n.weight_decay * (*p)[i]);
        m[i] = n.beta2 * m[i] + (1 - n.beta2) * g[i];
      }
    };
  };
  check(n, rule(), rule());
}

TEST(OptimizerKinds, LambUpdatesAsItsFormulaSays) {
  const Lamb n{.learning_rate = 0.02, .weight_decay = 0.1};
  const auto rule = [&] {
    return [n, m = Dense(100), v = Dense(100)](Dense* p, const Dense& g, double t) mutable {
      Dense u(g.size());
      for (std::size_t i = 0; i < g.size(); ++i) {
        m[i] = n.beta1 * m[i] + (1 - n.beta1) * g[i];
        v[i] = n.beta2 * v[i] + (1 - n.beta2) * g[i] * g[i];
        const double mean = m[i] / (1 - std::pow(n.beta1, t)), square = v[i] / (1 - std::pow(n.beta2, t));
        u[i] = mean / (std::sqrt(square) + n.epsilon) + n.weight_decay * (*p)[i];
      }
      const double ratio = length(*p) / length(u);
      for (std::size_t i = 0; i < g.size(); ++i) (*p)[i] -= 0.02 * ratio * u[i];
    };
  };
  check(n, rule(), rule());
}

// The rule of torch.optim.Adafactor.
TEST(OptimizerKinds, AdafactorUpdatesAsItsFormulaSays) {
  const Adafactor n{.learning_rate = 0.5, .weight_decay = 0.1};
  const auto apply = [n](Dense* p, const Dense& g, const Dense& estimate, double t) {
    Dense u(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) {
      u[i] = g[i] / std::sqrt(std::max(estimate[i], DBL_EPSILON * DBL_EPSILON));
    }
    const double count = std::sqrt(static_cast<double>(g.size()));
    const double rate = std::min(0.5, 1 / std::sqrt(t)) * std::max(n.epsilon2, length(*p) / count);
    const double too_long = std::max(1.0, length(u) / (count * n.clip));
    for (std::size_t i = 0; i < g.size(); ++i) (*p)[i] = (*p)[i] * (1 - 0.5 * n.weight_decay) - rate / too_long * u[i];
  };
  const Rule of_matrix = [=, r = Dense(kRows), c = Dense(kColumns)](Dense* p, const Dense& g, double t) mutable {
    const double share = std::pow(t, n.beta2_decay);
    double mean = 0;
    for (std::size_t i = 0; i < kRows; ++i) {
      double of_row = 0;
      for (std::size_t k = 0; k < kColumns; ++k) of_row += g[i * kColumns + k] * g[i * kColumns + k] / kColumns;
      r[i] += share * (of_row - r[i]);
      mean += r[i] / kRows;
    }
    for (std::size_t k = 0; k < kColumns; ++k) {
      double of_column = 0;
      for (std::size_t i = 0; i < kRows; ++i) of_column += g[i * kColumns + k] * g[i * kColumns + k] / kRows;
      c[k] += share * (of_column - c[k]);
    }
    Dense estimate(g.size());
    for (std::size_t i = 0; i < g.size(); ++i) estimate[i] = r[i / kColumns] * c[i % kColumns] / mean;
    apply(p, g, estimate, t);
  };
  const Rule of_vector = [=, v = Dense(kRows)](Dense* p, const Dense& g, double t) mutable {
    for (std::size_t i = 0; i < g.size(); ++i) v[i] += std::pow(t, n.beta2_decay) * (g[i] * g[i] - v[i]);
    apply(p, g, v, t);
  };
  check(n, of_matrix, of_vector);
}

TEST(OptimizerKinds, AdafactorKeepsARowAndAColumnOfAMatrix) {
  Graph g;
  minimize(sum(g.parameter("m", f32, {64, 32})), Adafactor{});
  EXPECT_EQ(g.find("adafactor/row/m").shape(), (Shape{64, 1}));
  EXPECT_EQ(g.find("adafactor/column/m").shape(), (Shape{1, 32}));
}

TEST(OptimizerKinds, SayWhichNumberIsOutOfRange) {
  const auto said = [](const Optimizer& optimizer) {
    Graph g;
    return message_of([&] { minimize(sum(g.parameter("p", f32, {2})), optimizer); });
  };
  EXPECT_TRUE(has(said(Lion{.beta1 = 1}), "minimize: lion: beta1 = 1"));
  EXPECT_TRUE(has(said(Lamb{.epsilon = -1}), "minimize: lamb: epsilon = -1"));
  EXPECT_TRUE(has(said(RmsProp{.decay = 2}), "minimize: rmsprop: decay = 2"));
  EXPECT_TRUE(has(said(Adafactor{.clip = 0}), "minimize: adafactor: clip = 0"));
  EXPECT_TRUE(has(said(Lion{.weight_decay = -1}), "weight_decay = -1"));
}

// Parameters of which every one has the gradient 1, under Sgd with rate 0.1: their values after an update.
std::map<std::string, double> updated(const MinimizeOptions& options) {
  Graph g;
  Value loss = full(g, {}, 0);
  const std::map<std::string, Shape> shapes{
      {"encoder/l0/weight", {2, 2}}, {"encoder/l0/bias", {2}}, {"out/bias", {3}}, {"out/weight", {2, 3}}};
  for (const auto& [name, shape] : shapes) loss = loss + sum(g.parameter(name, f32, shape, nn::constant(1)));
  minimize(loss, Sgd{.learning_rate = 0.1}, options);
  Parameters parameters(g, Device::cpu());
  Program(g, {}, &parameters).run();
  std::map<std::string, double> values;
  for (const auto& [name, shape] : shapes) values[name] = parameters.get(name).to_doubles()[0];
  return values;
}

void expect_values(const std::map<std::string, double>& got, double encoder_weight, double encoder_bias,
                   double out_bias, double out_weight) {
  EXPECT_NEAR(got.at("encoder/l0/weight"), encoder_weight, 1e-6);
  EXPECT_NEAR(got.at("encoder/l0/bias"), encoder_bias, 1e-6);
  EXPECT_NEAR(got.at("out/bias"), out_bias, 1e-6);
  EXPECT_NEAR(got.at("out/weight"), out_weight, 1e-6);
}

TEST(ParameterGroups, AreChosenByGlobRankAndPredicate) {
  expect_values(updated({.groups = {{.names = {"*/bias"}, .rate_factor = 3}}}), 0.9, 0.7, 0.7, 0.9);
  expect_values(updated({.groups = {{.names = {"enc*er/l?/*"}, .frozen = true}}}), 1, 1, 0.9, 0.9);
  expect_values(updated({.groups = {{.rank = 2, .weight_decay = 0.5}}}), 0.85, 0.9, 0.9, 0.85);
  expect_values(updated({.groups = {{.names = {"out/*"}, .rank = 1, .rate_factor = 2}}}), 0.9, 0.9, 0.8, 0.9);
  const auto is_large = [](const std::string&, const Type& type) { return type.shape.elements() > 3; };
  expect_values(updated({.groups = {{.predicate = is_large, .rate_factor = 0}}}), 1, 0.9, 0.9, 1);
  // The first that fits has it.
  expect_values(updated({.groups = {{.names = {"out/*"}, .rate_factor = 2}, {.names = {"*"}, .rate_factor = 5}}}), 0.5,
                0.5, 0.8, 0.8);
}

TEST(ParameterGroups, SayWhatIsWrong) {
  EXPECT_TRUE(has(message_of([] { updated({.groups = {{.names = {"*/gamma"}}}}); }), "'*/gamma' fits no parameter"));
  EXPECT_TRUE(has(message_of([] { updated({.groups = {{}}}); }), "a group has no names, no rank and no predicate"));
  EXPECT_TRUE(has(message_of([] { updated({.groups = {{.rank = 2, .rate_factor = -1}}}); }), "rate_factor = -1"));
}

TEST(AverageOfWeights, FollowsTheParameterFromWhereItStarts) {
  Graph g;
  const Value p = g.parameter("p", bf16, {2});
  minimize(sum(cast(p, f32)), Sgd{.learning_rate = 0.5}, {.master_weights = true, .average_decay = 0.75});
  Parameters parameters(g, Device::cpu());
  parameters.set("p", Tensor::from(bf16, {2}, Dense{1, -2}));
  Program program(g, {}, &parameters);
  Dense value{1, -2}, average = value;
  for (int run = 0; run < 4; ++run) {
    program.run();
    for (std::size_t i = 0; i < 2; ++i) value[i] -= 0.5, average[i] = 0.75 * average[i] + 0.25 * value[i];
  }
  EXPECT_EQ(parameters.get("average/p").to_doubles(), average);
  const auto averages = averages_of(parameters);
  ASSERT_EQ(averages.size(), 1u);
  EXPECT_EQ(averages.at("p").type(), (Type{bf16, {2}}));
  EXPECT_EQ(averages.at("p").to_doubles(), rounded({bf16, {2}}, average));
  const Parameters without(*parse_graph("paoding graph 1\np = parameter f32[2]\nfetch p\n"), Device::cpu());
  EXPECT_TRUE(has(message_of([&] { averages_of(without); }), "the store has no averages"));
}

}  // namespace
}  // namespace paoding::testing_program
