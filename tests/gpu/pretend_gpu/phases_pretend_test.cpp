// SPDX-License-Identifier: Apache-2.0
// Kernels that do all steps of a recurrence, and say in a report where in a step their time goes.
#include <cstdlib>
#include <map>

#include "paoding/profile.h"
#include "profile/report.h"
#include "profile/trace.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

// In f32 that is rounded, with its gradient.
void build_phases(Graph& g) {
  const Value xw = g.input("xw", f32, {5, 2, 64}), u = g.input("u", f32, {16, 64});
  const Value h0 = g.input("h0", f32, {2, 16}), c0 = g.input("c0", f32, {2, 16});
  const Value states = call("lstm_recurrence", {xw, u, h0, c0});
  g.fetch("states", states);
  g.fetch("du", gradients(sum(states), {u})[0]);
}

class PhasesOnAGpu : public ::testing::Test {
 protected:
  void TearDown() override { ::unsetenv("PAODING_PHASES"); }

  // The sums of the rows inside of an op's, by name.
  std::map<std::string, double> record(const std::map<std::string, std::vector<double>> wanted, int runs) {
    CompileOptions options = on_gpu();
    options.allow_tf32 = true;
    Program program(graph_, options);
    const auto feeds = to_tensors(graph_, make_feeds(graph_, 5));
    for (const auto& [name, values] : program.run(feeds)) {
      results_[name] = values.to_doubles();
      if (wanted.contains(name)) {
        EXPECT_EQ(results_[name], wanted.at(name)) << name;
      }
    }
    Profiler seen;
    for (int i = 0; i < runs; ++i) program.run();
    program.wait();
    report_ = seen.stop();
    std::map<std::string, double> rows;
    const profile::Measures m = profile::measure(seen.trace());
    for (const profile::Row& row : m.per_thread.at(0).rows) rows[row.name] = row.gpu;
    return rows;
  }

  Graph graph_;
  std::map<std::string, std::vector<double>> results_;
  std::string report_;
};

TEST_F(PhasesOnAGpu, AreToldWhereTheyAreAskedFor) {
  build_phases(graph_);
  const auto without = record({}, 3);
  EXPECT_FALSE(without.contains("lstm_recurrence/waiting")) << report_;
  ::setenv("PAODING_PHASES", "1", 1);
  const auto with = record(results_, 3);
  for (const std::string op : {"lstm_recurrence", "lstm_recurrence_grad/lstm_recurrence_grad"}) {
    ASSERT_TRUE(with.contains(op)) << report_;
    double sum = 0;
    for (const char* phase :
         {"weights", "launch before", "start", "waiting", "product", "gates", "exchange", "loads and stores", "end"}) {
      const auto found = with.find(op + "/" + phase);
      if (found != with.end()) sum += found->second;
    }
    EXPECT_GT(sum, 0) << report_;
    EXPECT_NEAR(sum, with.at(op), 1e-6 * with.at(op)) << report_;
    EXPECT_TRUE(with.contains(op + "/product")) << report_;
  }
}

}  // namespace
}  // namespace paoding::testing_program
