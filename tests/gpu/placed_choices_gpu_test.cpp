// SPDX-License-Identifier: Apache-2.0
// Branches and loops that the device decides in graphs on the caller's memory, and runs that are one CUDA graph:
// compared with programs on the CPU, in the caller's stream and in graphs that the caller captures.
#include <fmt/format.h>
#include <gtest/gtest.h>

#include <optional>

#include "paoding/profile.h"
#include "profile/report.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/gpu/placed_on_gpu.h"
#include "tests/support/choice_graphs.h"
#include "tests/support/misses_nothing.h"
#include "tests/support/random_graph.h"

namespace paoding::testing_program {
namespace {

// How often a function of the driver was called since forget_calls(); nothing on a GPU that is there.
std::optional<std::size_t> calls_of([[maybe_unused]] const std::string& function) {
#ifdef PAODING_PRETEND_FOLDER
  const std::vector<std::string> calls = pretend_gpu().calls();
  return static_cast<std::size_t>(std::ranges::count(calls, function));
#else
  return std::nullopt;
#endif
}

void expect_calls(const std::string& function, std::size_t count) {
  EXPECT_EQ(calls_of(function).value_or(count), count) << function;
}

void expect_all_close(const Tensors& got, const Tensors& wanted, double tolerance) {
  for (const auto& [name, tensor] : wanted)
    expect_close(name, got.at(name).to_doubles(), tensor.to_doubles(), tolerance);
}

// The kernels of both ways start, and those of the one that is not taken return at once: no graph is needed.
TEST(PlacedChoicesOnAGpu, StartTheKernelsOfSmallBranchesInTheCallersStream) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value p = g.input("p", boolean, {}), q = g.input("q", boolean, {}), x = g.input("x", f32, {2, 3});
  const auto branch = [&](const Value& which, double factor) {
    return cond(
        which, [&] { return x * factor; }, [&] { return exp(x * factor); });
  };
  g.fetch("a", branch(p, 2)), g.fetch("b", branch(q, 3));
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  PlacedGraph placed(g, Device::cuda());
  PlacedOnGpu memory(placed);
  const gpu::Stream stream(device);
  Program cpu(g);
  Tensors feeds = to_tensors(g, make_feeds(g, 3));
  CallersGraph captured(stream, [&] { memory.run(stream); });
  for (const int which : {0, 1, 2, 3}) {
    feeds["p"] = number(boolean, which % 2), feeds["q"] = number(boolean, which / 2);
    forget_calls();
    expect_all_close(memory.run_with(feeds, stream), cpu.run(feeds), 1e-6);
    expect_calls("cuGraphLaunch", 0);
    captured.launch();
    expect_all_close(memory.take(stream), cpu.run(feeds), 1e-6);
  }
}

Tensors nested_feeds(double p, double n) {
  return {{"p", number(boolean, p)}, {"n", number(i32, n)}, {"x", Tensor::from(f32, {3}, Dense{1, 2, 3})}};
}

TEST(PlacedChoicesOnAGpu, NestInOneGraphAndInTheCallersGraph) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_nested(g);
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  PlacedGraph placed(g, Device::cuda());
  PlacedOnGpu memory(placed), other(placed);
  const gpu::Stream stream(device), others_stream(device);
  Program cpu(g);
  CallersGraph captured(stream, [&] { memory.run(stream); });
  for (const double p : {1, 0}) {
    for (const double n : {0, 1, 2, 5}) {
      const Tensors feeds = nested_feeds(p, n), wanted = cpu.run(feeds);
      memory.feed(feeds), other.feed(feeds);
      forget_calls();
      memory.run(stream);
      expect_calls("cuGraphLaunch", 1);
      expect_all_close(memory.take(stream), wanted, 1e-6);
      expect_all_close(other.run_with(feeds, stream), wanted, 1e-6);
      captured.launch();
      expect_all_close(memory.take(stream), wanted, 1e-6);
    }
  }
  expect_calls("cuStreamBeginCapture", 0);
  // A captured run shares nothing with runs of the plan.
  CallersGraph elsewhere(others_stream, [&] { other.run(others_stream); });
  for (unsigned seed = 1; seed <= 4; ++seed) {
    schedule(seed, 0);
    memory.feed(nested_feeds(1, 5)), other.feed(nested_feeds(1, 2));
    for (int i = 0; i < 3; ++i) memory.run(stream), elsewhere.launch();
    expect_all_close(memory.take(stream), cpu.run(nested_feeds(1, 5)), 1e-6);
    expect_all_close(other.take(others_stream), cpu.run(nested_feeds(1, 2)), 1e-6);
  }
}

