// SPDX-License-Identifier: Apache-2.0
// Optimizers against their formulas in double, update by update: every kind, groups, frozen parameters, accumulation,
// clipping, updates that are skipped, master weights.
#include "paoding/optimizer.h"

#include <cmath>
#include <functional>

#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// The gradient of sum((p - target)^2) / 2 is p - target: enough for an optimizer to be seen by.
struct Model {
  Graph g;
  Value p, q, target, loss;

  explicit Model(DType dtype = f64) {
    p = g.parameter("p", dtype, {5});
    q = g.parameter("net/q", dtype, {2, 3});
    target = g.input("target", dtype, {5});
    const Value of_p = p - target, of_q = q + 0.5;
    loss = (sum(of_p * of_p) + sum(of_q * of_q)) * 0.5;
    g.fetch("loss", loss);
  }
};

const Dense kP{0.5, -1, 2, 0.25, -0.75}, kQ{1, -2, 3, -0.5, 0.25, 0.125};
Dense target_of(int run) {
  Dense values;
  for (int i = 0; i < 5; ++i) values.push_back(std::sin(1.0 + run * 5 + i));
  return values;
}

struct Trained {
  Model model;
  TrainingStep made;
  std::unique_ptr<Parameters> parameters;
  std::unique_ptr<Program> program;
  int runs = 0;

  Trained(const Optimizer& optimizer, const MinimizeOptions& options = {}, DType dtype = f64) : model(dtype) {
    made = minimize(model.loss, optimizer, options);
    model.g.fetch("rate", made.learning_rate);
    if (made.gradient_norm.valid()) model.g.fetch("norm", made.gradient_norm);
    parameters = std::make_unique<Parameters>(model.g, Device::cpu());
    parameters->set("p", Tensor::from(dtype, {5}, kP));
    parameters->set("net/q", Tensor::from(dtype, {2, 3}, kQ));
    program = std::make_unique<Program>(model.g, CompileOptions{}, parameters.get());
  }
  Tensors run() { return run(target_of(runs)); }
  Tensors run(const Dense& target) {
    ++runs;
    return program->run({{"target", Tensor::from(model.target.dtype(), {5}, target)}});
  }
  Dense get(const char* name) const { return parameters->get(name).to_doubles(); }
};

// One parameter updated in double; `g` is its gradient in run `t` = 0, 1 ..
class Oracle {
 public:
  Oracle(Dense value, Optimizer optimizer) : value(std::move(value)), optimizer_(std::move(optimizer)) {
    m_.resize(this->value.size());
    v_.resize(this->value.size());
  }
  void update(const Dense& g, double rate) {
    ++t_;
    for (std::size_t i = 0; i < value.size(); ++i) update_one(i, g[i], rate);
  }
  Dense value;

 private:
  void update_one(std::size_t i, double g, double rate) {
    if (const auto* sgd = std::get_if<Sgd>(&optimizer_)) {
      g += sgd->weight_decay * value[i];
      m_[i] = sgd->momentum * m_[i] + g;
      value[i] -= rate * (sgd->momentum == 0 ? g : sgd->nesterov ? g + sgd->momentum * m_[i] : m_[i]);
      return;
    }
    const auto* adam = std::get_if<Adam>(&optimizer_);
    const AdamW n = adam != nullptr
                        ? AdamW{adam->learning_rate, adam->beta1, adam->beta2, adam->epsilon, adam->weight_decay}
                        : std::get<AdamW>(optimizer_);
    if (adam != nullptr) g += n.weight_decay * value[i];
    if (adam == nullptr) value[i] *= 1 - rate * n.weight_decay;
    m_[i] = n.beta1 * m_[i] + (1 - n.beta1) * g;
    v_[i] = n.beta2 * v_[i] + (1 - n.beta2) * g * g;
    const double m = m_[i] / (1 - std::pow(n.beta1, t_)), v = v_[i] / (1 - std::pow(n.beta2, t_));
    value[i] -= rate * m / (std::sqrt(v) + n.epsilon);
  }

  Optimizer optimizer_;
  Dense m_, v_;
  double t_ = 0;
};

Dense minus(const Dense& a, const Dense& b) {
  Dense result = a;
  for (std::size_t i = 0; i < a.size(); ++i) result[i] -= b[i];
  return result;
}
Dense plus(const Dense& a, double b) {
  Dense result = a;
  for (double& value : result) value += b;
  return result;
}

