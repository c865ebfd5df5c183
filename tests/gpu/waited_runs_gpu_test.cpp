// SPDX-License-Identifier: Apache-2.0
// Runs on a GPU each of which is waited for before the next is started: from the fifth on they set their completion
// flag themselves, with their small results, and do their last copies with that. Programs on the CPU give the right
// values.
#include <fmt/format.h>

#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

// Two states that are copied at the end, since their next values are fetched too; and one that is written in place.
void build_step(Graph& g, std::int64_t n) {
  const Value x = g.input("x", f32, {n});
  for (const std::string name : {"a", "b"}) {
    const Value state = g.parameter(name, f32, {n}), next = sort(state * 0.5 + x).values;
    assign(state, next);
    g.fetch("next " + name, next);
  }
  const Value count = g.parameter("count", f32, {1});
  assign(count, count + 1.0);
  g.fetch("sum", sum(x));
}

struct OnBoth {
  OnBoth(const std::function<void(Graph&)>& build, const CompileOptions& options = on_gpu()) {
    build(graph);
    parameters.emplace(graph, gpu_here()), expected.emplace(graph, Device::cpu());
    program.emplace(graph, options, &*parameters), on_cpu.emplace(graph, CompileOptions{}, &*expected);
  }
  // Compares fetches and written parameters of both.
  void expect_same(const std::string& where) {
    for (std::size_t i = 0; i < on_cpu->fetch_names().size(); ++i) {
      const Dense got = program->fetch(static_cast<int>(i)).to_doubles();
      const Dense want = on_cpu->fetch(static_cast<int>(i)).to_doubles();
      ASSERT_EQ(got.size(), want.size());
      for (std::size_t k = 0; k < want.size(); ++k) {
        ASSERT_NEAR(got[k], want[k], 1e-5 * std::abs(want[k])) << where << ": " << on_cpu->fetch_names()[i];
      }
    }
    for (const std::string& name : parameters->names()) {
      ASSERT_EQ(parameters->get(name).to_doubles(), expected->get(name).to_doubles()) << where << ": " << name;
    }
  }
  Graph graph;
  std::optional<Parameters> parameters, expected;
  std::optional<Program> program, on_cpu;
};

