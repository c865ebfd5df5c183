// SPDX-License-Identifier: Apache-2.0
// Kernels of a captured run that do not touch each other's results share a launch: the same bits as one by one, and
// nothing that depends on another goes together with it. On the pretended GPU under many schedules.
#include "paoding/optimizer.h"
#include "tests/enqueued_runs.h"

namespace paoding::testing_program {
namespace {

// The program captured, and step by step, from the same parameters.
struct BothWays {
  explicit BothWays(const std::function<void(Graph&)>& make) {
    make(graph);
    CompileOptions options = on_gpu();
    together.emplace(graph, gpu_here());
    joined.emplace(graph, options, &*together);
    options.execution = Execution::stepwise;
    apart.emplace(graph, gpu_here());
    alone.emplace(graph, options, &*apart);
  }
  void run(const Tensors& feeds) {
    const Tensors got = joined->run(feeds), want = alone->run(feeds);
    for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).to_doubles(), tensor.to_doubles()) << name;
    for (const std::string& name : together->names()) {
      EXPECT_EQ(together->get(name).to_doubles(), apart->get(name).to_doubles()) << name;
    }
  }
  std::int64_t saved() const { return alone->report().launches - joined->report().launches; }

  Graph graph;
  std::optional<Parameters> together, apart;
  std::optional<Program> joined, alone;
};

std::string name_of(int i) { return "w" + std::to_string(i); }

TEST(JoinedLaunches, OfAnOptimizerAreOneForAllParametersOfAKind) {
  PD_SKIP_WITHOUT_A_GPU();
  constexpr int kParameters = 12;
  BothWays both([](Graph& g) {
    const Value x = g.input("x", f32, {16});
    std::vector<Value> terms;
    for (int i = 0; i < kParameters; ++i) {
      const Value w = g.parameter(name_of(i), i % 3 == 2 ? bf16 : f32, {16 * (i + 1), 16});
      terms.push_back(sum(square(cast(w, f32) * x)));
    }
    minimize(add_n(terms), Adam{});
  });
  EXPECT_GE(both.saved(), kParameters - 2);
  for (int i = 0; i < 3; ++i) both.run({{"x", input(16, 3 + i)}});
}

TEST(JoinedLaunches, OfSumsHaveWorkspacesOfTheirOwn) {
  PD_SKIP_WITHOUT_A_GPU();
  constexpr std::int64_t kElements = 400'000;  // by many CTAs
  BothWays both([](Graph& g) {
    for (int i = 0; i < 4; ++i) {
      const Value w = g.parameter(name_of(i), f32, {kElements + 4 * i});
      g.fetch("norm" + std::to_string(i), sum(square(w + 0.5)));
    }
  });
  EXPECT_GE(both.saved(), 3);
  both.run({});
}

TEST(JoinedLaunches, NeverHoldAKernelWithOneThatReadsItsResult) {
  PD_SKIP_WITHOUT_A_GPU();
  BothWays both([](Graph& g) {
    const Value x = reshape(g.input("x", f32, {64 * 48}), {64, 48});
    std::vector<Value> rows;
    for (int i = 0; i < 4; ++i) rows.push_back(sum(x * double(i + 1), Ints{0}));  // side by side
    const Value y = softmax(rows[0] + rows[1]), z = cumsum(y);                    // one behind the other
    g.fetch("y", y + rows[2]);
    g.fetch("z", z * rows[3]);
    g.fetch("all", sum(y * z));
  });
  for (int i = 0; i < 3; ++i) both.run({{"x", input(64 * 48, i)}});
}

TEST(JoinedLaunches, OfRunsThatFailWriteNothing) {
  PD_SKIP_WITHOUT_A_GPU();
  BothWays both([](Graph& g) {
    const Value at = g.input("at", i32, {});
    g.fetch("taken", gather(g.input("x", f32, {8}), at));
    for (int i = 0; i < 5; ++i) {
      const Value w = g.parameter(name_of(i), f32, {8 * i + 8});
      assign(w, w * 0.5 + 1.0);
    }
  });
  EXPECT_EQ(both.saved(), 4);
  const auto feeds = [](double at) { return Tensors{{"x", input(8, 3)}, {"at", Tensor::from(i32, {}, Dense{at})}}; };
  both.run(feeds(7));
  const Dense before = both.together->get("w3").to_doubles();
  EXPECT_NE(message_of([&] { both.joined->run(feeds(8)); }), "");
  EXPECT_EQ(both.together->get("w3").to_doubles(), before);
  both.run(feeds(2));
}

}  // namespace
}  // namespace paoding::testing_program
