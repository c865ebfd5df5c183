// SPDX-License-Identifier: Apache-2.0
// Recordings of branches and loops without a length show the op, and in it the ops that it ran.
#include "cpu/parallel.h"
#include "paoding/paoding.h"
#include "profile/report.h"
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

// Rows as "name calls", two spaces deeper for rows inside another.
std::string rows_of(Program& program, const Tensors& feeds, Detail detail = Detail::op) {
  Profiler profiler(State::all, detail);
  program.run(feeds);
  profiler.stop();
  const profile::Measures measures =
      profile::measure(profiler.trace(), {.detail = detail, .sort = SortBy::none, .threads = profile::Threads::merged});
  const std::vector<std::string> wanted = {"branch", "while", "matmul", "topk"};
  std::string text;
  for (const profile::Row& row : measures.merged.at(0).rows) {
    const bool is_wanted = std::ranges::any_of(wanted, [&](const auto& name) { return row.name.starts_with(name); });
    if (!is_wanted) continue;
    text +=
        std::string(static_cast<std::size_t>(2 * row.depth), ' ') + row.name + " " + std::to_string(row.calls) + "\n";
  }
  return text;
}

Tensor number(double value) { return Tensor::from(i32, {}, Dense{value}); }

TEST(BranchReport, ShowsWhatTheBranchTakenRan) {
  Graph g;
  const Value which = g.input("which", i32, {}), x = g.input("x", f32, {4, 4});
  const Values made =
      switch_case(which, {[&] { return Values{matmul(matmul(x, x), x)}; }, [&] { return Values{topk(x, 4).values}; }});
  g.fetch("y", matmul(made[0], x));
  Program program(g);
  const Tensor matrix = Tensor::from(f32, {4, 4}, Dense(16, 0.5));
  EXPECT_EQ(rows_of(program, {{"which", number(0)}, {"x", matrix}}), "branch 1\n  matmul 2\nmatmul 1\n");
  EXPECT_EQ(rows_of(program, {{"which", number(1)}, {"x", matrix}}), "branch 1\n  topk 1\nmatmul 1\n");
}

TEST(BranchReport, ShowsAllTurnsOfALoopInIt) {
  Graph g;
  const Value turns = g.input("turns", i32, {}), x = g.input("x", f32, {4, 4});
  const Values made = while_loop(
      {full(g, {}, 0, i32), x}, [&](const Values& v) { return less(v[0], turns); },
      [&](const Values& v) {
        const Value next = cond(
            less(v[0], 1), [&] { return matmul(v[1], x); }, [&] { return v[1] * 2; });
        return Values{v[0] + 1, next};
      });
  g.fetch("y", made[1]);
  Program program(g);
  const Tensor matrix = Tensor::from(f32, {4, 4}, Dense(16, 0.5));
  EXPECT_EQ(rows_of(program, {{"turns", number(3)}, {"x", matrix}}),
            "while_start 1\nwhile 1\n  branch 3\n    matmul 1\n  while_carry 3\n");
  EXPECT_EQ(rows_of(program, {{"turns", number(0)}, {"x", matrix}}), "while_start 1\nwhile 1\n");
  EXPECT_EQ(program.run({{"turns", number(3)}, {"x", matrix}}).at("y").to_doubles(), Dense(16, 4.0));
}

TEST(BranchReport, ShowsGroupsThatRunTogetherAsOne) {
  if (max_threads() == 1) GTEST_SKIP() << "NOT CHECKED: one thread runs one group after the other";
  Graph g;
  for (int i = 0; i < 4; ++i) {
    const Value x = g.input("x" + std::to_string(i), f32, {300, 1000});
    g.fetch("y" + std::to_string(i), tanh(x) * 2.0 + static_cast<double>(i));  // +0 is nothing
  }
  Program program(g);
  Tensors feeds;
  for (int i = 0; i < 4; ++i) {
    feeds.emplace("x" + std::to_string(i), Tensor::from(f32, {300, 1000}, Dense(300'000, 0.5)));
  }
  Profiler profiler;
  program.run(feeds);
  const std::string report = profiler.stop();
  EXPECT_TRUE(has(report, "4 groups: tanh*4+mul*4+add*3")) << report;
}

}  // namespace
}  // namespace paoding::testing_program