TEST(Optimizer, UpdatesAsItsFormulaSays) {
  const std::vector<Optimizer> optimizers = {
      Sgd{.learning_rate = 0.1},
      Sgd{.learning_rate = 0.1, .weight_decay = 0.01},
      Sgd{.learning_rate = 0.1, .momentum = 0.9},
      Sgd{.learning_rate = 0.1, .momentum = 0.9, .nesterov = true, .weight_decay = 0.01},
      Adam{.learning_rate = 0.1},
      Adam{.learning_rate = 0.1, .beta1 = 0.5, .beta2 = 0.9, .epsilon = 1e-3, .weight_decay = 0.1},
      Adam{.learning_rate = 0.1, .beta1 = 0},
      AdamW{.learning_rate = 0.1, .weight_decay = 0.1},
  };
  for (std::size_t k = 0; k < optimizers.size(); ++k) {
    SCOPED_TRACE(k);
    Trained trained(optimizers[k]);
    Oracle p(kP, optimizers[k]), q(kQ, optimizers[k]);
    for (int run = 0; run < 6; ++run) {
      trained.run();
      p.update(minus(p.value, target_of(run)), 0.1);
      q.update(plus(q.value, 0.5), 0.1);
    }
    expect_close("p", trained.get("p"), p.value, 1e-13);
    expect_close("q", trained.get("net/q"), q.value, 1e-13);
    EXPECT_EQ(trained.get("optimizer/step"), Dense{6});
  }
}

// In f32, where 1 - beta2^t of the first updates has few digits unless it is computed in f64.
TEST(Optimizer, KeepsItsDigitsInSinglePrecision) {
  const Optimizer adam = Adam{.learning_rate = 0.1};
  Trained trained(adam, {}, f32);
  Oracle p(kP, adam);
  for (int run = 0; run < 3; ++run) {
    trained.run();
    p.update(minus(p.value, target_of(run)), 0.1);
  }
  expect_close("p", trained.get("p"), p.value, 5e-7);
}

TEST(Optimizer, UpdatesEveryParameterInOneKernelInPlace) {
  Trained trained(Adam{}, {}, f32);
  const std::string plan = trained.program->plan_text();
  EXPECT_EQ(plan.find("copy"), std::string::npos) << plan;
  // Gradients, the shared scalars and the counter, and a kernel for each parameter.
  EXPECT_LE(trained.program->report().launches, 6) << plan;
}

TEST(Optimizer, GivesGroupsTheirOwnRatesAndLeavesFrozenParameters) {
  Trained trained(Sgd{.learning_rate = 0.1}, {.groups = {{{"net/*"}, Sgd{.learning_rate = 0.01}}}});
  Oracle p(kP, Sgd{}), q(kQ, Sgd{});
  trained.run();
  p.update(minus(p.value, target_of(0)), 0.1);
  q.update(plus(q.value, 0.5), 0.01);
  expect_close("p", trained.get("p"), p.value, 1e-14);
  expect_close("q", trained.get("net/q"), q.value, 1e-14);

  Trained frozen(Sgd{.learning_rate = 0.1}, {.frozen = {"p"}});
  EXPECT_EQ(frozen.made.parameters.size(), 1U);
  frozen.run();
  EXPECT_EQ(frozen.get("p"), kP);
  EXPECT_NE(frozen.get("net/q"), kQ);
}

// The mean gradient of three runs makes one update.
TEST(Optimizer, AccumulatesOverMicroBatches) {
  const Optimizer adam = Adam{.learning_rate = 0.1};
  Trained trained(adam, {.accumulate = 3});
  Oracle p(kP, adam);
  for (int update = 0; update < 2; ++update) {
    const Dense before = trained.get("p");
    Dense mean(5, 0.0);
    for (int k = 0; k < 3; ++k) {
      EXPECT_EQ(trained.get("p"), before);
      const Dense target = target_of(trained.runs);
      trained.run();
      for (std::size_t i = 0; i < 5; ++i) mean[i] += (p.value[i] - target[i]) / 3;
    }
    p.update(mean, 0.1);
    expect_close("p", trained.get("p"), p.value, 1e-13);
  }
  EXPECT_EQ(trained.get("optimizer/step"), Dense{2});
  EXPECT_EQ(trained.get("gradient/p"), Dense(5, 0.0));
}