TEST(WaitedRuns, GiveWhatACpuGivesWhetherSomebodyWaitsOrNot) {
  PD_SKIP_WITHOUT_A_GPU();
  for (const std::int64_t n : {8, 7, 3000, 30'000}) {  // pieces of 16 bytes and not; small and large
    OnBoth both([&](Graph& g) { build_step(g, n); });
    for (unsigned seed = 0; seed < 3; ++seed) {
      std::mt19937 random(seed);
      schedule(seed, seed == 0 ? 0 : 50);
      for (int step = 0; step < 60; ++step) {
        const Tensor x = input(n, step);
        both.program->set_input(0, x);
        both.program->run(), both.on_cpu->run({{"x", x}});
        both.program->set_input(0, input(n, step + 1));  // while it may be under way
        if (step % 20 < 10 || random() % 2 == 0) {
          if (random() % 2 == 0) both.program->wait();
          both.expect_same(fmt::format("n {} seed {} step {}", n, seed, step));
        }
      }
    }
  }
}

// A program that shares its memory runs in the same stream: each tells its own end.
TEST(WaitedRuns, OfProgramsThatShareAStreamEachTellsItsOwnEnd) {
  PD_SKIP_WITHOUT_A_GPU();
  OnBoth both([](Graph& g) { build_step(g, 16); });
  Graph other;
  build_step(other, 16);
  Program bound = both.program->bind(other), like(other, {}, &*both.expected);
  for (int step = 0; step < 30; ++step) {
    schedule(static_cast<unsigned>(step), 20);
    const Tensor x = input(16, step);
    both.program->run({{"x", x}}), both.on_cpu->run({{"x", x}});
    both.expect_same(fmt::format("step {}", step));
    const Tensors got = bound.run({{"x", x}}), want = like.run({{"x", x}});
    for (const auto& [name, tensor] : want) ASSERT_EQ(got.at(name).to_doubles(), tensor.to_doubles()) << name;
  }
}

// After the gate a run that failed has written nothing, and says so, also where nobody asked the driver.
TEST(WaitedRuns, ThatFailWriteNothingAndSaySo) {
  PD_SKIP_WITHOUT_A_GPU();
  OnBoth both([](Graph& g) {
    const Value w = g.parameter("w", f32, {4}), x = g.input("x", f32, {4});
    const Value next = w * 0.5 + x;
    assign(w, next);
    g.fetch("next", next);
    g.fetch("row", gather(x, g.input("id", i32, {})));
  });
  const auto feeds = [](int step, double id) {
    return Tensors{{"x", input(4, step)}, {"id", Tensor::from(i32, {}, Dense{id})}};
  };
  for (int step = 0; step < 40; ++step) {
    schedule(static_cast<unsigned>(step), 20);
    if (step % 9 == 8) {
      EXPECT_TRUE(has(message_of([&] { both.program->run(feeds(step, 7)); }), "indices[] = 7"));
      EXPECT_EQ(both.parameters->get("w").to_doubles(), both.expected->get("w").to_doubles());
    }
    both.program->run(feeds(step, step % 4)), both.on_cpu->run(feeds(step, step % 4));
    both.expect_same(fmt::format("step {}", step));
  }
}

#ifdef PAODING_PRETEND_FOLDER

std::size_t count_calls(const std::string& name) {
  const std::vector<std::string> calls = pretend_gpu().calls();
  return static_cast<std::size_t>(std::ranges::count(calls, name));
}

TEST(WaitedRuns, TellTheirEndFromTheFifthOn) {
  OnBoth both([](Graph& g) { build_step(g, 16); });
  pretend_gpu().schedule(0, 1'000'000);  // a run is over when its launch returns
  const auto run = [&](bool waits) {
    forget_calls();
    const std::size_t before = pretend_gpu().kernels_run();
    both.program->run();
    both.program->set_input(0, input(16, 1));
    if (waits) both.program->fetch(0);
    const std::size_t copies = count_calls("cuMemcpyDtoH") + count_calls("cuStreamSynchronize");
    return std::pair(pretend_gpu().kernels_run() - before, copies);
  };
  const auto made = [] { return count_calls("cuGraphInstantiate") + count_calls("cuStreamBeginCapture"); };
  both.program->set_input(0, input(16, 0));
  const auto [kernels, calls] = run(true);
  EXPECT_EQ(calls, 3u);
  for (int i = 1; i < 4; ++i) EXPECT_EQ(run(true), std::pair(kernels, std::size_t{3}));
  const std::pair told(kernels, std::size_t{0});  // one kernel more, but for the launch of the two copies
  for (int i = 0; i < 20; ++i) {
    EXPECT_EQ(run(true), told);
    EXPECT_EQ(made(), 0u) << "the graph that tells the end was there before the first run";
  }
  for (int i = 0; i < 6; ++i) {  // nobody reads any more: only the copies at the end are left
    both.program->run();
    both.program->set_input(0, input(16, 1));
    forget_calls();
    both.program->wait();
    EXPECT_EQ(waits(), 0u);
  }
  forget_calls();
  both.program->fetch(0);
  EXPECT_EQ(waits(), 1u) << "a copy, of what had not been asked for";
  for (int i = 0; i < 5; ++i) run(false);
  for (int i = 0; i < 4; ++i) EXPECT_EQ(run(true), std::pair(kernels, std::size_t{3}));
  EXPECT_EQ(run(true), told);
}

// Graphs that tell an end are made beforehand where there is room for them: they drop none that runs.
TEST(WaitedRuns, MakeTheGraphThatTellsTheirEndLaterWhereGraphsHaveNoRoom) {
  CompileOptions options = on_gpu();
  options.graph_bytes = 1;
  forget_calls();
  OnBoth both([](Graph& g) { build_step(g, 16); }, options);
  EXPECT_EQ(count_calls("cuGraphInstantiate"), 1u);
  for (int step = 0; step < 20; ++step) {
    const Tensor x = input(16, step);
    both.program->run({{"x", x}}), both.on_cpu->run({{"x", x}});
    both.expect_same(fmt::format("step {}", step));
  }
  EXPECT_EQ(count_calls("cuGraphInstantiate"), 2u) << "one at a time";
}

// The word does not come where the device is lost: the driver says so.
TEST(WaitedRuns, SayThatTheDeviceIsLost) {
  OnBoth both([](Graph& g) { build_step(g, 16); });
  pretend_gpu().schedule(0, 50);
  both.program->set_input(0, input(16, 0));
  for (int i = 0; i < 8; ++i) both.program->run(), both.program->wait();
  pretend_gpu().break_at("completion_flag", CUDA_ERROR_ILLEGAL_ADDRESS);
  EXPECT_TRUE(has(message_of([&] { both.program->run(), both.program->wait(); }), "ILLEGAL_ADDRESS"));
  pretend_gpu().revive();
}

#endif

}  // namespace
}  // namespace paoding::testing_program
