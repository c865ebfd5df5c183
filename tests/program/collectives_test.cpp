// SPDX-License-Identifier: Apache-2.0
// Collectives on ranks that are threads: values and gradients, one rank, errors, and mistakes that are found.
#include <gtest/gtest.h>

#include <array>

#include "runtime/compile.h"
#include "tests/support/program_check.h"
#include "tests/support/thread_ranks.h"

namespace paoding::testing_program {
namespace {

using BuildRanks = std::function<void(Graph&)>;

// The rank's own numbers.
Dense numbers(std::int64_t count, int rank, unsigned seed = 1) {
  std::mt19937 random(seed * 100 + static_cast<unsigned>(rank));
  Dense values(static_cast<std::size_t>(count));
  for (double& value : values) value = static_cast<double>(random() % 64) / 8 - 4;
  return values;
}

CompileOptions on(const std::shared_ptr<Communicator>& communicator) {
  CompileOptions options;
  options.communicator = communicator;
  return options;
}

// Fetch "y" of every rank, where input "x" has the rank's numbers.
std::vector<Dense> results(int ranks, const BuildRanks& build, unsigned seed = 3) {
  ThreadRanks all(ranks, seed);
  std::vector<Dense> made(static_cast<std::size_t>(ranks));
  const auto errors = all.run([&](int rank, const std::shared_ptr<Communicator>& communicator) {
    Graph graph;
    build(graph);
    const Type type = graph.find("x").type();
    Program program(graph, on(communicator));
    const Tensor x = Tensor::from(type.dtype, type.shape, numbers(type.shape.elements(), rank));
    made[static_cast<std::size_t>(rank)] = program.run({{"x", x}}).at("y").to_doubles();
  });
  for (const std::string& error : errors) EXPECT_EQ(error, "");
  return made;
}

class Collectives : public ::testing::TestWithParam<int> {};
INSTANTIATE_TEST_SUITE_P(Ranks, Collectives, ::testing::Values(1, 2, 3, 4, 8));

TEST_P(Collectives, AllReduceIsTheSumMeanMaxOrMinOnEveryRank) {
  const int ranks = GetParam();
  for (const DType dtype : {f64, f32, bf16, f16, i64, i32}) {
    for (const std::string reduction : {"sum", "mean", "max", "min"}) {
      if (reduction == "mean" && !is_float(dtype)) continue;
      const auto got = results(ranks, [&](Graph& g) {
        g.fetch("y", all_reduce(g.input("x", dtype, {5, 3}), reduction));
      });
      for (std::size_t i = 0; i < 15; ++i) {
        double expected = rounded(Type{dtype, {15}}, numbers(15, 0))[i];
        for (int rank = 1; rank < ranks; ++rank) {
          const double other = rounded(Type{dtype, {15}}, numbers(15, rank))[i];
          expected = reduction == "max"   ? std::max(expected, other)
                     : reduction == "min" ? std::min(expected, other)
                                          : expected + other;
        }
        if (reduction == "mean") expected /= ranks;
        for (const Dense& each : got) EXPECT_NEAR(each[i], expected, 8 * epsilon(dtype) * 8) << reduction;
      }
    }
  }
}

TEST_P(Collectives, PartsAreScatteredAndGatheredInTheOrderOfTheRanks) {
  const int ranks = GetParam();
  const std::int64_t part = 6;
  const auto scattered = results(ranks, [&](Graph& g) {
    g.fetch("y", reduce_scatter(g.input("x", f32, {2 * ranks, 3}), ranks));
  });
  const auto gathered = results(ranks, [&](Graph& g) { g.fetch("y", all_gather(g.input("x", f32, {2, 3}), ranks)); });
  for (int rank = 0; rank < ranks; ++rank) {
    const auto at = static_cast<std::size_t>(rank);
    ASSERT_EQ(scattered[at].size(), 6u);
    ASSERT_EQ(gathered[at].size(), static_cast<std::size_t>(part * ranks));
    for (std::int64_t i = 0; i < part; ++i) {
      double sum = 0;
      for (int other = 0; other < ranks; ++other) {
        sum += numbers(part * ranks, other)[static_cast<std::size_t>(rank * part + i)];
        EXPECT_EQ(gathered[at][static_cast<std::size_t>(other * part + i)],
                  numbers(part, other)[static_cast<std::size_t>(i)]);
      }
      EXPECT_EQ(scattered[at][static_cast<std::size_t>(i)], sum);
    }
  }
}

TEST_P(Collectives, BroadcastGivesTheRootsValueAndIsRankTellsThem) {
  const int ranks = GetParam(), root = ranks - 1;
  const auto got = results(ranks, [&](Graph& g) { g.fetch("y", broadcast(g.input("x", f32, {7}), root)); });
  for (const Dense& each : got) EXPECT_EQ(each, numbers(7, root));
  const auto told = results(
      ranks, [&](Graph& g) { g.fetch("y", select(is_rank(g, root), g.input("x", f32, {2}), full(g, {2}, 100, f32))); });
  for (int rank = 0; rank < ranks; ++rank) {
    EXPECT_EQ(told[static_cast<std::size_t>(rank)], rank == root ? numbers(2, rank) : Dense({100, 100}));
  }
}

// Compares the gradient of the sum of the ranks' losses, each of which depends on all ranks' x, with differences.
TEST_P(Collectives, GradientsAreThoseOfTheSumOfTheRanksLosses) {
  const int ranks = GetParam();
  const std::map<std::string, std::function<Value(const Value&)>> ops = {
      {"sum", [](const Value& x) { return all_reduce(x); }},
      {"mean", [](const Value& x) { return all_reduce(x, "mean"); }},
      {"max", [](const Value& x) { return all_reduce(x, "max"); }},
      {"scatter", [&](const Value& x) { return reduce_scatter(x, ranks); }},
      {"scattered mean", [&](const Value& x) { return reduce_scatter(x, ranks, "mean"); }},
      {"gather", [&](const Value& x) { return all_gather(x, ranks); }},
      {"broadcast", [](const Value& x) { return broadcast(x, 0); }},
  };
  const std::int64_t count = 2 * ranks;
  for (const auto& [name, op] : ops) {
    const auto run = [&](const std::vector<Dense>& xs, std::vector<Dense>* grads) {
      ThreadRanks all(ranks, 5);
      std::vector<double> losses(static_cast<std::size_t>(ranks));
      const auto errors = all.run([&](int rank, const std::shared_ptr<Communicator>& communicator) {
        const auto at = static_cast<std::size_t>(rank);
        Graph g;
        const Value x = g.input("x", f64, {count}), y = op(x);
        // Weights differ from rank to rank, so that a rank gets back another gradient than its own.
        const Value loss = sum(sin(y) * (y * 0.25 + static_cast<double>(rank + 1)));
        g.fetch("loss", loss);
        g.fetch("dx", gradients(std::array{loss}, std::array{x})[0]);
        const auto made = Program(g, on(communicator)).run({{"x", Tensor::from(f64, {count}, xs[at])}});
        losses[at] = made.at("loss").to_doubles()[0];
        if (grads != nullptr) (*grads)[at] = made.at("dx").to_doubles();
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
      double sum = 0;
      for (const double loss : losses) sum += loss;
      return sum;
    };
    std::vector<Dense> xs, grads(static_cast<std::size_t>(ranks));
    for (int rank = 0; rank < ranks; ++rank) {
      xs.push_back(numbers(count, rank, 9));
      for (double& x : xs.back()) x += 0.01 * rank;  // no two are the greatest
    }
    run(xs, &grads);
    constexpr double kStep = 1e-5;
    for (int rank : {0, ranks - 1}) {
      for (const std::size_t i : {std::size_t{0}, static_cast<std::size_t>(count) - 1}) {
        auto more = xs, less = xs;
        more[static_cast<std::size_t>(rank)][i] += kStep;
        less[static_cast<std::size_t>(rank)][i] -= kStep;
        const double expected = (run(more, nullptr) - run(less, nullptr)) / (2 * kStep);
        EXPECT_NEAR(grads[static_cast<std::size_t>(rank)][i], expected, 1e-6 * std::max(1.0, std::fabs(expected)))
            << name << ", rank " << rank << ", element " << i;
      }
    }
  }
}

TEST(CollectivePrograms, OfOneRankAreGoneFromThePlan) {
  const auto plan_of = [](bool has_ops) {
    Graph g;
    const Value x = g.input("x", f32, {64, 32}), w = g.parameter("w", f32, {32, 16});
    Value y = matmul(x, w);
    if (has_ops) y = all_gather(reduce_scatter(all_reduce(broadcast(y, 0), "mean"), 1), 1);
    g.fetch("y", tanh(y));
    ThreadRanks one(1);
    return to_string(
        compile_plan(g, has_ops ? on(one.rank(0)) : CompileOptions(), std::make_shared<const Target>()).plan);
  };
  EXPECT_EQ(plan_of(true), plan_of(false));
}

TEST(CollectivePrograms, SayWhatIsWrong) {
  const auto message = [](const BuildRanks& build, bool has_ranks = true, const Device& device = Device::cpu()) {
    ThreadRanks all(2, 0, device);
    return message_of([&] {
      Graph g;
      build(g);
      Program program(g, has_ranks ? on(all.rank(0)) : CompileOptions());
    });
  };
  const BuildRanks reduces = [](Graph& g) {
    const Scope scope(g, "head");
    g.fetch("y", all_reduce(g.input("x", f32, {4})));
  };
  const std::string without = message(reduces, false);
  EXPECT_TRUE(has(without, "all_reduce: the program has no communicator")) << without;
  EXPECT_TRUE(has(without, "(in head)") && has(without, "CompileOptions::communicator")) << without;
  const std::string elsewhere = message(reduces, true, Device::cuda());
  EXPECT_TRUE(has(elsewhere, "the communicator (threads) works on memory of cuda:0")) << elsewhere;
  const auto failing = [&](const std::function<Value(const Value&)>& op, DType dtype, const Shape& shape) {
    return message([&](Graph& g) { g.fetch("y", op(g.input("x", dtype, shape))); });
  };
  for (const auto& [got, part] : {
           std::pair(failing([](const Value& x) { return all_reduce(x, "product"); }, f32, {2}),
                     "all_reduce: reduction = 'product', needs to be sum, mean, max or min"),
           std::pair(failing([](const Value& x) { return all_reduce(x); }, boolean, {2}), "all_reduce: x is bool"),
           std::pair(failing([](const Value& x) { return all_reduce(x, "mean"); }, i64, {2}),
                     "all_reduce: x is i64[2], of which there is no mean"),
           std::pair(failing([](const Value& x) { return reduce_scatter(x, 2); }, f32, {3}),
                     "reduce_scatter: x is f32[3], whose axis 0 is no multiple of 2 ranks"),
           std::pair(failing([](const Value& x) { return reduce_scatter(x, 2); }, f32, {}),
                     "reduce_scatter: x is a scalar"),
           std::pair(failing([](const Value& x) { return all_gather(x, 0); }, f32, {3}), "all_gather: ranks = 0"),
           std::pair(failing([](const Value& x) { return all_gather(x, 3); }, f32, {3}),
                     "all_gather: ranks = 3, but there are 2"),
           std::pair(failing([](const Value& x) { return broadcast(x, 2); }, f32, {3}),
                     "broadcast: root = 2, but there are 2 ranks"),
           std::pair(failing([](const Value& x) { return broadcast(x, -1); }, f32, {3}), "broadcast: root = -1"),
       }) {
    EXPECT_TRUE(has(got, part)) << got;
  }
}

// One rank reduces two values the other way round: that is said, with both sides, and nobody waits for ever.
TEST(CollectivePrograms, AnotherOrderOnOneRankIsFound) {
  for (unsigned seed = 1; seed < 6; ++seed) {
    ThreadRanks all(4, seed);
    const auto errors = all.run([&](int rank, const std::shared_ptr<Communicator>& communicator) {
      float a[3] = {}, b[5] = {};
      for (int turn = 0; turn < 2; ++turn) {
        const bool is_first = (turn == 0) != (rank == 2);
        communicator->all_reduce(is_first ? a : b, is_first ? a : b, is_first ? 3 : 5, f32, Reduction::sum, nullptr);
      }
    });
    for (const std::string& error : errors) {
      EXPECT_TRUE(has(error, "collective 0 is all_reduce f32 sum of ")) << error;
      EXPECT_TRUE(has(error, " on rank 2")) << error;
    }
  }
}

// A rank that throws, or whose library reports an error later: the others end, with its name.
TEST(CollectivePrograms, ARankThatIsGoneEndsTheOthersAndNoParameterIsWritten) {
  for (const bool is_error : {false, true}) {
    ThreadRanks all(4, 7);
    if (is_error) all.fail_at(1, 1);
    std::vector<double> kept(4);
    const auto errors = all.run([&](int rank, const std::shared_ptr<Communicator>& communicator) {
      Graph g;
      const Value x = g.input("x", f32, {}), w = g.parameter("w", f32, {});
      const Value once = all_reduce(x + w), twice = all_reduce(once * once, "max");
      assign(w, twice);
      const Parameters parameters(g);
      Program program(g, on(communicator), &parameters);
      program.set_input(0, Tensor::from(f32, {}, {1.0 + rank}));
      if (!is_error && rank == 1) throw Error(ErrorKind::file, "its disk is full");
      try {
        program.run();
      } catch (...) {
        kept[static_cast<std::size_t>(rank)] = parameters.get("w").to_doubles()[0];
        throw;
      }
    });
    for (int rank = 0; rank < 4; ++rank) {
      const std::string& error = errors[static_cast<std::size_t>(rank)];
      if (rank != 1) {
        EXPECT_TRUE(has(error, "rank 1 is gone: ")) << error;
      }
      EXPECT_TRUE(has(error, is_error ? "a planted error in collective 1" : "its disk is full")) << error;
      EXPECT_EQ(kept[static_cast<std::size_t>(rank)], 0);
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