// A library's product reads no word before it writes, so its branch is the body of a conditional node.
TEST(PlacedChoicesOnAGpu, RunProductsOfALibraryInAConditionalNode) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_branch_of_products(g);
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  PlacedGraph placed(g, Device::cuda());
  PlacedOnGpu memory(placed);
  const gpu::Stream stream(device);
  Program cpu(g);
  for (const double which : {1, 0, 1, 1, 0}) {
    Tensors feeds = to_tensors(g, make_feeds(g, 3));
    feeds["p"] = number(boolean, which);
    expect_all_close(memory.run_with(feeds, stream), cpu.run(feeds), 1e-5);
  }
}

// A loop has no other turn once a kernel in it has left a fault, which its condition may follow from.
TEST(PlacedChoicesOnAGpu, ReportAFaultInALoopAndEndIt) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value x = g.input("x", f32, {6}), first = g.input("first", i64, {1}), step = g.input("step", i64, {1});
  {
    const Scope scope(g, "walk");
    const Values made = while_loop(
        {first, full(g, {}, 0, f32)}, [&](const Values& v) { return less(v[1], 3.0); },
        [&](const Values& v) {
          return Values{v[0] + step, v[1] + sum(gather(x, v[0], 0))};
        });
    g.fetch("sum", made[1]);
  }
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  PlacedGraph placed(g, Device::cuda(), {.reports_faults = true});
  PlacedOnGpu memory(placed);
  const gpu::Stream stream(device);
  const auto feeds = [](double at, double by) {
    return Tensors{{"x", Tensor::from(f32, {6}, Dense(6, 1.0))},
                   {"first", Tensor::from(i64, {1}, Dense{at})},
                   {"step", Tensor::from(i64, {1}, Dense{by})}};
  };
  const auto check = [&] { return message_of([&] { placed.check(memory.fault_words().data()); }); };
  EXPECT_EQ(memory.run_with(feeds(1, 2), stream).at("sum").to_doubles(), Dense{3});
  EXPECT_EQ(check(), "no error");
  Tensors empty = feeds(4, 1);
  empty["x"] = Tensor::from(f32, {6}, Dense(6, 0.0));  // the sum never grows
  memory.run_with(empty, stream);
  const std::string outside = check();
  EXPECT_TRUE(has(outside, "6") && has(outside, "walk")) << outside;
  EXPECT_EQ(memory.run_with(feeds(0, 1), stream).at("sum").to_doubles(), Dense{3});
  EXPECT_EQ(check(), "no error");
}

TEST(PlacedChoicesOnAGpu, SayWhatTheyDoNotTake) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph prints;
  prints.fetch("y", print(prints.input("x", f32, {2}), "seen"));
  EXPECT_TRUE(has(message_of([&] { PlacedGraph(prints, Device::cuda()); }), "print 'seen'"));
  Graph g;
  const Value x = g.input("x", f32, {2});
  Value y;
  {
    const Scope scope(g, "counted");
    const OnCpu here(g);
    y = sum(x);
  }
  g.fetch("y", y * 2.0);
  const std::string message = message_of([&] { PlacedGraph(g, Device::cuda()); });
  EXPECT_TRUE(has(message, "it is to run on the CPU (in counted)") && has(message, "hint: without OnCpu")) << message;
}

