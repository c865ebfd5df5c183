// SPDX-License-Identifier: Apache-2.0
// Graphs on the caller's memory whose weights are in a store: compared with programs of the same store.
#include <gtest/gtest.h>

#include "paoding/placed.h"
#include "tests/support/placed_run.h"

namespace paoding::testing_program {
namespace {

// Weights that are folded and packed before they are read.
void build(Graph& g) {
  const Value x = g.input("x", f32, {5, 3, 6}), h0 = g.input("h0", f32, {3, 8});
  const Value w = g.parameter("w", f32, {6, 24}), u = g.parameter("u", f32, {8, 24}), b = g.parameter("b", f32, {24}),
              scale = g.parameter("scale", f32, {24});
  const StepResult made = scan({h0}, {x}, [&](const Values& carry, const Values& element) {
    const Value next = tanh(sum(reshape(matmul(element[0], w * scale) + matmul(carry[0], u) + b, {3, 3, 8}), Ints{1}));
    return step({next}, {next});
  });
  g.fetch("y", made.outputs[0]);
}

void set_all(Parameters& parameters, const Graph& g, unsigned seed) {
  const Feeds feeds = make_feeds(g, seed);
  for (const ParameterInfo& each : parameters.list()) {
    parameters.set(each.name, Tensor::from(f32, each.type.shape, feeds.at(each.name)));
  }
}

TEST(PlacedParameters, AreReadInTheirStoreAndPreparedAgainWhenTheyWereWritten) {
  Graph g;
  build(g);
  Parameters parameters(g, Device::cpu());
  Program program(g, {}, &parameters);
  PlacedGraph placed(g, Device::cpu(), {}, &parameters);
  ASSERT_EQ(placed.inputs().size(), 2u) << "parameters are no inputs";
  PlacedRun run(placed);
  const Tensors feeds = to_tensors(g, make_feeds(g, 3));
  Tensors before;
  for (const unsigned seed : {1, 2, 3}) {
    set_all(parameters, g, seed);
    const Tensors wanted = program.run(feeds), got = run.run(feeds);
    expect_same_bits(wanted, got);
    expect_same_bits(wanted, run.run(feeds));
    EXPECT_TRUE(before.empty() || before.at("y").to_doubles() != got.at("y").to_doubles());
    before = got;
  }
}

// A program that trains writes the parameters of the same store.
TEST(PlacedParameters, AreThoseThatAProgramHasJustWritten) {
  Graph evaluates, trains;
  evaluates.fetch("y", evaluates.input("x", f32, {4}) * (evaluates.parameter("w", f32, {4}) * 2.0));
  const Value w = trains.parameter("w", f32, {4});
  assign(w, w + 1.0);
  Parameters parameters(evaluates, Device::cpu());
  PlacedGraph placed(evaluates, Device::cpu(), {}, &parameters);
  PlacedRun run(placed);
  Program training(trains, {}, &parameters);
  const Tensors feeds{{"x", Tensor::from(f32, {4}, Dense{1, 2, 3, 4})}};
  for (const double turn : {1, 2, 3}) {
    training.run();
    EXPECT_EQ(run.run(feeds).at("y").to_doubles(), (Dense{2 * turn, 4 * turn, 6 * turn, 8 * turn}));
  }
}

TEST(PlacedParameters, OutliveTheirHandle) {
  Graph g;
  g.fetch("y", g.input("x", f32, {2}) * g.parameter("w", f32, {2}));
  std::optional<Parameters> parameters(std::in_place, g, Device::cpu());
  parameters->set("w", Tensor::from(f32, {2}, Dense{3, 4}));
  PlacedGraph placed(g, Device::cpu(), {}, &*parameters);
  parameters.reset();
  PlacedRun run(placed);
  EXPECT_EQ(run.run({{"x", Tensor::from(f32, {2}, Dense{1, 2})}}).at("y").to_doubles(), (Dense{3, 8}));
}

TEST(PlacedParameters, AreRefusedWhereTheyAreMissingOrWritten) {
  Graph g;
  const Value w = g.parameter("w", f32, {2});
  g.fetch("y", g.input("x", f32, {2}) * w);
  const auto says = [](auto&& work, std::string_view part) {
    const std::string message = message_of(work);
    EXPECT_TRUE(has(message, part)) << message;
  };
  says([&] { PlacedGraph(g, Device::cpu()); }, "it has the parameter 'w', but no Parameters were given");
  Graph other;
  other.fetch("y", other.parameter("v", f32, {2}));
  const Parameters of_other(other, Device::cpu());
  says([&] { PlacedGraph(g, Device::cpu(), {}, &of_other); }, "there is none named 'w'");
  const Parameters parameters(g, Device::cpu());
  assign(w, w * 2.0);
  says([&] { PlacedGraph(g, Device::cpu(), {}, &parameters); }, "it writes the parameter 'w'");
}

}  // namespace
}  // namespace paoding::testing_program
