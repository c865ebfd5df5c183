// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

Value placed(const Value& a, std::int64_t before, std::int64_t after) {
  return pad(a, Ints{0, before}, Ints{0, after});
}

struct SumGradients : testing::Test {
  Graph g;
  Value a = g.input("a", f32, {2, 3}), b = g.input("b", f32, {2, 3}), c = g.input("c", f32, {2, 3}),
        whole = g.input("whole", f32, {2, 9});
};

TEST_F(SumGradients, ConcatenatesPartsThatCoverEverything) {
  g.fetch("y", placed(b, 3, 3) + placed(a, 0, 6) + placed(c, 6, 0));
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g).op->name, "concat");
  EXPECT_EQ(fetched(g).inputs, (std::vector<Ref>{a.ref(), b.ref(), c.ref()}));
  EXPECT_EQ(g.size(), 5);
}

TEST_F(SumGradients, FillsGapsWithZeros) {
  g.fetch("y", add_n(std::array{placed(c, 5, 1), placed(a, 1, 5)}));
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g).op->name, "concat");
  EXPECT_EQ(fetched(g).inputs.size(), 5u);
  EXPECT_EQ(count_here(g, "full"), 3);
}

TEST_F(SumGradients, CombinesPartsBeforeOtherTerms) {
  g.fetch("y", add_n(std::array{placed(a, 0, 6), whole, placed(b, 3, 3), tanh(whole)}));
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g).op->name, "add_n");
  EXPECT_EQ(fetched(g).inputs.size(), 3u);
  EXPECT_EQ(count_here(g, "pad"), 0);
}

TEST_F(SumGradients, SumsPartsOfOneRangeBeforePlacingThem) {
  g.fetch("y", placed(a, 0, 6) + placed(b, 0, 6) + placed(c, 3, 3));
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g).op->name, "concat");
  EXPECT_EQ(count_here(g, "pad"), 0);
}

TEST_F(SumGradients, KeepsPartsThatOverlapApart) {
  g.fetch("y", add_n(std::array{placed(a, 0, 6), placed(b, 2, 4), placed(c, 4, 2)}));
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g).op->name, "add");
  EXPECT_EQ(count_here(g, "concat"), 1);
  EXPECT_EQ(count_here(g, "pad"), 1);
}

TEST_F(SumGradients, LeavesOnePartAlone) {
  g.fetch("y", placed(a, 0, 6) + whole);
  const NodeId size = g.size();
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(g.size(), size);
  EXPECT_EQ(count_here(g, "pad"), 1);
}

TEST_F(SumGradients, LeavesZerosAlongTwoAxesAlone) {
  const Value corner = pad(slice(a, 0, 0, 1), Ints{1, 0}, Ints{0, 6});
  g.fetch("y", corner + placed(b, 3, 3));
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(count_here(g, "pad"), 2);
}

TEST_F(SumGradients, FlattensSumsOfSums) {
  const Value inner = add_n(std::array{a, b, c}), kept = add_n(std::array{b, c, c});
  g.fetch("y", add_n(std::array{inner, a, kept}));
  g.fetch("kept", kept);
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g).inputs.size(), 5u);
  EXPECT_EQ(count_here(g, "add_n"), 2);
}

TEST_F(SumGradients, DropsZerosAndKeepsTheShape) {
  const Value row = slice(a, 0, 0, 1);
  g.fetch("y", row + expand(full(g, {}, 0), {2, 3}));
  g.fetch("z", full(g, {2, 3}, 0) + full(g, {}, 0));
  g.fetch("w", a + 0.0);
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g, 0).op->name, "expand");
  EXPECT_EQ(fetched(g, 1).op->name, "full");
  EXPECT_EQ(g.fetches()[2].ref, a.ref());
}

TEST_F(SumGradients, LeavesSumsOfOtherThingsAlone) {
  g.fetch("y", a + b + c);
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(count_here(g, "add"), 2);
}

TEST_F(SumGradients, MakesTheGradientOfGatesOneConcatenation) {
  const Value x = whole;
  const auto gate = [&](int k) { return slice(x, 1, 3 * k, 3 * k + 3); };
  const Value y = sum(sigmoid(gate(0)) * tanh(gate(1)) + sigmoid(gate(2)));
  g.fetch("dx", gradients(y, {x})[0]);
  run_and_compare(g, {sum_gradients});
  EXPECT_EQ(fetched(g).op->name, "concat");
  EXPECT_EQ(count_here(g, "pad"), 0);
}

}  // namespace
}  // namespace paoding