TEST(Optimizer, ClipsTheNormOverAllGradients) {
  Trained trained(Sgd{.learning_rate = 0.1}, {.clip_norm = 1.5});
  const Dense gp = minus(kP, target_of(0)), gq = plus(kQ, 0.5);
  double square = 0;
  for (const Dense* g : {&gp, &gq}) {
    for (double value : *g) square += value * value;
  }
  const double norm = std::sqrt(square), scale = 1.5 / (norm + 1e-6);
  ASSERT_GT(norm, 1.5);
  EXPECT_NEAR(trained.run().at("norm").to_doubles()[0], norm, 1e-12);
  Dense p = kP, q = kQ;
  for (std::size_t i = 0; i < p.size(); ++i) p[i] -= 0.1 * scale * gp[i];
  for (std::size_t i = 0; i < q.size(); ++i) q[i] -= 0.1 * scale * gq[i];
  expect_close("p", trained.get("p"), p, 1e-14);
  expect_close("q", trained.get("net/q"), q, 1e-14);
  // Below the limit nothing changes.
  Trained loose(Sgd{.learning_rate = 0.1}, {.clip_norm = 100}), plain(Sgd{.learning_rate = 0.1});
  loose.run();
  plain.run();
  EXPECT_EQ(loose.get("p"), plain.get("p"));
}

TEST(Optimizer, SkipsUpdatesWhoseGradientsAreNotFinite) {
  Trained trained(Adam{.learning_rate = 0.1}, {.skip_nonfinite = true}), clean(Adam{.learning_rate = 0.1});
  trained.run();
  clean.run(target_of(0));
  for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
    Dense target = target_of(1);
    target[3] = bad;
    trained.run(target);
  }
  EXPECT_EQ(trained.get("optimizer/step"), Dense{1});
  EXPECT_EQ(trained.get("optimizer/skipped"), Dense{3});
  trained.run(target_of(7));
  clean.run(target_of(7));
  EXPECT_EQ(trained.get("p"), clean.get("p"));
  EXPECT_EQ(trained.get("net/q"), clean.get("net/q"));
  EXPECT_EQ(trained.get("adam/v/net/q"), clean.get("adam/v/net/q"));
}

TEST(Optimizer, StopsAtAnUpdateThatWasSkippedUntilItIsTakenBack) {
  Trained trained(Adam{.learning_rate = 0.1}, {.skip_nonfinite = true, .stop_at_nonfinite = true}),
      clean(Adam{.learning_rate = 0.1});
  trained.run();
  clean.run(target_of(0));
  Dense bad = target_of(1);
  bad[3] = std::nan("");
  trained.run(bad);
  trained.run(target_of(2));
  EXPECT_EQ(trained.get("p"), clean.get("p"));
  EXPECT_EQ(trained.get("optimizer/skipped"), Dense{2});
  trained.parameters->set("optimizer/skipped", Tensor::from(i64, {}, Dense{0}));
  trained.run(target_of(7));
  clean.run(target_of(7));
  EXPECT_EQ(trained.get("p"), clean.get("p"));
}

// loss = x p + c: an infinite c makes the loss infinite and leaves its gradient, x, alone.
TEST(Optimizer, SkipsUpdatesWhoseLossIsNotFiniteThoughItsGradientIs) {
  for (const int accumulate : {1, 2}) {
    SCOPED_TRACE(accumulate);
    for (const DType dtype : {f32, f64, bf16}) {
      Graph g;
      const Value p = g.parameter("p", dtype, {2}), c = g.input("c", dtype, {});
      g.fetch("loss", sum(p * 3.0) + c);
      minimize(g.value(g.fetches()[0].ref), Sgd{.learning_rate = 0.5, .momentum = 0.5},
               {.accumulate = accumulate, .skip_nonfinite = true});
      Parameters parameters(g, Device::cpu());
      Program program(g, {}, &parameters);
      const auto run = [&](double first, double last) {
        for (int i = 0; i < accumulate; ++i)
          program.run({{"c", Tensor::from(dtype, {}, Dense{i == 0 ? first : last})}});
      };
      run(1, 1);
      const Dense after = parameters.get("p").to_doubles(), momentum = parameters.get("sgd/momentum/p").to_doubles();
      EXPECT_EQ(after, (Dense{-1.5, -1.5}));
      for (const double bad : {std::nan(""), HUGE_VAL, -HUGE_VAL}) {
        run(bad, 1);
        if (accumulate == 2) run(1, bad);
      }
      EXPECT_EQ(parameters.get("p").to_doubles(), after);
      EXPECT_EQ(parameters.get("sgd/momentum/p").to_doubles(), momentum);
      EXPECT_EQ(parameters.get("optimizer/step").to_doubles(), Dense{1});
      EXPECT_EQ(parameters.get("optimizer/skipped").to_doubles(), Dense{3.0 * accumulate});
      run(1, 1);
      EXPECT_EQ(parameters.get("p").to_doubles(), (Dense{-3.75, -3.75}));
      EXPECT_EQ(parameters.get("optimizer/step").to_doubles(), Dense{2});
    }
  }
}