// Captured, step by step, in the caller's memory, as a graph of ours and as the caller's: the same bits; the CPU's
// within rounding.
TEST(PlacedChoicesOnAGpu, GiveTheBitsOfProgramsInRandomGraphs) {
  PD_SKIP_WITHOUT_A_GPU();
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  int tried = 0;
  for (unsigned seed = 1; seed <= 40 && tried < 4; ++seed) {
    Graph g;
    const RandomGraph made(g, seed, nullptr, f32, RandomGraph::Choices::some);
    if (g.size() > 60 || !has(to_text(g), "= while(")) continue;
    ++tried;
    SCOPED_TRACE(fmt::format("seed {}\n{}", seed, to_text(g)));
    const Tensors feeds = to_tensors(g, make_feeds(g, seed));
    CompileOptions options;
    options.device = Device::cuda();
    const Tensors wanted = Program(g, options).run(feeds);
    options.execution = Execution::stepwise;
    expect_same_bits(wanted, Program(g, options).run(feeds));
    for (const bool uses_graph : {false, true}) {
      PlacedGraph placed(g, Device::cuda(), {.reports_faults = true, .uses_graph = uses_graph});
      PlacedOnGpu memory(placed);
      const gpu::Stream stream(device);
      for (int again = 0; again < 3; ++again) expect_same_bits(wanted, memory.run_with(feeds, stream));
      CallersGraph captured(stream, [&] { memory.run(stream); });
      captured.launch();
      expect_same_bits(wanted, memory.take(stream));
    }
    expect_all_close(Program(g).run(feeds), wanted, 2e-4);
    if (HasFailure()) return;
  }
  EXPECT_EQ(tried, 4);
}

void build_steps(Graph& g) {
  const Value a = g.input("a", f32, {16, 16}), b = g.input("b", f32, {16, 16});
  const Value y = sort(tanh(matmul(a, b))).values;
  g.fetch("y", y);
  g.fetch("sums", cumsum(y, 0));
  g.fetch("same", b);
}

// Addresses that come again are one launch of a graph; others start launch by launch.
TEST(PlacedGraphAsAGraph, IsOneLaunchFromTheSecondCallOnForEachSetOfAddresses) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_steps(g);
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const Tensors feeds = to_tensors(g, make_feeds(g, 3)), others = to_tensors(g, make_feeds(g, 4));
  Program cpu(g);
  const Tensors wanted = cpu.run(feeds), others_wanted = cpu.run(others);
  const gpu::Stream stream(device);
  for (const bool uses_graph : {false, true}) {
    PlacedGraph placed(g, Device::cuda(), {.uses_graph = uses_graph});
    PlacedOnGpu first(placed), second(placed);
    for (int call = 0; call < 6; ++call) {
      PlacedOnGpu& memory = call % 2 == 0 ? first : second;
      const bool is_graph = uses_graph && call >= 2, is_made = is_graph && call < 4;
      memory.feed(call < 4 ? feeds : others);
      forget_calls();
      memory.run(stream);
      expect_calls("cuGraphLaunch", is_graph ? 1 : 0);
      expect_calls("cuGraphInstantiate", is_made ? 1 : 0);
      if (is_graph && !is_made) {
        expect_calls("cuLaunchKernelEx", 0);
        expect_calls("cuMemcpyDtoDAsync", 0);
      }
      EXPECT_EQ(waits(), 0u);
      expect_all_close(memory.take(stream), call < 4 ? wanted : others_wanted, 1e-5);
    }
  }
}

// Only the last few sets of addresses have a graph; the others' give their memory back.
TEST(PlacedGraphAsAGraph, KeepsTheGraphsOfTheLastAddresses) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_steps(g);
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const Tensors feeds = to_tensors(g, make_feeds(g, 3)), wanted = Program(g).run(feeds);
  const gpu::Stream stream(device);
  PlacedGraph placed(g, Device::cuda(), {.uses_graph = true});
  std::vector<std::unique_ptr<PlacedOnGpu>> all;
  for (int i = 0; i < 12; ++i) all.push_back(std::make_unique<PlacedOnGpu>(placed));
