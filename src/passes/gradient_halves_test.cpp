// SPDX-License-Identifier: Apache-2.0
#include "paoding/gradient_halves.h"

#include <gtest/gtest.h>

#include "paoding/autodiff.h"
#include "paoding/error.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"
#include "tests/support/random_graph.h"
#include "tests/support/unrolled.h"

namespace paoding {
namespace {

using Feeds = std::map<std::string, std::vector<double>>;

// Values of the gradients as the graph of both directions gives them, by their names in the backward half.
Feeds in_one_graph(const Graph& g, const std::vector<std::string>& results, const std::vector<std::string>& inputs,
                   Feeds feeds) {
  const auto whole = g.clone();
  Values outputs, wanted, seeds;
  for (const std::string& name : results) {
    const auto found = std::ranges::find(whole->fetches(), name, &Graph::Fetch::name);
    outputs.push_back(whole->value(found->ref));
    seeds.push_back(whole->input("seed/" + name, outputs.back().dtype(), outputs.back().shape()));
  }
  for (const std::string& name : inputs) wanted.push_back(whole->find(name));
  const Values made = gradients(outputs, wanted, seeds);
  for (std::size_t i = 0; i < made.size(); ++i) whole->fetch("gradient/" + inputs[i], made[i]);
  return evaluate_graph(*whole, feeds);
}

Feeds chosen(const Graph& graph, const Feeds& all) {
  Feeds feeds;
  for (const NodeId id : graph.inputs()) feeds[graph.node(id).name.str()] = all.at(graph.node(id).name.str());
  return feeds;
}

// Runs the halves one after the other on random feeds.
GradientHalves expect_halves(const Graph& g, const std::vector<std::string>& results,
                             const std::vector<std::string>& inputs) {
  GradientHalves halves = gradient_halves(g, results, inputs);
  Feeds all = random_feeds(g, 11);
  unsigned seed = 12;
  for (const std::string& name : results) {
    const auto found = std::ranges::find(g.fetches(), name, &Graph::Fetch::name);
    Graph of_seed;
    of_seed.input("seed/" + name, g.type(found->ref).dtype, g.type(found->ref).shape);
    all.merge(random_feeds(of_seed, seed++));
  }
  const Feeds wanted = in_one_graph(g, results, inputs, all);
  Feeds made = evaluate_graph(*halves.forward, chosen(*halves.forward, all));
  for (const auto& [name, values] : made) all[name] = values;
  made.merge(evaluate_graph(*halves.backward, chosen(*halves.backward, all)));
  for (const auto& [name, values] : wanted) {
    for (std::size_t i = 0; i < values.size(); ++i) {
      EXPECT_NEAR(made.at(name).at(i), values[i], 1e-9 * (1 + std::fabs(values[i]))) << name << " element " << i;
    }
  }
  return halves;
}

std::int64_t saved_elements(const Graph& forward) {
  std::int64_t elements = 0;
  for (const Graph::Fetch& fetch : forward.fetches()) {
    if (fetch.name.starts_with("saved/")) elements += forward.type(fetch.ref).shape.elements();
  }
  return elements;
}

TEST(GradientHalves, OfAnUnrolledCellAreTwoLoops) {
  Graph g;
  const Value x = g.input("x", f32, {9, 2, 3}), w = g.input("w", f32, {3, 4}), u = g.input("u", f32, {4, 4});
  Value h = g.input("h0", f32, {2, 4});
  Values all;
  for (std::int64_t t = 0; t < 9; ++t) {
    const Value of_x = matmul(reshape(slice(x, 0, t, t + 1), {2, 3}), w);
    h = sin(of_x + matmul(h, u)) * sigmoid(of_x);  // no recurrence that there is a kernel for
    all.push_back(h);
  }
  g.fetch("y", stack(all));
  const GradientHalves halves = expect_halves(g, {"y"}, {"w", "u", "h0", "x"});
  EXPECT_EQ(count_here(*halves.forward, "scan"), 1);
  EXPECT_EQ(count_here(*halves.backward, "scan"), 1);
  EXPECT_EQ(halves.notes.size(), 1U);
}

TEST(GradientHalves, KeepNeitherViewsNorInputs) {
  Graph g;
  const Value x = g.input("x", f32, {64, 8}), w = g.input("w", f32, {8, 8});
  // The product's gradient reads x and w, which are given; that of exp reads its result, once for both of its views.
  const Value y = exp(matmul(x, w));
  g.fetch("y", matmul(transpose(y, std::vector<std::int64_t>{1, 0}), reshape(y, {64, 8})));
  const GradientHalves halves = expect_halves(g, {"y"}, {"x", "w"});
  EXPECT_EQ(saved_elements(*halves.forward), 64 * 8);
}

TEST(GradientHalves, AreThoseOfTheWholeForRandomGraphs) {
  int compared = 0;
  for (unsigned seed = 0; seed < 120; ++seed) {
    SCOPED_TRACE(seed);
    std::string statements;
    Graph g;
    const testing_program::RandomGraph random(g, seed, &statements, f64);
    const auto flat = unrolled(g);
    std::vector<std::string> results, inputs;
    for (const Graph::Fetch& fetch : flat->fetches()) {
      if (is_float(flat->type(fetch.ref).dtype)) results.push_back(fetch.name);
    }
    for (const NodeId id : flat->inputs()) {
      if (is_float(flat->node(id).types[0].dtype)) inputs.push_back(flat->node(id).name.str());
    }
    if (results.empty() || inputs.empty() || !flat->effects().empty()) continue;
    expect_halves(*flat, results, inputs);
    ++compared;
  }
  EXPECT_GT(compared, 60);
}

TEST(GradientHalves, RefuseParametersAndNamesThatAreNotThere) {
  Graph g;
  const Value x = g.input("x", f32, {2});
  g.fetch("y", sin(x));
  const std::vector<std::string> y{"y"}, unknown{"z"}, inputs{"x"};
  EXPECT_THROW(gradient_halves(g, unknown, inputs), Error);
  EXPECT_THROW(gradient_halves(g, y, unknown), Error);
  g.fetch("z", x * g.parameter("p", f32, {2}));
  EXPECT_THROW(gradient_halves(g, y, inputs), Error);
}

}  // namespace
}  // namespace paoding
