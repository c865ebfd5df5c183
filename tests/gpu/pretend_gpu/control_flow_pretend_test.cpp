// SPDX-License-Identifier: Apache-2.0
// Branches and loops that a run on a GPU decides by itself, on the pretended one: its launches and copies, the kernels
// that run, and how a loop that would never end is ended.
#include <chrono>
#include <cstdlib>
#include <thread>

#include "gpu/profile/cupti_library.h"
#include "paoding/cancellation.h"
#include "paoding/profile.h"
#include "profile/trace.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"
#include "tests/support/choice_graphs.h"

namespace paoding::testing_program {
namespace {

std::size_t calls_of(const std::string& function) {
  const std::vector<std::string> calls = pretend_gpu().calls();
  return static_cast<std::size_t>(std::ranges::count(calls, function));
}

std::size_t copies() {
  std::size_t count = 0;
  for (const std::string& call : pretend_gpu().calls()) count += call.starts_with("cuMemcpy") ? 1 : 0;
  return count;
}

// Which of three: a formula, a sum of it, or constants.
void build_variants(Graph& g) {
  const Value index = g.input("index", i32, {}), x = g.input("x", f32, {2, 3});
  g.fetch("v", switch_variant(index, {[&] { return Values{x * 2.0}; }, [&] { return Values{sum(x, Ints{0})}; },
                                      [&] { return Values{full(g, {4}, 3, i32)}; }}));
}

TEST(ControlFlowOnAGpu, RunsSmallBranchesInOneLaunchWithoutACopyButTheFeeds) {
  Graph g;
  build_variants(g);
  Program program(g, on_gpu());
  EXPECT_TRUE(has(program.plan_text(), "kernels of branches not taken return at once")) << program.plan_text();
  program.set_input(program.input_index("x"), Tensor::from(f32, {2, 3}, Dense{1, 2, 3, 4, 5, 6}));
  const Dense wanted[] = {{2, 4, 6, 8, 10, 12}, {5, 7, 9}, {3, 3, 3, 3}};
  for (const int which : {0, 1, 2, 7, -1, 0}) {
    program.set_input(program.input_index("index"), number(i32, which));
    program.wait();
    pretend_gpu().forget_calls();
    program.run();
    const Tensor got = program.fetch(0);
    EXPECT_EQ(calls_of("cuGraphLaunch"), 1u);
    EXPECT_EQ(copies(), 1u);
    EXPECT_EQ(got.to_doubles(), wanted[which < 0 || which > 2 ? 2 : which]) << which;
  }
}

// A library's product reads no word before it writes.
TEST(ControlFlowOnAGpu, RunsProductsOfABranchInAConditionalNode) {
  Graph g;
  build_branch_of_products(g);
  Program program(g, on_gpu()), cpu(g);
  EXPECT_TRUE(has(program.plan_text(), "a conditional node")) << program.plan_text();
  for (const double which : {1, 0, 1, 1, 0}) {
    Tensors feeds = to_tensors(g, make_feeds(g, 3));
    feeds["p"] = number(boolean, which);
    expect_close("y", program.run(feeds).at("y").to_doubles(), cpu.run(feeds).at("y").to_doubles(), 1e-5);
  }
}

// The host starts one graph.
TEST(ControlFlowOnAGpu, NestsLoopsAndBranches) {
  Graph g;
  build_nested(g);
  Program program(g, on_gpu()), cpu(g);
  for (const double p : {1, 0}) {
    for (const double n : {0, 1, 2, 5}) {
      Tensors feeds = to_tensors(g, make_feeds(g, 4));
      feeds["p"] = number(boolean, p), feeds["n"] = number(i32, n);
      pretend_gpu().forget_calls();
      const Tensors got = program.run(feeds);
      EXPECT_EQ(calls_of("cuGraphLaunch"), 1u);
      expect_close("y", got.at("y").to_doubles(), cpu.run(feeds).at("y").to_doubles(), 1e-5);
    }
  }
}

// Work after it writes nothing; the next run does.
TEST(ControlFlowOnAGpu, CallsOffALoopThatNeverEnds) {
  Graph g;
  const Value k = g.parameter("k", f32, {2}), step = g.input("step", f32, {});
  const Value y = while_loop(
      {full(g, {}, 0, f32)}, [&](const Values& v) { return less(v[0], 10.0); },
      [&](const Values& v) { return Values{v[0] + step}; })[0];
  assign(k, k + y);
  g.fetch("y", y);
  const Parameters parameters(g, Device::cuda(0));
  Program program(g, on_gpu(), &parameters);
  const Cancellation stop;
  std::thread later([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(300));
    stop.cancel();
  });
  {
    const CancelScope scope(stop);
    EXPECT_EQ(message_of([&] {
                program.run({{"step", number(f32, 0)}});
              }),
              "cancelled: it was called off before it was done");
  }
  later.join();
  EXPECT_EQ(parameters.get("k").to_doubles(), Dense(2, 0.0));
  EXPECT_EQ(program.run({{"step", number(f32, 4)}}).at("y").to_doubles(), Dense{12});
  EXPECT_EQ(parameters.get("k").to_doubles(), Dense(2, 12.0));
}

TEST(ControlFlowOnAGpu, PrintsWhatABranchAndEveryTurnOfALoopPrint) {
  Graph g;
  const Value p = g.input("p", boolean, {}), n = g.input("n", i32, {});
  const Value y = while_loop(
      {full(g, {}, 0, i32)}, [&](const Values& v) { return less(v[0], n); },
      [&](const Values& v) { return Values{print(v[0] + 1, "turn")}; })[0];
  g.fetch("y", cond(
                   p, [&] { return print(y * 10, "true"); }, [&] { return print(y, "false"); }));
  for (const Execution execution : {Execution::captured, Execution::stepwise}) {
    Program program(g, on_gpu(execution));
    for (const double which : {1, 0}) {
      program.run({{"p", number(boolean, which)}, {"n", number(i32, 3)}});
      std::string seen;
      for (const Printed& each : program.printed()) {
        seen += each.message + " " + std::to_string(int(each.value.to_doubles()[0])) + "; ";
      }
      EXPECT_EQ(seen, std::string("turn 1; turn 2; turn 3; ") + (which != 0 ? "true 30; " : "false 3; "));
    }
  }
}

TEST(ControlFlowOnAGpu, CopiesAroundWhatRunsOnTheCpu) {
  Graph g;
  const Value x = g.input("x", f32, {1}), y = g.input("y", f32, {1}), z = g.input("z", f32, {4});
  Value p, q;
  {
    const OnCpu scope(g);
    p = less(x, y);
    q = less(sum(z * 2.0), sum(x));  // z is read on the device too
  }
  const Value w = exp(z);
  Value r;
  {
    const OnCpu scope(g);
    r = less(sum(w), sum(y));  // of the device
  }
  g.fetch("a", cond(
                   p, [&] { return z * 2.0; }, [&] { return w; }));
  g.fetch("b", where(q, z, w));
  g.fetch("c", where(r, z, w));
  for (const Execution execution : {Execution::captured, Execution::stepwise}) {
    Program program(g, on_gpu(execution)), cpu(g);
    for (unsigned seed = 0; seed < 4; ++seed) {
      const Tensors feeds = to_tensors(g, make_feeds(g, seed));
      const Tensors got = program.run(feeds), wanted = cpu.run(feeds);
      for (const auto& [name, tensor] : wanted) {
        expect_close(name, got.at(name).to_doubles(), tensor.to_doubles(), 1e-5);
      }
    }
  }
}

// In a recording, the row of a branch is its choice; the kernels of a body have rows of their own, as often as they
// ran.
TEST(ControlFlowOnAGpu, ShowsWhatRanAndWhatWasCopied) {
  if (gpu::cupti() == nullptr) GTEST_SKIP() << "NOT CHECKED: " << gpu::cupti_problem();
  Graph g;
  Value p;
  const Value a = g.input("a", f32, {1}), n = g.input("n", i32, {}), x = g.input("x", f32, {4, 4});
  {
    const OnCpu scope(g);
    p = less(a, 1.0);
  }
  const Value y = while_loop(
      {full(g, {}, 0, i32), x}, [&](const Values& v) { return less(v[0], n); },
      [&](const Values& v) {
        return Values{v[0] + 1, cumsum(v[1] + x, 0)};
      })[1];
  g.fetch("y", cond(
                   p, [&] { return matmul(y, x); }, [&] { return tanh(y); }));
  Program program(g, on_gpu());
  Tensors feeds = to_tensors(g, make_feeds(g, 1));
  feeds["n"] = number(i32, 3);
  for (const bool by_cupti : {true, false}) {
    ::setenv("PAODING_CUPTI", by_cupti ? "1" : "0", 1);
    feeds["a"] = Tensor::from(f32, {1}, Dense{0});
    for (const auto& [name, tensor] : feeds) program.set_input(program.input_index(name), tensor);
    program.wait();
    Profiler seen;
    program.run();
    program.wait();
    const std::string report = seen.stop();
    EXPECT_TRUE(has(report, "GpuMemcpy")) << report;
    int turns = 0;
    for (profile::SpanId i = 0; i < seen.trace().size(); ++i) {
      const bool is_kernel = seen.trace().kind(i) == profile::SpanKind::kernel && seen.trace().on_gpu(i);
      turns += is_kernel && has(std::string(seen.trace().text(seen.trace().site(i).instance)), "cumsum") ? 1 : 0;
    }
    EXPECT_EQ(turns, 3) << report;
    EXPECT_FALSE(has(report, "could not be told")) << report;
  }
  ::unsetenv("PAODING_CUPTI");
}

}  // namespace
}  // namespace paoding::testing_program
