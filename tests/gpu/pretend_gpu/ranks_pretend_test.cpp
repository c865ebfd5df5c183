// SPDX-License-Identifier: Apache-2.0
// Training on several GPUs that are not there, by a pretended NCCL: ranks are threads, collectives are captured into
// the graphs of steps in a stream of their own, and streams go on in an order that a seed decides. Results are those of
// the CPU with all rows, whatever the order.
#include <thread>

#include "paoding/distributed.h"
#include "paoding/nn.h"
#include "paoding/optimizer.h"
#include "paoding/profile.h"
#include "tests/gpu/pretend_gpu/pretend_program.h"
#include "tests/support/temporary_folder.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kAllRows = 16, kFeatures = 8;
constexpr int kSteps = 4;

Tensor rows_of(const char* name, std::int64_t width, int step, std::int64_t begin, std::int64_t count) {
  std::mt19937 random(static_cast<unsigned>(step) * 7 + (name[0] == 'x' ? 1 : 2));
  Dense all(static_cast<std::size_t>(kAllRows * width));
  for (double& value : all) value = static_cast<double>(random() % 64) / 32 - 1;
  const Dense mine(all.begin() + begin * width, all.begin() + (begin + count) * width);
  return Tensor::from(f32, {count, width}, mine);
}

struct Result {
  Dense losses;
  std::map<std::string, Dense> parameters;
  std::string schedule;
};

Result trained(int rank, int ranks, CompileOptions options) {
  const std::int64_t rows = kAllRows / ranks;
  Graph g;
  Value h = g.input("x", f32, {rows, kFeatures});
  const Value y = g.input("y", f32, {rows, 2});
  for (const char* name : {"a", "b", "c"}) h = tanh(nn::Linear(g, name, kFeatures, kFeatures)(h));
  const Value error = nn::Linear(g, "d", kFeatures, 2)(h) - y;
  MinimizeOptions minimized{.clip_norm = 0.5, .skip_nonfinite = true};
  minimized.data_parallel = options.communicator != nullptr;
  const TrainingStep step = minimize(mean(error * error), Adam{.learning_rate = 0.05}, minimized);
  g.fetch("loss", step.loss);
  const Parameters parameters(g, options.device, {.seed = 3});
  Program program(g, options, &parameters);
  Result result;
  for (int i = 0; i < kSteps; ++i) {
    const auto made = program.run(
        {{"x", rows_of("x", kFeatures, i, rank * rows, rows)}, {"y", rows_of("y", 2, i, rank * rows, rows)}});
    result.losses.push_back(made.at("loss").to_doubles()[0]);
  }
  for (const std::string& name : parameters.names()) result.parameters[name] = parameters.get(name).to_doubles();
  return result;
}

std::vector<std::string> on_ranks(int ranks, const std::function<void(int, std::shared_ptr<Communicator>)>& work) {
  const TemporaryFolder folder;
  std::vector<std::string> errors(static_cast<std::size_t>(ranks));
  std::vector<std::thread> threads;
  for (int rank = 0; rank < ranks; ++rank) {
    threads.emplace_back([&, rank] {
      try {
        RankPlace place;
        place.rank = rank, place.size = ranks, place.store = "file:" + folder.path().string() + "/meet";
        work(rank, connect_ranks(place, Device::cuda(0)));
      } catch (const std::exception& error) {
        errors[static_cast<std::size_t>(rank)] = error.what();
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  return errors;
}

TEST(RanksOnAGpu, TrainAsOneWithAllRowsInWhateverOrderStreamsGoOn) {
  const Result one = trained(0, 1, {});
  for (const int ranks : {2, 4}) {
    for (unsigned seed = 1; seed <= 6; ++seed) {
      pretend_gpu().schedule(seed, seed % 3 == 0 ? 0 : 3);
      std::vector<Result> results(static_cast<std::size_t>(ranks));
      const auto errors = on_ranks(ranks, [&](int rank, const std::shared_ptr<Communicator>& communicator) {
        CompileOptions options = on_gpu();
        options.communicator = communicator;
        options.bucket_bytes = 300;
        results[static_cast<std::size_t>(rank)] = trained(rank, ranks, options);
      });
      for (const std::string& error : errors) ASSERT_EQ(error, "") << ranks << " ranks, seed " << seed;
      for (const Result& each : results) {
        expect_close("losses", each.losses, one.losses, 1e-5);
        for (const auto& [name, values] : one.parameters) expect_close(name, each.parameters.at(name), values, 1e-4);
        EXPECT_EQ(each.parameters, results[0].parameters) << "all ranks have the same bits";
      }
    }
  }
}

TEST(RanksOnAGpu, EveryCollectiveHasItsValue) {
  const auto errors = on_ranks(3, [&](int rank, const std::shared_ptr<Communicator>& communicator) {
    EXPECT_EQ(communicator->name(), "nccl 2.28.9");
    for (const Execution execution : {Execution::captured, Execution::stepwise}) {
      Graph g;
      const Value x = g.input("x", f32, {6, 2}) * 2.0;
      g.fetch("sum", all_reduce(x));
      g.fetch("most", all_reduce(x, "max"));
      g.fetch("part", reduce_scatter(x, 3));
      g.fetch("all", all_gather(x, 3));
      g.fetch("root", broadcast(x, 1));
      CompileOptions options = on_gpu(execution);
      options.communicator = communicator;
      Program program(g, options);
      for (int run = 0; run < 3; ++run) {
        Dense values(12);
        for (std::size_t i = 0; i < 12; ++i) values[i] = static_cast<double>(i) + 100 * rank + run;
        const auto made = program.run({{"x", Tensor::from(f32, {6, 2}, values)}});
        for (std::size_t i = 0; i < 12; ++i) {
          const double first = 2 * (static_cast<double>(i) + run);
          EXPECT_EQ(made.at("sum").to_doubles()[i], 3 * first + 600);
          EXPECT_EQ(made.at("most").to_doubles()[i], first + 400);
          EXPECT_EQ(made.at("root").to_doubles()[i], first + 200);
          for (std::size_t r = 0; r < 3; ++r) {
            EXPECT_EQ(made.at("all").to_doubles()[12 * r + i], first + 200 * static_cast<double>(r));
          }
          if (i < 4) {
            EXPECT_EQ(made.at("part").to_doubles()[i], 3 * (first + 8.0 * rank) + 600);
          }
        }
      }
    }
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
}

// The streams of a graph are joined at its end, also when somebody records it.
TEST(RanksOnAGpu, AreRecorded) {
  pretend_gpu().schedule(5, 2);
  Profiler profiler;
  std::vector<Dense> losses(2);
  const auto errors = on_ranks(2, [&](int rank, const std::shared_ptr<Communicator>& communicator) {
    CompileOptions options = on_gpu();
    options.communicator = communicator;
    options.bucket_bytes = 300;
    losses[static_cast<std::size_t>(rank)] = trained(rank, 2, options).losses;
  });
  const std::string report = profiler.stop();
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  EXPECT_EQ(losses[0], losses[1]);
  expect_close("losses", losses[0], trained(0, 1, {}).losses, 1e-5);
  EXPECT_TRUE(has(report, "all_reduce")) << report;
}

}  // namespace
}  // namespace paoding::testing_program
