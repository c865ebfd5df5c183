// SPDX-License-Identifier: Apache-2.0
#include "cpu/parallel.h"
#include "ops/index/check_indices.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// The message of the error that `run` throws; empty when it throws nothing.
template <class Run>
std::string error_of(Run run) {
  try {
    run();
  } catch (const Error& error) {
    EXPECT_EQ(error.kind(), ErrorKind::argument);
    return error.what();
  }
  return "";
}

TEST(Gather, OfAnIndexOutOfRangeFailsTheRunAndNotTheNext) {
  Graph g;
  g.scope = "encoder";
  const Value table = g.input("table", f32, {4, 2}), ids = g.input("ids", i32, {2, 3});
  g.fetch("y", embedding(table, ids));
  Program program(g, {});
  const Tensor rows = Tensor::from(f32, {4, 2}, Dense{0, 1, 2, 3, 4, 5, 6, 7});
  const auto run = [&](const Dense& values) {
    return program.run({{"table", rows}, {"ids", Tensor::from(i32, {2, 3}, values)}}).at("y").to_doubles();
  };
  EXPECT_EQ(error_of([&] {
              run({0, 1, 2, 3, 4, -1});
            }),
            "gather: indices[1, 1] = 4, but axis 0 has extent 4 (in encoder)");
  EXPECT_EQ(error_of([&] {
              run({0, -1, 2, 3, 0, 0});
            }),
            "gather: indices[0, 1] = -1, but axis 0 has extent 4 (in encoder)");
  EXPECT_EQ(run({3, 0, 1, 2, 2, 0}), (Dense{6, 7, 0, 1, 2, 3, 4, 5, 4, 5, 0, 1}));
}

TEST(Scatter, OfAnIndexOutOfRangeFailsTheRun) {
  for (const bool by_elements : {false, true}) {
    Graph g;
    const Value ids = g.input("ids", i64, {3}), updates = g.input("updates", f32, {3});
    g.fetch("y", by_elements ? scatter_add_elements(ids, updates, 0, 5) : scatter_add(ids, updates, 0, 5));
    Program program(g, {});
    const auto run = [&](const Dense& values) {
      return program.run({{"ids", Tensor::from(i64, {3}, values)}, {"updates", Tensor::from(f32, {3}, Dense{1, 2, 4})}})
          .at("y")
          .to_doubles();
    };
    const std::string message = error_of([&] { run({0, 5, 1}); });
    EXPECT_NE(message.find("indices[1] = 5, but axis 0 has extent 5"), std::string::npos) << message;
    EXPECT_EQ(run({4, 1, 4}), (Dense{0, 2, 0, 0, 5}));
  }
}

TEST(CheckIndices, GivesLegalOnesAndFailsARunWithAnother) {
  for (const DType dtype : {i32, i64}) {
    Graph g;
    const Value ids = g.input("ids", dtype, {2, 2});
    {
      const Scope scope(g, "lookup");
      g.fetch("y", check_indices(ids, 5, {.what = "rows"}) * 2.0);
      g.fetch("z", check_indices(ids, 7, {.may_be_negative = true, .what = "others"}) * 2.0);
    }
    Program program(g);
    const auto run = [&](const Dense& values, const char* name) {
      return program.run({{"ids", Tensor::from(dtype, {2, 2}, values)}}).at(name).to_doubles();
    };
    EXPECT_EQ(run({0, 5, 1, 2}, "y"), (Dense{0, 10, 2, 4}));
    EXPECT_EQ(error_of([&] { run({0, 1, 6, 9}, "y"); }), "rows[1, 0] = 6, but from 0 to 5 are legal (in lookup)");
    EXPECT_EQ(error_of([&] { run({0, -3, 1, 2}, "y"); }), "rows[0, 1] = -3, but from 0 to 5 are legal (in lookup)");
    Program other(g, {.fetches = {"z"}});
    const auto others = [&](const Dense& values) {
      return other.run({{"ids", Tensor::from(dtype, {2, 2}, values)}}).at("z").to_doubles();
    };
    EXPECT_EQ(others({-3, 7, 0, 1}), (Dense{-6, 14, 0, 2}));
    EXPECT_EQ(error_of([&] {
                others({-3, 8, 0, 1});
              }),
              "others[0, 1] = 8, but from 0 to 7 are legal, and negative numbers for what does not count (in lookup)");
  }
}

