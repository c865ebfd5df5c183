// SPDX-License-Identifier: Apache-2.0
// Which values are recognized as the states that steps began with.
#include <gtest/gtest.h>

#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

struct PipelinedRecurrence {
  Value start, made, last;
};

PipelinedRecurrence recur(Graph& g, bool is_reverse) {
  const Value start = g.input("start", f32, {2, 3}), xs = g.input("xs", f32, {5, 2, 3});
  const StepResult made = scan(
      {start}, {xs},
      [](const Values& carry, const Values& element) {
        const Value next = tanh(carry[0] + element[0]);
        return step({next}, {next});
      },
      is_reverse);
  return {start, made.outputs[0], made.carries[0]};
}

Value entry(const Value& start) { return reshape(start, Shape{1, 2, 3}); }

TEST(StackCarries, AllButTheLastAfterTheStartAreTheCarries) {
  Graph g;
  const PipelinedRecurrence made = recur(g, false);
  const Value states = concat(std::array{entry(made.start), made.made}, 0);
  g.fetch("before", slice(states, 0, 0, 5) * 2.0);
  run_and_compare(g, {stack_carries, simplify_views});
  EXPECT_EQ(count_here(g, "concat"), 0);
  EXPECT_EQ(only(g, "scan").types.size(), 3u);
}

TEST(StackCarries, SoItIsBackwards) {
  Graph g;
  const PipelinedRecurrence made = recur(g, true);
  const Value states = concat(std::array{made.made, entry(made.start)}, 0);
  g.fetch("before", slice(states, 0, 1, 6) * 2.0);
  g.fetch("behind", slice(states, 0, 0, 5) * 3.0);
  run_and_compare(g, {stack_carries, simplify_views});
  EXPECT_EQ(count_here(g, "concat"), 0);
}

TEST(StackCarries, NotAfterAnotherStartNorAnotherPart) {
  Graph g;
  const PipelinedRecurrence made = recur(g, false);
  const Value other = entry(g.input("other", f32, {2, 3}));
  g.fetch("other", slice(concat(std::array{other, made.made}, 0), 0, 0, 5) * 2.0);
  g.fetch("part", slice(concat(std::array{entry(made.start), made.made}, 0), 0, 0, 4) * 2.0);
  run_and_compare(g, {stack_carries});
  EXPECT_EQ(count_here(g, "slice"), 2);
  EXPECT_EQ(only(g, "scan").types.size(), 2u);
}

}  // namespace
}  // namespace paoding