// bf16 cannot hold p - 1e-4: without a master value nothing would ever change.
TEST(Optimizer, KeepsMasterWeightsOfHalfParameters) {
  const Dense zero(5, 0.0);
  Trained with(Sgd{.learning_rate = 1e-4}, {.master_weights = true}, bf16);
  Trained without(Sgd{.learning_rate = 1e-4}, {}, bf16);
  for (int run = 0; run < 200; ++run) with.run(zero), without.run(zero);
  EXPECT_EQ(without.get("p"), kP);
  for (std::size_t i = 0; i < 5; ++i) EXPECT_NEAR(with.get("p")[i], kP[i] * std::pow(1 - 1e-4, 200), 0.01);
  EXPECT_NE(with.get("p"), kP);
  EXPECT_EQ(with.parameters->get("master/p").dtype(), f32);
}

TEST(Optimizer, FollowsAScheduleOfItsOwnSteps) {
  const auto rates = [](const LearningRate& rate, int runs) {
    Trained trained(Sgd{.learning_rate = rate});
    Dense seen;
    for (int run = 0; run < runs; ++run) seen.push_back(trained.run().at("rate").to_doubles()[0]);
    return seen;
  };
  const auto expect = [&](const LearningRate& rate, const std::function<double(double)>& formula) {
    Dense expected;
    for (int step = 0; step < 12; ++step) expected.push_back(formula(step));
    expect_close("rate", rates(rate, 12), expected, 1e-15);
  };
  expect(0.25, [](double) { return 0.25; });
  expect(linear_warmup(0.5, 4), [](double t) { return 0.5 * std::min(1.0, (t + 1) / 4); });
  expect(inverse_square_root(2, 4), [](double t) { return 2 * std::min((t + 1) / 4, std::sqrt(4 / (t + 1))); });
  expect([](const Value& step) { return 1.0 / (step + 2.0); }, [](double t) { return 1 / (t + 2); });
}

TEST(Optimizer, SaysWhatIsWrong) {
  const auto message = [](const Optimizer& optimizer, const MinimizeOptions& options) {
    Model model;
    return message_of([&] { minimize(model.loss, optimizer, options); });
  };
  EXPECT_NE(message(Sgd{}, {.frozen = {"r"}}).find("'r' fits no parameter"), std::string::npos);
  EXPECT_NE(message(Sgd{}, {.frozen = {"p", "net/*"}}).find("no parameter that is not frozen"), std::string::npos);
  EXPECT_NE(message(Sgd{}, {.accumulate = 0}).find("accumulate = 0"), std::string::npos);
  EXPECT_NE(message(Sgd{}, {.clip_norm = -1}).find("clip_norm = -1"), std::string::npos);
  EXPECT_NE(message(Adam{.beta2 = 1}, {}).find("beta2 = 1"), std::string::npos);
  Model twice;
  minimize(twice.loss, Sgd{});
  EXPECT_THROW(minimize(twice.loss, Sgd{}), Error);
}

TEST(Optimizer, TwoOfOneGraphTrainParametersOfTheirOwn) {
  Model model;
  MinimizeOptions of_p, of_q;
  of_p.name = "first", of_p.frozen = {"net/*"};
  of_q.name = "second", of_q.frozen = {"p"}, of_q.accumulate = 2;
  minimize(model.loss, Sgd{.learning_rate = 0.1}, of_p);
  EXPECT_THROW(minimize(model.loss, Sgd{}, of_p), Error);
  minimize(model.loss, Sgd{.learning_rate = 0.2}, of_q);
  Parameters parameters(model.g);
  parameters.set("p", Tensor::from(f64, {5}, kP));
  parameters.set("net/q", Tensor::from(f64, {2, 3}, kQ));
  Program program(model.g, {}, &parameters);
  Oracle p(kP, Sgd{}), q(kQ, Sgd{});
  for (int run = 0; run < 4; ++run) {
    program.run({{"target", Tensor::from(f64, {5}, target_of(run))}});
    Dense of_target = p.value, of_half = q.value;
    for (std::size_t i = 0; i < of_target.size(); ++i) of_target[i] -= target_of(run)[i];
    for (double& each : of_half) each += 0.5;
    p.update(of_target, 0.1);
    if (run % 2 == 1) q.update(of_half, 0.2);
  }
  EXPECT_EQ(parameters.get("first/step").to_doubles()[0], 4);
  EXPECT_EQ(parameters.get("second/step").to_doubles()[0], 2);
  for (std::size_t i = 0; i < kP.size(); ++i) EXPECT_NEAR(parameters.get("p").to_doubles()[i], p.value[i], 1e-12);
  for (std::size_t i = 0; i < kQ.size(); ++i) EXPECT_NEAR(parameters.get("net/q").to_doubles()[i], q.value[i], 1e-12);
}

}  // namespace
}  // namespace paoding::testing_program
