// SPDX-License-Identifier: Apache-2.0
// Generated values that lie in memory before the first run, and roundings that are a part of a store.
#include <gtest/gtest.h>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "paoding/program.h"

namespace paoding {
namespace {

CompileOptions with_all_steps() { return {.disabled_passes = {"alias_views"}}; }

Tensor fetched(Program& program, const char* name) { return program.fetch(program.fetch_index(name)); }

TEST(Constants, SmallGeneratedValuesAreThereBeforeTheRun) {
  for (const DType dtype : {f32, f64, bf16, f16, i32, i64, u8, boolean}) {
    Graph g;
    g.fetch("y", full(g, {3, 2}, dtype == boolean ? 1 : is_float(dtype) ? 0.1 : 7, dtype));
    Program kept(g), made(g, with_all_steps());
    EXPECT_EQ(kept.report().launches, 0) << kept.plan_text();
    EXPECT_EQ(made.report().launches, 1) << made.plan_text();
    for (int i = 0; i < 2; ++i) {
      kept.run(), made.run();
      const Tensor a = fetched(kept, "y"), b = fetched(made, "y");
      ASSERT_EQ(a.type(), b.type());
      EXPECT_TRUE(std::equal(a.bytes(), a.bytes() + a.size_bytes(), b.bytes())) << to_string(a.type());
    }
  }
}

TEST(Constants, LargeOnesAreMadeInEveryRun) {
  Graph g;
  g.fetch("y", full(g, {1 << 15}, 2, f32));
  Program program(g);
  EXPECT_EQ(program.report().launches, 1) << program.plan_text();
  program.run();
  EXPECT_EQ(fetched(program, "y").to_doubles(), std::vector<double>(1 << 15, 2.0));
}

TEST(Constants, AlternativesOfAVariantAreToo) {
  Graph g;
  const Value x = g.input("x", f32, {2}), which = g.input("which", i32, {});
  g.fetch("y", switch_variant(which, {[&] { return Values{full(g, {3}, 1, i32)}; }, [&] { return Values{x * 2.0}; },
                                      [&] {
                                        return Values{full(g, {1, 2}, 5, f32)};
                                      }}));
  Program program(g);
  EXPECT_EQ(program.plan_text().find("fill"), std::string::npos) << program.plan_text();
  const auto run = [&](double index) {
    return program
        .run({{"x", Tensor::from(f32, {2}, std::vector<double>{3, 4})},
              {"which", Tensor::from(i32, {}, std::vector<double>{index})}})
        .at("y")
        .to_doubles();
  };
  for (int i = 0; i < 2; ++i) {
    EXPECT_EQ(run(0), (std::vector<double>{1, 1, 1}));
    EXPECT_EQ(run(1), (std::vector<double>{6, 8}));
    EXPECT_EQ(run(2), (std::vector<double>{5, 5}));
  }
}

// A loop writes its carries, so they cannot start in a constant's memory.
TEST(Constants, AreNotWhatALoopStartsIn) {
  Graph g;
  const Value zero = full(g, {2}, 0, f32), xs = g.input("xs", f32, {3, 2});
  const StepResult sums = scan({zero}, {xs}, [](const Values& c, const Values& e) { return step({c[0] + e[0]}, {}); });
  g.fetch("sum", sums.carries[0]);
  g.fetch("zero", zero);
  Program program(g);
  for (int i = 0; i < 2; ++i) {
    const auto got = program.run({{"xs", Tensor::from(f32, {3, 2}, std::vector<double>{1, 2, 3, 4, 5, 6})}});
    EXPECT_EQ(got.at("sum").to_doubles(), (std::vector<double>{9, 12}));
    EXPECT_EQ(got.at("zero").to_doubles(), (std::vector<double>{0, 0}));
  }
}

TEST(Roundings, OfSumsArePartsOfTheirStores) {
  Graph g;
  const Value x = g.input("x", bf16, {64, 48}), gamma = g.input("gamma", bf16, {48}),
              beta = g.input("beta", bf16, {48});
  const Value y = layer_norm(x, gamma, beta);
  const Values made = gradients(std::array{y}, std::array{x, gamma, beta}, std::array{g.input("dy", bf16, {64, 48})});
  g.fetch("dx", made[0]), g.fetch("dgamma", made[1]), g.fetch("dbeta", made[2]);
  Program program(g), apart(g, with_all_steps());
  EXPECT_EQ(program.report().launches, 1) << program.plan_text();
  EXPECT_EQ(apart.report().launches, 3) << apart.plan_text();
  std::map<std::string, Tensor> feeds;
  for (const char* name : {"x", "gamma", "beta", "dy"}) {
    const Type type = program.input_type(program.input_index(name));
    std::vector<double> values(static_cast<std::size_t>(type.shape.elements()));
    for (std::size_t i = 0; i < values.size(); ++i) values[i] = double((i * 37 + 11) % 29) / 29 - 0.4;
    feeds.emplace(name, Tensor::from(bf16, type.shape, values));
  }
  const auto a = program.run(feeds), b = apart.run(feeds);
  for (const auto& [name, tensor] : a) {
    EXPECT_EQ(tensor.to_doubles(), b.at(name).to_doubles()) << name;
  }
}

// A value that another step reads too stays f32.
TEST(Roundings, OfWhatSomebodyElseReadsAreSteps) {
  Graph g;
  const Value total = sum(g.input("x", f32, {8, 5}), std::array<std::int64_t, 1>{0});
  g.fetch("wide", total);
  g.fetch("narrow", cast(total, bf16));
  Program program(g);
  const auto got = program.run({{"x", Tensor::from(f32, {8, 5}, std::vector<double>(40, 0.1001))}});
  EXPECT_EQ(got.at("wide").dtype(), f32);
  EXPECT_EQ(got.at("narrow").to_doubles(), Tensor::from(bf16, {5}, got.at("wide").to_doubles()).to_doubles());
}

}  // namespace
}  // namespace paoding
