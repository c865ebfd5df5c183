// SPDX-License-Identifier: Apache-2.0
// Runs, feeds and fetches that are enqueued on a GPU and not waited for: programs that share parameters, inputs of the
// next run while one is under way, results that are read later, runs that fail among others. Programs on the CPU give
// the right values. On the pretended GPU under many schedules.
#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

// Both sizes: copied in the run's own stream, and beside it.
TEST(EnqueuedRuns, FeedsAndFetchesOfManyRunsUnderWayAreEachRunsOwn) {
  PD_SKIP_WITHOUT_A_GPU();
  for (const std::int64_t n : {std::int64_t{8}, std::int64_t{70'000}}) {
    Graph g;
    build_training(g, n);
    Parameters parameters(g, gpu_here()), expected(g, Device::cpu());
    Program program(g, on_gpu(), &parameters), on_cpu(g, {}, &expected);
    for (unsigned seed = 0; seed < 8; ++seed) {
      schedule(seed, seed % 4);
      std::vector<Fetched> sums, values;
      std::vector<Tensors> wanted;
      for (int step = 0; step < 5; ++step) {
        const Tensor x = input(n, step);
        program.set_input(0, x);
        forget_calls();
        program.run();
        EXPECT_EQ(waits(), 0u);
        sums.push_back(program.fetch_later(0));
        values.push_back(program.fetch_later(1));
        wanted.push_back(on_cpu.run({{"x", x}}));
      }
      for (std::size_t step = 5; step-- > 0;) {
        EXPECT_EQ(values[step].value().to_doubles(), wanted[step].at("w").to_doubles()) << "seed " << seed;
        const double sum = wanted[step].at("sum").to_doubles()[0];
        EXPECT_NEAR(sums[step].value().to_doubles()[0], sum, 1e-5 * sum) << "seed " << seed;
        EXPECT_TRUE(values[step].is_there());
      }
      EXPECT_EQ(parameters.get("w").to_doubles(), expected.get("w").to_doubles());
    }
  }
}

TEST(EnqueuedRuns, ProgramsOfOneStoreComeOneAfterTheOtherWithoutTheHost) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g, evaluated;
  build_training(g, 64);
  build_evaluation(evaluated, 64);
  Parameters parameters(g, gpu_here()), expected(g, Device::cpu());
  Program first(g, on_gpu(), &parameters), second(g, on_gpu(), &parameters), on_cpu(g, {}, &expected);
  Program look(evaluated, on_gpu(), &parameters), look_on_cpu(evaluated, {}, &expected);
  for (unsigned seed = 0; seed < 20; ++seed) {
    schedule(seed, seed % 3);
    std::mt19937 random(seed);
    std::vector<Fetched> got;
    std::vector<Tensor> want;
    forget_calls();
    for (int step = 0; step < 12; ++step) {
      const auto which = random() % 3;
      if (which == 2) {
        look.run(), look_on_cpu.run();
        got.push_back(look.fetch_later(0)), want.push_back(look_on_cpu.fetch(0));
        continue;
      }
      Program& program = which == 0 ? first : second;
      program.set_input(0, input(64, step));
      on_cpu.set_input(0, input(64, step));
      program.run(), on_cpu.run();
      got.push_back(program.fetch_later(0)), want.push_back(on_cpu.fetch(0));
    }
    EXPECT_EQ(waits(), 0u);
    for (std::size_t i = 0; i < got.size(); ++i) EXPECT_EQ(got[i].value().to_doubles(), want[i].to_doubles());
    EXPECT_EQ(parameters.get("w").to_doubles(), expected.get("w").to_doubles());
    const Tensor set = input(64, 99);
    parameters.set("w", set), expected.set("w", set);
  }
}

TEST(EnqueuedRuns, WhatIsFetchedLaterOutlivesItsProgram) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_training(g, 8);
  Parameters parameters(g, gpu_here());
  std::optional<Fetched> kept;
  {
    Program program(g, on_gpu(), &parameters);
    program.set_input(0, input(8, 1));
    program.run();
    program.run();
    kept = program.fetch_later(1);
  }
  Dense want = input(8, 1).to_doubles();
  EXPECT_EQ(kept->value().to_doubles(), want);
}

TEST(EnqueuedRuns, FetchedLaterFailsWithItsRunAndWithThoseAfterIt) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value w = g.parameter("w", f32, {3}), x = g.input("x", f32, {3});
  assign(w, w + x);
  g.fetch("x", gather(x, g.input("id", i32, {})));
  Parameters parameters(g, gpu_here());
  Program program(g, on_gpu(), &parameters);
  const int x_at = program.input_index("x"), id_at = program.input_index("id");
  program.set_input(x_at, Tensor::from(f32, {3}, Dense{1, 2, 3}));
  for (unsigned seed = 0; seed < 10; ++seed) {
    schedule(seed, 2);
    std::vector<Fetched> got;
    for (const double id : {0.0, 2.0, 7.0, 1.0}) {
      program.set_input(id_at, Tensor::from(i32, {}, Dense{id}));
      program.run();
      got.push_back(program.fetch_later(0));
    }
    const auto error = [&](int i) { return message_of([&] { got[static_cast<std::size_t>(i)].value(); }); };
    if (seed % 2 == 0) {
      EXPECT_TRUE(has(error(3), "indices[] = 7")) << error(3);
    }
    EXPECT_EQ(got[0].value().to_doubles(), Dense{1});
    EXPECT_TRUE(has(error(2), "indices[] = 7")) << error(2);
    EXPECT_EQ(got[1].value().to_doubles(), Dense{3});
    EXPECT_TRUE(has(error(3), "indices[] = 7")) << error(3);
    EXPECT_TRUE(has(error(3), "indices[] = 7")) << "told every time";
    const double runs = 2.0 * (seed + 1);
    EXPECT_EQ(parameters.get("w").to_doubles(), (Dense{runs, 2 * runs, 3 * runs}));
  }
}

}  // namespace
}  // namespace paoding::testing_program
