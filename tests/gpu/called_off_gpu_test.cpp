// SPDX-License-Identifier: Apache-2.0
// Long runs on a GPU are called off while they are under way, within a second, and write nothing; of many short ones no
// more are under way than end by themselves. Programs on the CPU give the right values.
#include <algorithm>
#include <chrono>
#include <thread>

#include "paoding/cancellation.h"
#include "tests/gpu/enqueued_runs.h"
#include "tests/support/thread_sanitizer.h"

namespace paoding::testing_program {
namespace {

// Calls `work` in a scope that is called off 20 ms later. Its error, and how long it went on after that.
std::pair<std::string, double> called_off(const std::function<void()>& work) {
  Cancellation stop;
  const CancelScope scope(stop);
  std::chrono::steady_clock::time_point at;
  std::thread caller([&] {
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
    at = std::chrono::steady_clock::now();
    stop.cancel();
  });
  const std::string error = message_of(work);
  const auto end = std::chrono::steady_clock::now();
  caller.join();
  return {error, std::chrono::duration<double>(end - at).count()};
}

// Runs well, is called off and leaves w as it was, and goes on as if it had not been.
void check(const Graph& g, const Tensors& feeds, std::int64_t least, std::int64_t most) {
  Parameters parameters(g, gpu_here()), expected(g, Device::cpu());
  CompileOptions options = on_gpu(), cpu;
  options.disabled_passes = cpu.disabled_passes = pass_names();
  Program program(g, options, &parameters), on_cpu(g, cpu, &expected);
  EXPECT_GE(program.report().launches, least);
  EXPECT_LE(program.report().launches, most);
  const auto start = std::chrono::steady_clock::now();
  program.run(feeds);
  const double whole = std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  on_cpu.run(feeds);
  const auto before = parameters.get("w").to_doubles();
  EXPECT_EQ(before, expected.get("w").to_doubles());
  const auto [error, seconds] = called_off([&] { program.run(feeds); });
  EXPECT_TRUE(has(error, "cancelled")) << error;
  EXPECT_LT(seconds, std::max(1.0, whole / 2));  // on a GPU that is not there it takes as long as the machine is busy
  EXPECT_EQ(parameters.get("w").to_doubles(), before);
  program.run(feeds), on_cpu.run(feeds);
  EXPECT_EQ(parameters.get("w").to_doubles(), expected.get("w").to_doubles());
}

TEST(CalledOff, OfManyLaunchesIsARunThatIsUnderWay) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  const Value w = g.parameter("w", f32, {4}), xs = g.input("xs", f32, {kLongRun, 4});
  const StepResult made =
      scan({w}, {xs}, [](const Values& c, const Values& e) { return step({c[0] * 0.5 + e[0]}, {}); });
  assign(w, made.carries[0]);
  g.fetch("first", sum(w));
  check(g, {{"xs", Tensor::from(f32, {kLongRun, 4}, Dense(static_cast<std::size_t>(kLongRun) * 4, 0.25))}}, 16'385,
        1'000'000);
}

#ifndef PAODING_PRETEND_FOLDER
// A step moves 1.5 GB; the whole takes more than a second.
TEST(CalledOff, OfFewLaunchesThatAreLongIsARunThatIsUnderWay) {
  PD_SKIP_WITHOUT_A_GPU();
  constexpr std::int64_t kElements = std::int64_t{1} << 27;
  Graph g;
  const Value w = g.parameter("w", f32, {8}), x = expand(g.input("x", f32, {1}), Shape{kElements});
  const StepResult made = scan({x * 2.0}, {g.input("xs", f32, {4'000})},
                               [&](const Values& c, const Values& e) { return step({c[0] * 0.5 + e[0]}, {}); });
  assign(w, w * 0.5 + slice(made.carries[0], 0, 0, 8));
  Parameters parameters(g, gpu_here()), untouched(g, gpu_here());
  Program program(g, on_gpu(), &parameters), other(g, on_gpu(), &untouched);
  const Tensors feeds{{"x", input(1, 1)}, {"xs", input(4'000, 2)}};
  EXPECT_LT(program.report().launches, 16'384);
  program.run(feeds), other.run(feeds);
  const auto before = parameters.get("w").to_doubles();
  EXPECT_EQ(before, untouched.get("w").to_doubles());
  const auto [error, seconds] = called_off([&] {
    program.run(feeds);
    program.wait();
  });
  EXPECT_TRUE(has(error, "cancelled")) << error;
  EXPECT_LT(seconds, kThreadSanitizer ? 10.0 : 1.0);
  EXPECT_EQ(parameters.get("w").to_doubles(), before);
  program.run(feeds), other.run(feeds);
  EXPECT_EQ(parameters.get("w").to_doubles(), untouched.get("w").to_doubles());
}
#endif

TEST(CalledOff, OfManyRunsOneAfterTheOtherIsTheOneThatEndsByItself) {
  PD_SKIP_WITHOUT_A_GPU();
  Graph g;
  build_training(g, 64);
  Parameters parameters(g, gpu_here());
  Program program(g, on_gpu(), &parameters);
  program.set_input(0, input(64, 1));
  program.run();
  const Cancellation stop;
  const CancelScope scope(stop);
  std::size_t most = 0;
  for (int run = 0; run < 100'000; ++run) {
    program.run();
#ifdef PAODING_PRETEND_FOLDER
    most = std::max(most, pretend_gpu().waiting());
#endif
  }
  EXPECT_LT(most, 200'000u);
  stop.cancel();
  EXPECT_TRUE(has(message_of([&] { program.run(); }), "cancelled"));
}

}  // namespace
}  // namespace paoding::testing_program
