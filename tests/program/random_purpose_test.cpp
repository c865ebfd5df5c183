// SPDX-License-Identifier: Apache-2.0
// Random states of a store: a program that draws adds the missing ones, purposes do not touch each other's random
// numbers, and the roles of parameters are known without their names.
#include <array>
#include <thread>

#include "paoding/checkpoint.h"
#include "paoding/nn.h"
#include "paoding/ops/sampling.h"
#include "paoding/optimizer.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kCount = 1000;

// w x, with dropout where asked for.
std::unique_ptr<Graph> model(bool drops) {
  auto g = std::make_unique<Graph>();
  const Value w = g->parameter("w", f32, {kCount}, nn::constant(1));
  g->fetch("y", drops ? dropout(w, 0.5) : w * 2.0);
  return g;
}

TEST(RandomPurpose, AProgramThatDrawsAddsTheStateThatItsStoreLacks) {
  const auto plain = model(false), drops = model(true);
  const auto runs_of = [&](const Graph& made_of, std::uint64_t seed) {
    Parameters parameters(made_of, Device::cpu(), {.seed = seed});
    Program program(*drops, {}, &parameters);
    std::vector<Dense> runs;
    for (int i = 0; i < 3; ++i) runs.push_back(program.run({}).at("y").to_doubles());
    EXPECT_EQ(parameters.get("random/state").to_doubles()[1], 3);
    return runs;
  };
  EXPECT_EQ(runs_of(*plain, 5), runs_of(*drops, 5));
  EXPECT_NE(runs_of(*plain, 5), runs_of(*plain, 6));
}

