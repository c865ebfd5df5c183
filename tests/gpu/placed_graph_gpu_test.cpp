// SPDX-License-Identifier: Apache-2.0
// Graphs on the caller's memory of a GPU: in its stream and in a graph that it captures.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include "gpu/driver/write_memory.h"
#include "paoding/placed.h"
#include "paoding/profile.h"
#include "profile/report.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/gpu/on_gpu.h"
#include "tests/support/misses_nothing.h"

namespace paoding::testing_program {
namespace {

TEST(PlacedGraphOnAGpu, RunsInTheCallersStreamAndGraph) {
  if (Device::best().kind != DeviceKind::cuda) GTEST_SKIP() << "NOT CHECKED: no GPU here";
  Graph g;
  const Value a = g.input("a", f32, {6, 1}), b = g.input("b", f32, {6, 5}), t = g.input("t", f32, {5});
  const Value y = lerp(a, b, t);
  g.fetch("y", y);
  g.fetch("dt", gradients(std::array{sum(y * y)}, std::array{t})[0]);
  g.fetch("same", b);
  const Feeds fed = make_feeds(g, 3);
  const Tensors wanted = Program(g).run(to_tensors(g, fed));

  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Driver& driver = gpu::required_driver();
  PlacedGraph placed(g, Device::cuda());
  OnGpu ga(Dense(6, 0.5)), gb(fed.at("b")), gt(fed.at("t")), gy(120), gdt(20), gsame(120),
      workspace(static_cast<std::size_t>(placed.workspace_bytes()));
  const std::array<const void*, 3> inputs{ga.at(), gb.at(), gt.at()};
  const std::array<void*, 3> results{gy.at(), gdt.at(), gsame.at()};
  const gpu::Stream stream(device);
  const auto check = [&] {
    PD_CUDA(driver.cuStreamSynchronize(stream.get()));
    expect_close("y", gy.read(30), wanted.at("y").to_doubles(), 1e-5);
    expect_close("dt", gdt.read(5), wanted.at("dt").to_doubles(), 1e-4);
    expect_close("same", gsame.read(30), wanted.at("same").to_doubles(), 0);
  };
  // Calls that allocate or wait may not be captured.
  PD_CUDA(driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
  placed.run(inputs, results, workspace.at(), stream.get());
  CUgraph captured = nullptr;
  PD_CUDA(driver.cuStreamEndCapture(stream.get(), &captured));
  CUgraphExec runnable = nullptr;
  PD_CUDA(driver.cuGraphInstantiate(&runnable, captured, 0));
  ga.write(fed.at("a"));  // after the capture
  PD_CUDA(driver.cuGraphLaunch(runnable, stream.get()));
  check();
  gy.write(Dense(30, 0));
  placed.run(inputs, results, workspace.at(), stream.get());
  check();
  PD_CUDA(driver.cuGraphExecDestroy(runnable));
  PD_CUDA(driver.cuGraphDestroy(captured));

  Graph looks_up;
  looks_up.fetch("y", gather(looks_up.input("x", f32, {6, 5}), looks_up.input("i", i64, {2}), 0));
  const std::string message = message_of([&] { PlacedGraph(looks_up, Device::cuda()); });
  EXPECT_TRUE(has(message, "gather: its positions are checked while it runs")) << message;
}

// Nobody waits for such a run, so nobody is told; an index that is only looked at is no reason to refuse the graph.
TEST(PlacedGraphOnAGpu, OfALabelThatIsNoClassHasALossOfNan) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value logits = g.input("logits", f32, {3, 2}), labels = cast(g.input("labels", f32, {3}), i32);
  g.fetch("loss", cross_entropy(logits, labels, {.reduction = LossReduction::none}));
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  PlacedGraph placed(g, Device::cuda());
  const OnGpu given(Dense{1, 1, 0, 0, 2, 2}), classes(Dense{1, 2, -1});
  OnGpu loss(12), workspace(static_cast<std::size_t>(placed.workspace_bytes()));
  const gpu::Stream stream(device);
  placed.run(std::array<const void*, 2>{given.at(), classes.at()}, std::array{loss.at()}, workspace.at(), stream.get());
  PD_CUDA(gpu::required_driver().cuStreamSynchronize(stream.get()));
  const Dense got = loss.read(3);
  EXPECT_NEAR(got[0], std::log(2.0), 1e-6);
  EXPECT_TRUE(std::isnan(got[1])) << got[1];
  EXPECT_EQ(got[2], 0);
}

// CTAs that share a sum count in memory that begins as zeros and that the plan keeps; a graph may run beside the plan
// and beside other graphs, so its runs count in the workspace, whatever was there before.
TEST(PlacedGraphOnAGpu, CapturedRunsShareNothingAndTakeADirtyWorkspace) {
  PD_SKIP_WITHOUT_A_GPU();
  constexpr std::int64_t kLength = 200'000;
  Graph g;
  const Value x = g.input("x", f32, {kLength});
  g.fetch("sum", sum(x * x));
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Driver& driver = gpu::required_driver();
  PlacedGraph placed(g, Device::cuda());

  struct Call {
    OnGpu x, sum, workspace;
    gpu::Stream stream;
    CUgraphExec runnable = nullptr;
  };
  const Dense dirt(static_cast<std::size_t>(placed.workspace_bytes() / 4), std::nan(""));
  ASSERT_FALSE(dirt.empty());
  std::vector<std::unique_ptr<Call>> calls;
  const auto run = [&](Call& call) {
    placed.run(std::array<const void*, 1>{call.x.at()}, std::array{call.sum.at()}, call.workspace.at(),
               call.stream.get());
  };
  for (int i = 0; i < 3; ++i) {
    calls.emplace_back(new Call{OnGpu(Dense(kLength, 0.5 + i)), OnGpu(Dense{-1}), OnGpu(dirt), gpu::Stream(device)});
    if (i == 2) continue;  // the plan itself
    Call& call = *calls.back();
    forget_calls();
    CUgraph captured = nullptr;
    PD_CUDA(driver.cuStreamBeginCapture(call.stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    run(call);
    PD_CUDA(driver.cuStreamEndCapture(call.stream.get(), &captured));
    PD_CUDA(driver.cuGraphInstantiate(&call.runnable, captured, 0));
    PD_CUDA(driver.cuGraphDestroy(captured));
#ifdef PAODING_PRETEND_FOLDER
    const std::vector<std::string> made = pretend_gpu().calls();
    EXPECT_EQ(std::count(made.begin(), made.end(), "cuMemsetD8Async"), 1) << "the kernel counts nothing";
#endif
  }
  for (unsigned seed = 1; seed <= 4; ++seed) {
    schedule(seed, 0);
    for (int round = 0; round < 3; ++round) {
      for (const auto& call : calls) {
        if (call->runnable == nullptr) {
          run(*call);
        } else {
          PD_CUDA(driver.cuGraphLaunch(call->runnable, call->stream.get()));
        }
      }
    }
    for (std::size_t i = 0; i < calls.size(); ++i) {
      PD_CUDA(driver.cuStreamSynchronize(calls[i]->stream.get()));
      const double each = 0.5 + static_cast<double>(i);
      EXPECT_NEAR(calls[i]->sum.read(1)[0], kLength * each * each, kLength * 1e-4) << i;
      calls[i]->sum.write({-1});
      calls[i]->workspace.write(dirt);
    }
  }
  for (const auto& call : calls) {
    if (call->runnable != nullptr) PD_CUDA(driver.cuGraphExecDestroy(call->runnable));
  }
}

// Four sums that do not read each other's results start as one, and groups that read each other's row by row as one.
TEST(PlacedGraphOnAGpu, StartsLaunchesThatCanBeFusedAsOne) {
  PD_SKIP_WITHOUT_A_GPU();
  constexpr std::int64_t kRows = 6, kColumns = 50;
  Graph g;
  const Value x = g.input("x", f32, {kRows, kColumns}), v = g.input("v", f32, {kRows, kColumns, 3});
  const Value weights = softmax(x), seen = sum(reshape(weights, {kRows, kColumns, 1}) * v, Ints{1});
  g.fetch("seen", seen);
  for (int i = 0; i < 4; ++i) g.fetch(fmt::format("sum{}", i), sum(sin(v * (1.0 + i)), Ints{0, 2}));
  const Feeds fed = make_feeds(g, 3);
  const Tensors wanted = Program(g).run(to_tensors(g, fed));
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  PlacedGraph placed(g, Device::cuda());
  const OnGpu gx(fed.at("x")), gv(fed.at("v"));
  std::vector<OnGpu> made;
  std::vector<void*> results;
  for (const PlacedGraph::Place& place : placed.results()) {
    made.emplace_back(static_cast<std::size_t>(place.size_bytes()));
    results.push_back(made.back().at());
  }
  OnGpu workspace(static_cast<std::size_t>(placed.workspace_bytes()));
  const gpu::Stream stream(device);
  forget_calls();
  placed.run(std::array<const void*, 2>{gx.at(), gv.at()}, results, workspace.at(), stream.get());
#ifdef PAODING_PRETEND_FOLDER
  const std::vector<std::string> calls = pretend_gpu().calls();
  EXPECT_LE(std::ranges::count(calls, "cuLaunchKernelEx"), 2) << fmt::format("{}", fmt::join(calls, " "));
#endif
  PD_CUDA(gpu::required_driver().cuStreamSynchronize(stream.get()));
  for (std::size_t i = 0; i < made.size(); ++i) {
    const PlacedGraph::Place& place = placed.results()[i];
    expect_close(place.name, made[i].read(static_cast<std::size_t>(place.type.shape.elements())),
                 wanted.at(place.name).to_doubles(), 1e-5);
  }
}

// Gather, and the scatter of its gradient, run, and words of the workspace say which position was wrong.
TEST(PlacedGraphOnAGpu, ReportsPositionsThatAreOutsideToACallerWhoAsks) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value x = g.input("x", f32, {6, 5}), ids = g.input("ids", i64, {3});
  {
    const Scope scope(g, "table");
    const Value found = gather(x, ids, 0);
    g.fetch("found", found);
    g.fetch("dx", gradients(std::array{sum(found * found)}, std::array{x})[0]);
  }
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Driver& driver = gpu::required_driver();
  PlacedGraph placed(g, Device::cuda(), {.reports_faults = true});
  const PlacedGraph::FaultWords words = placed.fault_words();
  ASSERT_GT(words.bytes, 0);
  ASSERT_LE(words.offset + words.bytes, placed.workspace_bytes());
  Feeds fed = make_feeds(g, 3);
  fed["ids"] = {0, 5, 2};
  const OnGpu gx(fed.at("x"));
  OnGpu gids(3 * sizeof(std::int64_t)), found(60), dx(120),
      workspace(static_cast<std::size_t>(placed.workspace_bytes()));
  const gpu::Stream stream(device);
  const auto run = [&](const std::vector<std::int64_t>& positions) {
    gpu::write_memory(reinterpret_cast<CUdeviceptr>(gids.at()), positions.data(), 3 * sizeof(std::int64_t));
    placed.run(std::array<const void*, 2>{gx.at(), gids.at()}, std::array<void*, 2>{found.at(), dx.at()},
               workspace.at(), stream.get());
    PD_CUDA(driver.cuStreamSynchronize(stream.get()));
    std::vector<std::byte> copied(static_cast<std::size_t>(words.bytes));
    PD_CUDA(driver.cuMemcpyDtoH(copied.data(),
                                reinterpret_cast<CUdeviceptr>(workspace.at()) + static_cast<CUdeviceptr>(words.offset),
                                copied.size()));
    return message_of([&] { placed.check(copied.data()); });
  };
  EXPECT_EQ(run({0, 5, 2}), "no error");
  const Tensors wanted = Program(g).run(to_tensors(g, fed));
  expect_close("found", found.read(15), wanted.at("found").to_doubles(), 0);
  expect_close("dx", dx.read(30), wanted.at("dx").to_doubles(), 1e-6);
  const std::string outside = run({0, 6, 2});
  EXPECT_TRUE(has(outside, "6") && has(outside, "table")) << outside;
  EXPECT_EQ(run({5, 5, 5}), "no error") << "the next run begins without the fault of the one before";

  // ---- of callers who do not wait ----
  const auto raised = [&](bool waits) { return message_of([&] { placed.raise_faults(waits); }); };
  const auto follow = [&](const std::vector<std::int64_t>& positions) {
    run(positions);
    return message_of([&] { placed.follow_faults(workspace.at(), stream.get()); });
  };
  EXPECT_EQ(raised(true), "no error") << "no run is followed";
  for (const std::int64_t position : {1, 7, 2, 9}) ASSERT_EQ(follow({0, position, 0}), "no error");
  const std::string first = raised(true), second = raised(true);
  EXPECT_TRUE(has(first, "7") && has(first, "table")) << first;
  EXPECT_TRUE(has(second, "9") && has(second, "table")) << second;
  EXPECT_EQ(raised(true), "no error") << "each is raised once";
  ASSERT_EQ(follow({0, 8, 0}), "no error");
  std::string of_oldest = "no error";
  for (int i = 0; i < 70 && of_oldest == "no error"; ++i) of_oldest = follow({0, 1, 0});
  EXPECT_TRUE(has(of_oldest, "8")) << of_oldest << ": more runs are under way than are followed at once";
  EXPECT_EQ(raised(true), "no error");
}

// A recording has every kernel of every run, by stamps; runs that the caller captures get none, as nobody would read
// them.
TEST(PlacedGraphOnAGpu, IsSeenInRecordingsAndLeavesNoStampInAGraphOfTheCallers) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value a = g.input("a", f32, {16, 16}), b = g.input("b", f32, {16, 16});
  g.fetch("y", sort(tanh(matmul(a, b))).values);
  const gpu::GpuDevice& device = gpu::GpuDevice::get(0);
  device.make_current();
  const gpu::Driver& driver = gpu::required_driver();
  PlacedGraph placed(g, Device::cuda());
  const Feeds fed = make_feeds(g, 3);
  const Dense wanted = Program(g).run(to_tensors(g, fed)).at("y").to_doubles();
  OnGpu ga(fed.at("a")), gb(fed.at("b")), gy(Dense(256, 0)),
      workspace(static_cast<std::size_t>(placed.workspace_bytes()));
  const gpu::Stream stream(device);
  const auto run = [&] {
    placed.run(std::array<const void*, 2>{ga.at(), gb.at()}, std::array{gy.at()}, workspace.at(), stream.get());
  };
  run();
  for (const int runs : {1, 41}) {
    Profiler seen;
    for (int i = 0; i < runs; ++i) run();
    PD_CUDA(driver.cuStreamSynchronize(stream.get()));
    const std::string report = seen.stop();
    expect_close("y", gy.read(256), wanted, 1e-5);
    const profile::Measures m = profile::measure(seen.trace());
    EXPECT_TRUE(testing_program::misses_nothing(report)) << report;
    EXPECT_EQ(m.records.unattributed_ns, 0) << report;
    std::map<std::string, std::uint64_t> calls;
    for (const profile::Section& section : m.per_thread) {
      for (const profile::Row& row : section.rows) {
        if (row.gpu > 0) calls[row.name] += row.calls;
      }
    }
    const auto count = static_cast<std::uint64_t>(runs);
    EXPECT_EQ(calls, (std::map<std::string, std::uint64_t>{{"matmul", count}, {"sort", count}, {"tanh", count}}))
        << report;
    for (profile::SpanId i = 0; i < seen.trace().size(); ++i) {
      if (!seen.trace().on_gpu(i)) continue;
      ASSERT_NE(seen.trace().cause(i), profile::kNone);
      EXPECT_EQ(seen.trace().kind(seen.trace().cause(i)), profile::SpanKind::launch);
      EXPECT_GE(seen.trace().start(i), seen.trace().start(seen.trace().cause(i))) << "a kernel before its launch";
    }
  }
  const auto nodes_of_a_capture = [&] {
    CUgraph captured = nullptr;
    PD_CUDA(driver.cuStreamBeginCapture(stream.get(), CU_STREAM_CAPTURE_MODE_THREAD_LOCAL));
    run();
    PD_CUDA(driver.cuStreamEndCapture(stream.get(), &captured));
    std::size_t nodes = 0;
    PD_CUDA(driver.cuGraphGetNodes(captured, nullptr, &nodes));
    PD_CUDA(driver.cuGraphDestroy(captured));
    return nodes;
  };
  const std::size_t nodes = nodes_of_a_capture();
  Profiler seen;
  EXPECT_EQ(nodes_of_a_capture(), nodes);
  EXPECT_NE(seen.stop().find("Not seen: runs on memory of the caller's that were captured"), std::string::npos);
}

}  // namespace
}  // namespace paoding::testing_program
