// SPDX-License-Identifier: Apache-2.0
// Masks and one-hot vectors against conditions written out.
#include "tests/support/program_check.h"

namespace paoding::testing_program {
namespace {

Dense run(Graph& g, const Value& y, const Tensors& feeds = {}) {
  g.fetch("y", y);
  Program program(g);
  return program.run(feeds).at("y").to_doubles();
}

TEST(CausalMask, LetsAQuerySeeKeysUpToItsOwnAndTheOffset) {
  for (const auto& [queries, keys, offset] :
       std::vector<std::array<std::int64_t, 3>>{{4, 4, 0}, {3, 5, 2}, {5, 3, -1}, {1, 7, 6}, {2, 3, -9}, {0, 3, 0}}) {
    Graph g;
    Dense expected;
    for (std::int64_t t = 0; t < queries; ++t) {
      for (std::int64_t s = 0; s < keys; ++s) expected.push_back(s <= t + offset ? 1 : 0);
    }
    EXPECT_EQ(run(g, causal_mask(g, queries, keys, offset)), expected) << queries << " " << keys << " " << offset;
  }
}

TEST(CausalMask, TakesNoMemoryInAKernelThatReadsIt) {
  Graph g;
  const Value scores = g.input("scores", f32, {2, 300, 300});
  g.fetch("y", sum(select(causal_mask(g, 300, 300), scores, 0), std::array<std::int64_t, 1>{2}));
  Program program(g);
  EXPECT_EQ(program.report().launches, 1);
}

TEST(CausalMask, RefusesExtentsBelowZero) {
  Graph g;
  const Scope scope(g, "decoder");
  try {
    causal_mask(g, -1, 3);
    FAIL();
  } catch (const Error& error) {
    EXPECT_STREQ(error.what(), "causal_mask: -1 queries and 3 keys (in decoder)");
  }
}

TEST(SequenceMask, IsEmptyBelowZeroAndFullBeyondTheEnd) {
  Graph g;
  const Value lengths = g.input("lengths", i32, {4});
  EXPECT_EQ(run(g, sequence_mask(lengths, 3), {{"lengths", Tensor::from(i32, {4}, Dense{-2, 0, 2, 9})}}),
            (Dense{0, 0, 0, 0, 0, 0, 1, 1, 0, 1, 1, 1}));
}

TEST(OneHot, OfAnIdOutsideIsOffEverywhere) {
  for (const DType dtype : {i32, i64}) {
    Graph g;
    const Value ids = g.input("ids", dtype, {4});
    EXPECT_EQ(run(g, one_hot(ids, 3, {.axis = 0, .on = 2, .off = -1}),
                  {{"ids", Tensor::from(dtype, {4}, Dense{-1, 0, 2, 3})}}),
              (Dense{-1, 2, -1, -1, -1, -1, -1, -1, -1, -1, 2, -1}));
  }
}

TEST(OneHot, IsComputedWhereItIsReadAlsoInALoop) {
  Graph g;
  const Value ids = g.input("ids", i64, {3, 2}), start = full(g, {2, 4}, 0);
  const StepResult made = scan({start}, {ids}, [&](const Values& carry, const Values& element) {
    return step({carry[0] * 0.5 + one_hot(element[0], 4)}, {});
  });
  EXPECT_EQ(run(g, made.carries[0], {{"ids", Tensor::from(i64, {3, 2}, Dense{0, 3, 1, 3, 0, 2})}}),
            (Dense{1.25, 0.5, 0, 0, 0, 0, 1, 0.75}));
}

}  // namespace
}  // namespace paoding::testing_program