TEST(RandomPurpose, ProgramsThatAreMadeAtTheSameTimeShareOneState) {
  Parameters parameters(*model(false), Device::cpu());
  std::vector<std::thread> threads;
  for (int i = 0; i < 4; ++i) {
    threads.emplace_back([&] {
      const auto drops = model(true);
      Program program(*drops, {}, &parameters);
      for (int k = 0; k < 5; ++k) program.run({});
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(parameters.get("random/state").to_doubles()[1], 20);
  EXPECT_EQ(parameters.names().size(), 2u);
}

// Trains w with dropout for a few steps and returns it.
Dense trained(bool samples) {
  Graph g;
  const Value w = g.parameter("w", f32, {kCount}, nn::constant(1));
  const Value loss = sum(dropout(w, 0.5) * dropout(w, 0.25));
  minimize(loss, Sgd{.learning_rate = 0.01});
  Graph sampling;
  const Value logits = sampling.parameter("w", f32, {kCount}, nn::constant(1));
  sampling.fetch("drawn", categorical(logits));
  Parameters parameters(g, Device::cpu(), {.seed = 3});
  Program step(g, {}, &parameters);
  for (int i = 0; i < 4; ++i) {
    if (samples) Program(sampling, {}, &parameters).run({});
    step.run({});
  }
  EXPECT_EQ(samples ? parameters.get("random/sampling").to_doubles()[1] : 4, 4);
  return parameters.get("w").to_doubles();
}

TEST(RandomPurpose, SamplingLeavesATrainingsRandomNumbersAsTheyAre) { EXPECT_EQ(trained(true), trained(false)); }

TEST(RandomPurpose, AnOpOfAnotherPurposeLeavesThoseOfAGraphAsTheyAre) {
  const auto mask = [](bool samples) {
    Graph g;
    const Value ones = full(g, {kCount}, 1);
    if (samples) {
      g.fetch("drawn", categorical(ones));
      const RandomPurpose purpose(g, "noise");
      g.fetch("noise", random_uniform(g, {kCount}));
    }
    g.fetch("mask", dropout(ones, 0.5));
    Parameters parameters(g, Device::cpu(), {.seed = 8});
    return Program(g, {}, &parameters).run({}).at("mask").to_doubles();
  };
  EXPECT_EQ(mask(true), mask(false));
}

TEST(RandomPurpose, PurposesHaveRandomNumbersOfTheirOwnInBodiesToo) {
  Graph g;
  const Value start = zeros(g, {kCount});
  const auto drawn = [&](const char* purpose) {
    const RandomPurpose draws(g, purpose);
    return scan({start}, 2,
                [](const Values& carries) {
                  const Value u = random_uniform(carries[0].graph(), {kCount});
                  return step({carries[0] + u}, {u});
                })
        .outputs[0];
  };
  g.fetch("one", drawn("one"));
  g.fetch("other", drawn("other"));
  g.fetch("state", drawn("state"));
  Parameters parameters(g, Device::cpu(), {.seed = 1});
  const Tensors got = Program(g, {}, &parameters).run({});
  const Dense one = got.at("one").to_doubles(), other = got.at("other").to_doubles(),
              state = got.at("state").to_doubles();
  double product = 0;
  for (std::size_t i = 0; i < one.size(); ++i) product += (one[i] - 0.5) * (other[i] - 0.5) * 12;
  EXPECT_LT(std::fabs(product / static_cast<double>(one.size())), 0.1);
  EXPECT_NE(one, state);
  EXPECT_EQ(parameters.names(), (std::vector<std::string>{"random/one", "random/other", "random/state"}));
  EXPECT_TRUE(has(message_of([&] { RandomPurpose(g, ""); }), "RandomPurpose: the purpose is empty"));
}

TEST(RandomPurpose, RestoringAddsTheStatesThatAProgramHadAdded) {
  const auto plain = model(false), drops = model(true);
  Parameters before(*plain, Device::cpu(), {.seed = 5});
  Program program(*drops, {}, &before);
  program.run({});
  const std::map<std::string, Tensor> kept = values_of(before);
  const Dense expected = program.run({}).at("y").to_doubles();

  Parameters after(*plain, Device::cpu(), {.seed = 6});
  restore(&after, kept);
  EXPECT_EQ(Program(*drops, {}, &after).run({}).at("y").to_doubles(), expected);
  Parameters predicting(*plain, Device::cpu());
  restore(&predicting, kept, true);
  EXPECT_EQ(predicting.names(), (std::vector<std::string>{"w"}));
}

TEST(ParameterRole, IsKnownWhateverANameIs) {
  Graph g;
  const nn::Linear linear(g, "adam/m", 3, 2);  // not an optimizer's
  const nn::BatchNorm norm(g, "optimizer", 2);
  const Value x = g.input("x", f32, {4, 3});
  const Value loss = mean(dropout(norm(linear(x)), 0.5));
  minimize(loss, Adam{}, {.accumulate = 2, .loss_scale = LossScale{}, .average_decay = 0.9});
  Parameters parameters(g, Device::cpu());
  std::map<ParameterRole, std::int64_t> elements;
  for (const ParameterInfo& each : parameters.list()) {
    elements[each.role] += each.elements();
    EXPECT_EQ(each.role == ParameterRole::model,
              each.name.starts_with("adam/m/weight") || each.name == "adam/m/bias" ||
                  (each.name.starts_with("optimizer/") && each.type.shape.rank() == 1))
        << each.name;
  }
  EXPECT_EQ(elements[ParameterRole::random], 2);
  EXPECT_EQ(parameters.elements(ParameterRole::model), 3 * 2 + 2 + 4 * 2);
  // Each of 12 trained parameters has two means, a sum of gradients and an average. Then counters and the loss scale.
  EXPECT_EQ(parameters.elements(ParameterRole::optimizer), 12 * 4 + 6);
  EXPECT_EQ(parameters.elements(), 16 + 54 + 2);
  EXPECT_EQ(parameters.size_bytes(ParameterRole::model), 16 * 4);
  const auto model = values_of(parameters, ParameterRole::model);
  EXPECT_EQ(model.size(), 6u);
  EXPECT_TRUE(model.contains("optimizer/running_mean"));
  // A copy of the graph knows too.
  EXPECT_EQ(g.clone()->role("optimizer/step"), ParameterRole::optimizer);
}

}  // namespace
}  // namespace paoding::testing_program
