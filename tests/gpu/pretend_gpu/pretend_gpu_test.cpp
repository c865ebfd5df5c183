// SPDX-License-Identifier: Apache-2.0
// The pretended GPU itself: programs give the same results there as on the CPU, in whatever order work runs.
#include "tests/gpu/pretend_gpu/pretend_program.h"

namespace paoding::testing_program {
namespace {

void build_simple(Graph& g) {
  const Value xs = g.input("xs", f32, {4, 3, 2}), table = g.input("table", f32, {5, 7});
  const Value ids = g.input("ids", i32, {6});
  const StepResult made = scan({full(g, {3, 2}, 0)}, {xs}, [&](const Values& c, const Values& e) {
    return step({tanh(c[0] + e[0])}, {c[0] * 2.0});
  });
  g.fetch("last", made.carries[0]);
  g.fetch("all", made.outputs[0]);
  g.fetch("rows", gather(table, ids));
  g.fetch("sum", sum(table, Ints{1}));
}

TEST(PretendGpu, GivesWhatACpuGivesWhateverRunsWhen) {
  Graph g;
  build_simple(g);
  auto feeds = to_tensors(g, make_feeds(g, 1));
  feeds["ids"] = Tensor::from(i32, {6}, Dense{0, 4, 2, 2, 1, 3});
  Program on_cpu(g);
  const Tensors expected = on_cpu.run(feeds);
  for (const Execution execution : {Execution::captured, Execution::stepwise}) {
    Program program(g, on_gpu(execution));
    for (unsigned seed = 0; seed < 4; ++seed) {
      pretend_gpu().schedule(seed, seed);
      const Tensors got = program.run(feeds);
      for (const auto& [name, tensor] : expected) {
        const Dense want = tensor.to_doubles(), have = got.at(name).to_doubles();
        ASSERT_EQ(have.size(), want.size());
        for (std::size_t i = 0; i < want.size(); ++i) EXPECT_NEAR(have[i], want[i], 1e-5) << name;
      }
    }
  }
}

TEST(PretendGpu, SharesLaunchesUnlessItIsNotTo) {
  Graph g;
  for (const std::string name : {"a", "b", "c"}) g.fetch("sum of " + name, sum(g.input(name, f32, {40, 30}), Ints{0}));
  const Tensors feeds = to_tensors(g, make_feeds(g, 1));
  CompileOptions options = on_gpu();
  Program together(g, options);
  options.fuses_launches = false;
  Program apart(g, options);
  EXPECT_EQ(together.report().launches, 1);
  EXPECT_EQ(apart.report().launches, 3);
  const Tensors want = together.run(feeds), got = apart.run(feeds);
  for (const auto& [name, tensor] : want) EXPECT_EQ(got.at(name).to_doubles(), tensor.to_doubles()) << name;
}

}  // namespace
}  // namespace paoding::testing_program
