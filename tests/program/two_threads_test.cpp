// SPDX-License-Identifier: Apache-2.0
// Programs that are compiled, run, trained and profiled in two threads at once. The results must be those of one
// thread; `make tsan` finds races.
#include <gtest/gtest.h>

#include <atomic>
#include <set>
#include <thread>

#include "paoding/nn.h"
#include "paoding/paoding.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

void in_two_threads(const std::function<void(int)>& work) {
  std::thread other([&] { work(1); });
  work(0);
  other.join();
}

TEST(TwoThreads, CompileAndRunAtOnce) {
  Graph g;
  build_lstm(g, {});
  const Feeds feeds = make_feeds(g, 1);
  const Tensors fed = to_tensors(g, feeds);
  const Tensors expected = Program(g).run(fed);
  in_two_threads([&](int) {
    for (int i = 0; i < 5; ++i) {
      Graph mine;
      build_lstm(mine, {});
      Program program(mine);
      for (int j = 0; j < 3; ++j) expect_same_bits(expected, program.run(fed));
    }
  });
}

TEST(TwoThreads, RunTwoProgramsOfOneGraph) {
  Graph g;
  build_lstm(g, {});
  const Tensors fed = to_tensors(g, make_feeds(g, 2));
  Program first(g), second = first.bind(g), third(g);
  const Tensors expected = first.run(fed);
  in_two_threads([&](int thread) {
    Program& mine = thread == 0 ? second : third;
    for (int i = 0; i < 20; ++i) expect_same_bits(expected, mine.run(fed));
  });
}

// Training and evaluating share parameters: a run sees the weights of one update, whole.
TEST(TwoThreads, TrainAndEvaluate) {
  Graph training, evaluation;
  const auto build = [](Graph& g) {
    const Value x = g.input("x", f32, {4, 3});
    const nn::Linear layer(g, "layer", 3, 2);
    const Value loss = sum(square(layer(x)));
    g.fetch("loss", loss);
    return loss;
  };
  minimize(build(training), Sgd{.learning_rate = 1e-3});
  build(evaluation);
  Parameters parameters(training, Device::cpu());
  Program train(training, {}, &parameters), evaluate(evaluation, {}, &parameters);
  const Tensors fed{{"x", Tensor::from(f32, {4, 3}, Dense{1, 2, 3, 4, 5, 6, 7, 8, 9, 1, 2, 3})}};
  constexpr int kRuns = 30;
  std::vector<double> trained, seen;
  in_two_threads([&](int thread) {
    for (int i = 0; i < kRuns; ++i) {
      const Tensors got = (thread == 0 ? train : evaluate).run(fed);
      (thread == 0 ? trained : seen).push_back(got.at("loss").to_doubles()[0]);
    }
  });
  trained.push_back(evaluate.run(fed).at("loss").to_doubles()[0]);
  const std::set<double> losses(trained.begin(), trained.end());
  for (double loss : seen) EXPECT_TRUE(losses.contains(loss)) << loss << " is the loss of no update";
  EXPECT_LT(trained.back(), trained.front());
}

TEST(TwoThreads, AreProfiledWhileTheyRun) {
  Graph g;
  build_lstm(g, {});
  const Tensors fed = to_tensors(g, make_feeds(g, 3));
  std::atomic<bool> is_done{false};
  std::atomic<int> runs{0};
  std::thread other([&] {
    Program program(g);
    while (!is_done) {
      program.run(fed);
      ++runs;
    }
  });
  Program program(g);
  for (int i = 0; i < 3; ++i) {
    Profiler profiler(State::cpu, Detail::phases);
    const int before = runs;
    do {
      program.run(fed);
    } while (runs < before + 2);
    const std::string report = profiler.stop();
    EXPECT_NE(report.find("matmul"), std::string::npos) << report;
    EXPECT_NE(report.find("thread0::"), std::string::npos) << report;
  }
  is_done = true;
  other.join();
}

}  // namespace
}  // namespace paoding::testing_program