// Large enough for several threads; against plain loops, and bit for bit the same with one thread.
TEST(Embedding, AndItsGradientAreTheSameForAnyNumberOfThreads) {
  constexpr std::int64_t kRows = 3000, kWidth = 100, kIds = 5000;
  for (const DType dtype : {f32, bf16}) {
    Graph g;
    const Value table = g.input("table", dtype, {kRows, kWidth}), ids = g.input("ids", i64, {kIds});
    const Value dy = g.input("dy", dtype, {kIds, kWidth});
    const Value y = embedding(table, ids);
    g.fetch("y", y);
    g.fetch("dtable", gradients(std::array{y}, std::array{table}, std::array{dy})[0]);
    Feeds feeds = make_feeds(g, 3);
    std::mt19937 random(5);
    for (double& id : feeds["ids"]) id = static_cast<double>(random() % 4 == 0 ? 7 : random() % kRows);
    Program program(g, {});
    const Tensors got = program.run(to_tensors(g, feeds));
    Dense expected(kRows * kWidth, 0.0);
    const Dense gathered = got.at("y").to_doubles();
    std::int64_t wrong = 0;
    for (std::size_t i = 0; i < kIds; ++i) {
      const auto row = static_cast<std::size_t>(feeds["ids"][i]);
      for (std::size_t k = 0; k < kWidth; ++k) {
        wrong += gathered[i * kWidth + k] != feeds["table"][row * kWidth + k];
        expected[row * kWidth + k] += feeds["dy"][i * kWidth + k];
      }
    }
    EXPECT_EQ(wrong, 0);
    // 1,250 gradients meet in row 7: summed in bf16 they would be off by several percent.
    expect_close("dtable", got.at("dtable").to_doubles(), expected, dtype == f32 ? 1e-5 : 0.004);
    const SerialScope serial(true);
    Program alone(g, {});
    expect_same_bits(got, alone.run(to_tensors(g, feeds)));
  }
}

TEST(Gather, OfRowsInStridesNeedsNoCopyOfTheTable) {
  Graph g;
  const Value table = g.input("table", f32, {6, 2, 5}), ids = g.input("ids", i32, {4});
  g.fetch("y", gather(flip(table, Ints{0}), ids));
  const Feeds feeds = make_feeds(g, 3);
  Program program(g, {});
  expect_close("y", program.run(to_tensors(g, feeds)).at("y").to_doubles(), evaluate_graph(g, feeds).at("y"), 0);
  EXPECT_EQ(program.report().launches, 1) << program.plan_text();
}

TEST(Sort, PutsNaNAboveEveryNumberAndKeepsEqualOnesInOrder) {
  const double nan = std::nan(""), inf = std::numeric_limits<double>::infinity();
  const Dense values{2, nan, -0.0, inf, 0.0, -inf, 2, -3};
  for (const DType dtype : {f32, f64, bf16, f16}) {
    Graph graph;
    const Value a = graph.input("a", dtype, {8});
    const Sorted up = sort(a), down = sort(a, 0, true), most = topk(a, 3), least = topk(a, 4, 0, false);
    graph.fetch("up", up.indices);
    graph.fetch("down", down.indices);
    graph.fetch("most", most.indices);
    graph.fetch("least", least.indices);
    graph.fetch("values", most.values);
    Program program(graph, {});
    const Tensors got = program.run({{"a", Tensor::from(dtype, {8}, values)}});
    EXPECT_EQ(got.at("up").to_doubles(), (Dense{5, 7, 2, 4, 0, 6, 3, 1}));
    EXPECT_EQ(got.at("down").to_doubles(), (Dense{1, 3, 0, 6, 2, 4, 7, 5}));
    EXPECT_EQ(got.at("most").to_doubles(), (Dense{1, 3, 0}));
    EXPECT_EQ(got.at("least").to_doubles(), (Dense{5, 7, 2, 4}));
    EXPECT_TRUE(std::isnan(got.at("values").to_doubles()[0]));
    EXPECT_EQ(got.at("values").to_doubles()[1], inf);
  }
}

TEST(Cumsum, OfAMillionElementsIsExactToARounding) {
  constexpr std::int64_t kCount = 1'000'000;
  Graph g;
  const Value a = g.input("a", f32, {kCount});
  g.fetch("y", cumsum(a));
  Program program(g, {});
  const Dense got = program.run({{"a", Tensor::from(f32, {kCount}, Dense(kCount, 0.1))}}).at("y").to_doubles();
  const double step = static_cast<double>(0.1f);
  double worst = 0;
  for (std::size_t i = 0; i < got.size(); ++i) {
    const double exact = step * static_cast<double>(i + 1);
    worst = std::max(worst, std::fabs(got[i] - exact) / exact);
  }
  EXPECT_LT(worst, 1e-7);
}

TEST(GatherInAScan, LeavesTheLoopWhenOnlyItsIndicesChange) {
  Graph g;
  const Value table = g.input("table", f32, {6, 4}), ids = g.input("ids", i64, {5, 2}), w = g.input("w", f32, {4, 4});
  const StepResult made = scan({zeros(g, {2, 4})}, {ids}, [&](const Values& carry, const Values& element) {
    const Value next = tanh(carry[0] + matmul(embedding(table, element[0]), w));
    return step({next}, {next});
  });
  g.fetch("y", made.outputs[0]);
  const Values grads = gradients(std::array{sum(made.outputs[0])}, std::array{table, w});
  g.fetch("dtable", grads[0]);
  g.fetch("dw", grads[1]);
  const Feeds feeds = make_feeds(g, 3);
  std::string text;
  CompileOptions options;
  options.after_pass = [&](const std::string&, const Graph& graph) { text = to_text(graph); };
  Program program(g, options);
  const Tensors got = program.run(to_tensors(g, feeds));
  for (const auto& [name, values] : evaluate_graph(g, feeds)) {
    expect_close(name, got.at(name).to_doubles(), values, 1e-5);
  }
  EXPECT_LT(text.find("gather("), text.find("scan(")) << text;
}

}  // namespace
}  // namespace paoding::testing_program