#ifdef PAODING_PRETEND_FOLDER
  const std::size_t before = pretend_gpu().graph_bytes();
  std::size_t one = 0;
#endif
  for (int round = 0; round < 3; ++round) {
    for (const auto& memory : all) {
      expect_all_close(memory->run_with(feeds, stream), wanted, 1e-5);
#ifdef PAODING_PRETEND_FOLDER
      if (round == 1 && one == 0) one = pretend_gpu().graph_bytes() - before;
      EXPECT_LE(pretend_gpu().graph_bytes() - before, 8 * one) << round;
#endif
    }
  }
#ifdef PAODING_PRETEND_FOLDER
  EXPECT_GT(one, 0u);
  EXPECT_EQ(pretend_gpu().graph_bytes() - before, 8 * one);
#endif
}

#ifdef PAODING_PRETEND_FOLDER
TEST(PlacedGraphAsAGraph, IsNotMadeAgainAndAgainForAddressesThatReturnTooSeldom) {
  Graph g;
  build_steps(g);
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Stream stream(device);
  PlacedGraph placed(g, Device::cuda(), {.uses_graph = true});
  std::vector<std::unique_ptr<PlacedOnGpu>> all;
  for (int i = 0; i < 12; ++i) all.push_back(std::make_unique<PlacedOnGpu>(placed));
  pretend_gpu().forget_calls();
  for (int round = 0; round < 10; ++round) {
    for (const auto& memory : all) memory->run(stream);
  }
  stream.wait_idle();
  const std::vector<std::string> calls = pretend_gpu().calls();
  EXPECT_EQ(std::ranges::count(calls, "cuGraphInstantiate"), 8 + 8) << "then none for the next thousand calls";
}
#endif

// A run that cannot be but a graph is one kernel in a recording; another is recorded launch by launch.
TEST(PlacedGraphAsAGraph, IsSeenInRecordings) {
  PD_SKIP_WITHOUT_A_GPU();
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Stream stream(device);
  const auto rows_of = [&](PlacedOnGpu& memory, const Tensors& wanted) {
    Profiler seen;
    for (int i = 0; i < 3; ++i) memory.run(stream);
    const Tensors got = memory.take(stream);
    const std::string report = seen.stop();
    EXPECT_TRUE(testing_program::misses_nothing(report)) << report;
    expect_all_close(got, wanted, 1e-5);
    std::map<std::string, std::uint64_t> calls;
    for (const profile::Section& section : profile::measure(seen.trace()).per_thread) {
      for (const profile::Row& row : section.rows) {
        if (row.gpu > 0) calls[row.name] += row.calls;
      }
    }
    return calls;
  };
  Graph steps, nested;
  build_steps(steps), build_nested(nested);
  const Tensors feeds = to_tensors(steps, make_feeds(steps, 3));
  PlacedGraph placed_steps(steps, Device::cuda(), {.uses_graph = true}), placed_nested(nested, Device::cuda());
  PlacedOnGpu of_steps(placed_steps), of_nested(placed_nested);
  for (int i = 0; i < 3; ++i) of_steps.run_with(feeds, stream);
  of_nested.run_with(nested_feeds(1, 2), stream);
  const auto seen_steps = rows_of(of_steps, Program(steps).run(feeds));
  EXPECT_TRUE(seen_steps.contains("matmul") && seen_steps.contains("sort")) << seen_steps.size();
  const auto seen_nested = rows_of(of_nested, Program(nested).run(nested_feeds(1, 2)));
  EXPECT_EQ(seen_nested, (std::map<std::string, std::uint64_t>{{"graph of a run", 3}}));
}

}  // namespace
}  // namespace paoding::testing_program
