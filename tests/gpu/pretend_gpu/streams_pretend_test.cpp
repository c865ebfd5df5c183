// SPDX-License-Identifier: Apache-2.0
// The work that is enqueued, and where; its memory on the device; the errors when the device is lost.
#include <dlfcn.h>

#include "paoding/programs.h"
#include "tests/gpu/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

TEST(StreamsOnAGpu, ARunIsOneGraphLaunchAndNothingElse) {
  Graph g;
  build_training(g, 8);
  Parameters parameters(g, Device::cuda(0));
  Program program(g, on_gpu(), &parameters);
  program.set_input(0, input(8, 0));
  program.run();
  pretend_gpu().forget_calls();
  program.run();
  EXPECT_EQ(pretend_gpu().calls(), (std::vector<std::string>{"cuCtxSetCurrent", "cuGraphLaunch"}));
}

// Four inputs, the last of which is too large to go with the others.
std::unique_ptr<Graph> graph_of_feeds() {
  auto g = std::make_unique<Graph>();
  const Value a = g->input("a", f32, {300}), b = g->input("b", f32, {1}), c = g->input("c", f32, {300});
  const Value d = g->input("d", f32, {70, 300});
  g->fetch("y", a * b + c + sum(d, Ints{0}));
  return g;
}

Tensors feeds_of_run(int run) {
  const Dense a(300, run + 1), b(1, 0.5 * run), c(300, -run), d(21'000, 0.25 * run);
  return {{"a", Tensor::from(f32, {300}, a)},
          {"b", Tensor::from(f32, {1}, b)},
          {"c", Tensor::from(f32, {300}, c)},
          {"d", Tensor::from(f32, {70, 300}, d)}};
}

TEST(StreamsOnAGpu, SmallFeedsGoTogetherInFrontOfTheRun) {
  const auto g = graph_of_feeds();
  Program program(*g, on_gpu());
  program.run(feeds_of_run(0));
  const auto copies_of = [&](const std::vector<const char*>& names) {
    for (const char* name : names) program.set_input(program.input_index(name), feeds_of_run(1).at(name));
    pretend_gpu().forget_calls();
    program.run();
    const std::vector<std::string> calls = pretend_gpu().calls();
    EXPECT_EQ(calls.back(), "cuGraphLaunch");
    return std::count(calls.begin(), calls.end(), "cuMemcpyHtoDAsync");
  };
  EXPECT_EQ(copies_of({"a", "b", "c"}), 1);
  EXPECT_EQ(copies_of({"c", "b", "c"}), 1);
  EXPECT_EQ(copies_of({"a", "c"}), 2) << "b lies between them";
  EXPECT_EQ(copies_of({}), 0);
}

// The host goes on to feed and to run while the GPU is behind it.
TEST(StreamsOnAGpu, EveryRunHasWhatItWasFed) {
  const auto g = graph_of_feeds();
  Program program(*g, on_gpu()), on_cpu(*g);
  Graph of_kept;
  of_kept.fetch("kept", full(of_kept, {300}, 7));
  Program made(of_kept, on_gpu());
  made.run();
  const DeviceTensor kept = made.fetch_on_device(0);
  for (unsigned seed = 0; seed < 20; ++seed) {
    pretend_gpu().schedule(seed, seed % 4);
    std::vector<Fetched> later;
    std::vector<Dense> want;
    for (int run = 0; run < 6; ++run) {
      Tensors feeds = feeds_of_run(run);
      if (run % 3 == 1) feeds.erase("b"), feeds.erase("d");  // as they were
      for (const auto& [name, tensor] : feeds) {
        program.set_input(program.input_index(name), tensor), on_cpu.set_input(on_cpu.input_index(name), tensor);
      }
      if (run == 4) {  // in place of the host's value
        program.set_input(program.input_index("a"), kept);
        on_cpu.set_input(on_cpu.input_index("a"), kept.to_host());
      }
      program.run(), on_cpu.run();
      later.push_back(program.fetch_later(0));
      want.push_back(on_cpu.fetch(0).to_doubles());
    }
    for (std::size_t run = 0; run < want.size(); ++run) {
      EXPECT_EQ(later[run].value().to_doubles(), want[run]) << "run " << run << ", seed " << seed;
    }
  }
}

TEST(StreamsOnAGpu, ALargeFeedIsCopiedWhileARunIsUnderWay) {
  Graph g;
  build_training(g, 70'000);
  Parameters parameters(g, Device::cuda(0));
  Program program(g, on_gpu(), &parameters);
  pretend_gpu().schedule(1, 0);
  program.set_input(0, input(70'000, 0));
  program.run();
  program.wait();
  program.run();
  EXPECT_EQ(pretend_gpu().busy_streams(), 1u);
  program.set_input(0, input(70'000, 1));
  EXPECT_EQ(pretend_gpu().busy_streams(), 2u);
}

TEST(StreamsOnAGpu, EverythingIsEnqueuedInTheCallersStream) {
  void* library = dlopen(PAODING_PRETEND_FOLDER "/libcuda.so.1", RTLD_NOW);
  const auto create =
      reinterpret_cast<decltype(&::cuStreamCreateWithPriority)>(dlsym(library, "cuStreamCreateWithPriority"));
  CUstream mine = nullptr;
  Graph g;
  build_training(g, 8);
  Parameters parameters(g, Device::cuda(0)), expected(g, Device::cpu());
  ASSERT_EQ(create(&mine, 0, 0), CUDA_SUCCESS);
  CompileOptions options = on_gpu();
  options.stream = mine;
  Program program(g, options, &parameters), on_cpu(g, {}, &expected);
  Program bound = program.bind(g);
  pretend_gpu().schedule(3, 0);
  for (Program* each : {&program, &bound}) {
    each->set_input(0, input(8, 2));
    each->run();
    on_cpu.run({{"x", input(8, 2)}});
    EXPECT_EQ(pretend_gpu().busy_streams(), 1u);
    EXPECT_EQ(each->fetch(1).to_doubles(), on_cpu.fetch(1).to_doubles());
  }
}

TEST(StreamsOnAGpu, ManyBoundShapesFitTheLargestOnesMemoryAndTheBudgetOfTheirGraphs) {
  const auto make = [](std::int64_t length) {
    auto g = std::make_unique<Graph>();
    const Value w = g->parameter("w", f32, {128, 64}), xs = g->input("xs", f32, {length, 64});
    const StepResult made =
        scan({w}, {xs}, [](const Values& c, const Values& e) { return step({tanh(c[0] * 0.5 + e[0])}, {c[0]}); });
    assign(w, made.carries[0]);
    g->fetch("all", made.outputs[0]);
    return g;
  };
  const auto first = make(2);
  constexpr std::int64_t kShapes = 20;
  std::size_t bytes = 0;
  const auto run_all = [&](std::int64_t graph_bytes, const std::vector<std::int64_t>& lengths) {
    Parameters parameters(*first, Device::cuda(0)), expected(*first, Device::cpu());
    const std::size_t before = pretend_gpu().bytes_in_use();
    CompileOptions options = on_gpu(), cpu;
    options.graph_bytes = graph_bytes;
    Programs programs([&](const Programs::Key& key) { return make(key[0]); }, options, &parameters);
    Programs on_cpu([&](const Programs::Key& key) { return make(key[0]); }, cpu, &expected);
    for (int round = 0; round < 2; ++round) {
      for (const std::int64_t length : lengths) {
        const Tensors feeds{{"xs", Tensor::from(f32, {length, 64}, Dense(static_cast<std::size_t>(length) * 64, 0.1))}};
        const Dense got = programs.at({length}).run(feeds).at("all").to_doubles();
        const Dense want = on_cpu.at({length}).run(feeds).at("all").to_doubles();
        for (std::size_t i = 0; i < want.size(); i += 97) ASSERT_NEAR(got[i], want[i], 1e-5);
      }
    }
    EXPECT_LE(pretend_gpu().graph_bytes(), static_cast<std::size_t>(graph_bytes));
    bytes = pretend_gpu().bytes_in_use() - before - pretend_gpu().graph_bytes();
  };
  std::vector<std::int64_t> lengths;
  for (std::int64_t i = 0; i < kShapes; ++i) lengths.push_back(2 + i * 7 % kShapes);
  run_all(std::int64_t{1} << 30, {kShapes + 1});
  const std::size_t largest = bytes;
  pretend_gpu().forget_calls();
  run_all(std::int64_t{150} << 10, lengths);
  EXPECT_LE(bytes, largest * 3 / 2);
  const std::vector<std::string> calls = pretend_gpu().calls();
  EXPECT_GT(std::count(calls.begin(), calls.end(), "cuGraphInstantiate"), kShapes) << "none was made again";
}

// A loop of so many steps, a launch or more for each.
std::unique_ptr<Graph> loop_of(std::int64_t length) {
  auto g = std::make_unique<Graph>();
  const Value w = g->parameter("w", f32, {4, 4}), xs = g->input("xs", f32, {length, 4, 4});
  const StepResult made =
      scan({w}, {xs}, [](const Values& c, const Values& e) { return step({tanh(c[0] * 0.5 + e[0])}, {}); });
  g->fetch("last", made.carries[0]);
  return g;
}

TEST(StreamsOnAGpu, ARunIsCapturedInTimeThatGrowsWithItsLaunchesAlone) {
  const auto lists_of_nodes = [](std::int64_t length) {
    const auto g = loop_of(length);
    Parameters parameters(*g, Device::cuda(0));
    pretend_gpu().forget_calls();
    Program program(*g, on_gpu(), &parameters);
    const std::vector<std::string> calls = pretend_gpu().calls();
    EXPECT_GE(std::count(calls.begin(), calls.end(), "cuStreamGetCaptureInfo"), program.report().launches);
    return std::count(calls.begin(), calls.end(), "cuGraphGetNodes");
  };
  EXPECT_EQ(lists_of_nodes(4), lists_of_nodes(48)) << "each list is as long as the graph";
}

TEST(StreamsOnAGpu, AProgramWhoseGraphFindsNoMemoryLeavesTheOthersOfItsArenaAlone) {
  const auto small = loop_of(4), large = loop_of(400);
  Parameters parameters(*small, Device::cuda(0));
  Program before(*small, on_gpu(), &parameters);
  const std::size_t graphs = pretend_gpu().graph_bytes();
  const std::size_t room = pretend_gpu().bytes_in_use();
  bool failed = false;
  for (std::size_t more = 0; !failed && more < (4u << 20); more += 64 << 10) {  // from too little for the arena
    pretend_gpu().set_memory(room + more);
    const std::string error = message_of([&] { const Program bound = before.bind(*large); });
    failed = has(error, "cuGraphInstantiate");
  }
  pretend_gpu().set_memory(std::size_t{1} << 30);
  EXPECT_TRUE(failed) << "no limit lets the arena fit and the graph not";
  EXPECT_LE(pretend_gpu().graph_bytes(), graphs);
  Program after = before.bind(*large);
  EXPECT_GT(pretend_gpu().graph_bytes(), graphs);
  for (Program* each : {&before, &after}) {
    const std::int64_t length = each == &before ? 4 : 400;
    each->set_input(0, Tensor::from(f32, {length, 4, 4}, Dense(static_cast<std::size_t>(length) * 16, 0.1)));
    each->run();
    each->wait();
  }
}

TEST(StreamsOnAGpu, ALostDeviceIsToldWithTheProgramAndWhatToDo) {
  Graph g;
  build_training(g, 8);
  Parameters parameters(g, Device::cuda(0));
  Program program(g, on_gpu(), &parameters);
  program.set_input(0, input(8, 1));
  pretend_gpu().break_at("group", CUDA_ERROR_ILLEGAL_ADDRESS);
  program.run();
  const std::string error = message_of([&] { program.wait(); });
  EXPECT_TRUE(has(error, "program of sum, w: ")) << error;
  EXPECT_TRUE(has(error, "CUDA_ERROR_ILLEGAL_ADDRESS")) << error;
  EXPECT_TRUE(has(error, "go on from the last checkpoint")) << error;
  EXPECT_TRUE(has(message_of([&] { parameters.get("w"); }), "go on from the last checkpoint"));
  pretend_gpu().revive();
}

}  // namespace
}  // namespace paoding::testing_program
