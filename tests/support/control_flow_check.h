// SPDX-License-Identifier: Apache-2.0
// Checks for tests of branches and loops: results against the float64 evaluator on every device, with passes on and
// off, and gradients against finite differences.
#pragma once

#include "graph/verify.h"
#include "paoding/paoding.h"
#include "tests/support/devices_here.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {

// Runs with these feeds, with all passes, without, and step by step; compares with the evaluator.
inline void check_runs(const Graph& g, const std::vector<Feeds>& feeds, const Device& device, bool fused) {
  SCOPED_TRACE(to_string(device) + (fused ? "" : ", without passes"));
  CompileOptions options;
  options.device = device;
  if (!fused) options.disabled_passes = pass_names();
  Program program(g, options);
  options.execution = Execution::stepwise;
  options.on_step = [](const StepSeen&) {};
  Program stepwise(g, options);
  for (const Feeds& fed : feeds) {
    const auto expected = evaluate_graph(g, fed);
    const Tensors got = program.run(to_tensors(g, fed));
    for (const auto& [name, values] : expected) expect_close(name, got.at(name).to_doubles(), values, 1e-5);
    expect_same_bits(got, program.run(to_tensors(g, fed)));
    expect_same_bits(got, stepwise.run(to_tensors(g, fed)));
    if (testing::Test::HasFailure()) {
      ADD_FAILURE() << program.plan_text();
      return;
    }
  }
}

inline void check_runs(const Graph& g, const std::vector<Feeds>& feeds) {
  for (const Device& device : devices_here()) {
    for (const bool fused : {true, false}) check_runs(g, feeds, device, fused);
  }
  EXPECT_EQ(to_text(*parse_graph(to_text(g))), to_text(g));
}

// Gradients that the graph fetches as "d_<input>" of its fetch "loss", by central differences.
inline void check_gradients(const Graph& g, const Feeds& feeds) {
  const auto exact = evaluate_graph(g, feeds);
  for (const auto& [name, gradient] : exact) {
    if (!name.starts_with("d_")) continue;
    const std::string input = name.substr(2);
    for (std::size_t i = 0; i < gradient.size(); ++i) {
      Feeds up = feeds, down = feeds;
      up[input][i] += 1e-5;
      down[input][i] -= 1e-5;
      const double slope = (evaluate_graph(g, up).at("loss")[0] - evaluate_graph(g, down).at("loss")[0]) / 2e-5;
      EXPECT_NEAR(gradient[i], slope, 1e-5 * std::max(1.0, std::fabs(slope))) << name << " element " << i;
    }
  }
}

inline void fetch_gradients(Graph& g, const Value& loss, const Values& inputs) {
  g.fetch("loss", loss);
  const Values made = gradients(std::array{loss}, inputs);
  for (std::size_t i = 0; i < inputs.size(); ++i) {
    g.fetch("d_" + g.node(inputs[i].ref().node).name.str(), made[i]);
  }
  verify(g, "gradients");
}

inline std::vector<Feeds> feeds_with(const Graph& g, const std::string& name, const std::vector<double>& values) {
  std::vector<Feeds> list;
  for (double value : values) {
    list.push_back(make_feeds(g, static_cast<unsigned>(list.size() + 1)));
    list.back()[name] = {value};
  }
  return list;
}

}  // namespace paoding::testing_program
