// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <array>

#include "paoding/autodiff.h"
#include "paoding/ops.h"
#include "tests/support/pass_check.h"

namespace paoding {
namespace {

using Ints = std::vector<std::int64_t>;

// Shows the fetch "y" after the pass: "reshape(x)", innermost an input's name.
std::string shown(Graph& g, const Value& y) {
  g.fetch("y", y);
  run_and_compare(g, {simplify_views});
  std::string text, tail;
  Ref ref = g.fetches()[0].ref;
  while (true) {
    const Node& node = g.node(ref.node);
    if (!node.name.empty() || node.inputs.size() != 1) {
      return text + (node.name.empty() ? node.op->name : node.name.str()) + tail;
    }
    text += node.op->name + "(";
    tail += ")";
    ref = node.inputs[0];
  }
}

struct SimplifyViews : testing::Test {
  Graph g;
  Value x = g.input("x", f32, {4, 6});
  Value y = g.input("other", f32, {2, 6});
};

TEST_F(SimplifyViews, JoinsReshapes) { EXPECT_EQ(shown(g, reshape(reshape(x, Ints{24}), Ints{3, 8})), "reshape(x)"); }
TEST_F(SimplifyViews, DropsReshapesThatEndWhereTheyStarted) {
  EXPECT_EQ(shown(g, reshape(reshape(x, Ints{24}), Ints{4, 6})), "x");
}
TEST_F(SimplifyViews, JoinsExpands) {
  EXPECT_EQ(shown(g, expand(expand(slice(x, 0, 0, 1), {2, 6}), {2, 6})), "expand(slice(x))");
  Graph h;
  EXPECT_EQ(shown(h, expand(expand(h.input("x", f32, {1, 3}), {4, 3}), {2, 4, 3})), "expand(x)");
}
TEST_F(SimplifyViews, JoinsSlices) {
  EXPECT_EQ(shown(g, slice(slice(slice(x, 1, 1, 6), 0, 1, 3), 1, 2, 4)), "slice(x)");
  EXPECT_EQ(only(g, "slice").attrs.get_ints("start"), (Ints{1, 3}));
  EXPECT_EQ(only(g, "slice").attrs.get_ints("end"), (Ints{3, 5}));
}
TEST_F(SimplifyViews, WritesAProductTheWayItsOnlyReaderWantsIt) {
  const Value product = matmul(x, y, false, true);
  EXPECT_EQ(shown(g, transpose(product, Ints{1, 0})), "matmul");
  EXPECT_EQ(only(g, "matmul").types[0].shape, (Shape{2, 4}));
  EXPECT_TRUE(only(g, "matmul").attrs.get_bool("transpose_b"));
  Graph batched;
  const Value a = batched.input("a", f32, {3, 4, 5}), b = batched.input("b", f32, {3, 5, 2});
  EXPECT_EQ(shown(batched, transpose(matmul(a, b), Ints{0, 2, 1})), "matmul");
  Graph read;  // by another as it is
  const Value both = matmul(read.input("a", f32, {4, 5}), read.input("b", f32, {5, 2}));
  read.fetch("as it is", both);
  shown(read, transpose(both, Ints{1, 0}));
  EXPECT_EQ(only(read, "transpose").types[0].shape, (Shape{2, 4}));
}
TEST_F(SimplifyViews, DropsSlicesOfEverything) { EXPECT_EQ(shown(g, slice(x, 1, 0, 6)), "x"); }
TEST_F(SimplifyViews, FindsThePieceThatASliceReads) {
  EXPECT_EQ(shown(g, slice(concat(std::array{x, y, x}, 0), 0, 4, 6)), "other");
}
TEST_F(SimplifyViews, FindsPartOfThePieceThatASliceReads) {
  EXPECT_EQ(shown(g, slice(concat(std::array{x, y, x}, 0), 0, 7, 9)), "slice(x)");
}
TEST_F(SimplifyViews, KeepsASliceAcrossPieces) {
  EXPECT_EQ(shown(g, slice(concat(std::array{x, y}, 0), 0, 3, 5)), "slice(concat)");
}
TEST_F(SimplifyViews, SlicesInsideAPad) {
  EXPECT_EQ(shown(g, slice(pad(x, Ints{1, 2}, Ints{3, 0}), Ints{1, 3}, Ints{4, 8})), "slice(x)");
}
TEST_F(SimplifyViews, KnowsThatPaddingIsZero) {
  EXPECT_EQ(shown(g, slice(pad(x, Ints{1, 2}, Ints{3, 0}), Ints{1, 0}, Ints{4, 2})), "full");
}
TEST_F(SimplifyViews, KeepsASliceThatReadsBothValueAndPadding) {
  EXPECT_EQ(shown(g, slice(pad(x, Ints{1, 2}, Ints{3, 0}), 1, 1, 5)), "slice(pad(x))");
}
TEST_F(SimplifyViews, PutsAdjacentSlicesTogether) {
  EXPECT_EQ(shown(g, concat(std::array{slice(x, 1, 0, 2), slice(x, 1, 2, 5), slice(x, 1, 5, 6)}, 1)), "x");
}
TEST_F(SimplifyViews, PutsSomeAdjacentSlicesTogether) {
  EXPECT_EQ(shown(g, concat(std::array{slice(x, 1, 1, 2), slice(x, 1, 2, 5)}, 1)), "slice(x)");
}
TEST_F(SimplifyViews, KeepsSlicesInAnotherOrder) {
  EXPECT_EQ(shown(g, concat(std::array{slice(x, 1, 2, 6), slice(x, 1, 0, 2)}, 1)), "concat");
}
TEST_F(SimplifyViews, KeepsSlicesPutTogetherAlongAnotherAxis) {
  EXPECT_EQ(shown(g, concat(std::array{slice(x, 1, 0, 3), slice(x, 1, 3, 6)}, 0)), "concat");
}
TEST_F(SimplifyViews, DropsWhatDoesNothing) {
  EXPECT_EQ(shown(g, pad(add_n(std::array{concat(std::array{x}, 1)}), Ints{0, 0}, Ints{0, 0})), "x");
}
TEST_F(SimplifyViews, JoinsPads) {
  EXPECT_EQ(shown(g, pad(pad(x, Ints{1, 0}, Ints{0, 1}), Ints{0, 2}, Ints{3, 0})), "pad(x)");
}
TEST_F(SimplifyViews, JoinsSums) {
  for (const bool inner : {false, true}) {
    for (const bool outer : {false, true}) {
      for (int axis = 0; axis < 3; ++axis) {
        Graph h;
        const Value a = h.input("a", f32, {2, 3, 4, 5});
        const std::string text = shown(h, sum(sum(a, Ints{1}, inner), Ints{axis}, outer));
        EXPECT_EQ(count_here(h, "sum"), 1) << text;
      }
    }
  }
}
TEST_F(SimplifyViews, SumsOverNothingAreReshapes) {
  EXPECT_EQ(shown(g, sum(reshape(x, Ints{1, 4, 1, 6}), Ints{0, 2})), "x");
}
TEST_F(SimplifyViews, SumsSeeThroughAxesOfExtentOne) {
  EXPECT_EQ(shown(g, sum(reshape(x, Ints{4, 1, 6}), Ints{1, 2})), "sum(x)");
  EXPECT_EQ(only(g, "sum").attrs.get_ints("axes"), (Ints{1}));
}
TEST_F(SimplifyViews, SumsDoNotSeeThroughOtherReshapes) {
  EXPECT_EQ(shown(g, sum(reshape(x, Ints{2, 12}), Ints{1})), "sum(reshape(x))");
}
TEST_F(SimplifyViews, KeepsASumThatIsReadTwice) {
  const Value inner = sum(x, Ints{1});
  g.fetch("inner", inner);
  g.fetch("outer", sum(inner));
  run_and_compare(g, {simplify_views});
  EXPECT_EQ(fetched(g, 1).inputs[0], g.fetches()[0].ref);
}
TEST_F(SimplifyViews, DropsCastsThereAndBack) { EXPECT_EQ(shown(g, cast(cast(x, f64), f32)), "x"); }
TEST_F(SimplifyViews, KeepsCastsThatRound) { EXPECT_EQ(shown(g, cast(cast(x, bf16), f32)), "cast(cast(x))"); }
TEST_F(SimplifyViews, ConstantsTakeTheirShapeAtOnce) {
  EXPECT_EQ(shown(g, reshape(expand(full(g, {}, 3), {2, 6}), Ints{12})), "full");
}
TEST_F(SimplifyViews, KeepsOtherOutputsOfANodeApart) {
  const StepResult made = scan({slice(x, 0, 0, 1)}, {reshape(x, Ints{4, 1, 6})}, [](const Values& h, const Values& in) {
    const Value next = slice(concat(std::array{h[0], in[0]}, 0), 0, 1, 2);
    return step({h[0] + next}, {reshape(reshape(next, Ints{6}), Ints{2, 3})});
  });
  EXPECT_EQ(shown(g, reshape(reshape(made.outputs[0], Ints{24}), Ints{4, 6})), "reshape(scan)");
}

TEST_F(SimplifyViews, MakesAnIotaOfViewsOfAnIota) {
  const auto only_iota = [](auto view) {
    Graph h;
    return shown(h, cast(view(iota(h, {4, 6}, 1), h), f32));
  };
  EXPECT_EQ(only_iota([](Value i, Graph&) { return slice(i, Ints{1, 2}, Ints{3, 5}); }), "cast(iota)");
  EXPECT_EQ(only_iota([](Value i, Graph&) { return expand(i, {3, 4, 6}); }), "cast(iota)");
  EXPECT_EQ(only_iota([](Value i, Graph&) { return reshape(i, Ints{2, 2, 1, 3, 2}); }), "cast(iota)");
  EXPECT_EQ(only_iota([](Value, Graph& h) { return reshape(arange(h, 3, 27), Ints{4, 6}); }), "cast(iota)");
  EXPECT_EQ(only_iota([](Value, Graph& h) {
              return reshape(reshape(arange(h, 3, 27), Ints{4, 6}), Ints{8, 3});
            }),
            "cast(iota)");
  EXPECT_EQ(only_iota([](Value i, Graph&) { return slice(i, Ints{1, 2}, Ints{1, 5}); }), "cast(iota)");
  EXPECT_EQ(only_iota([](Value i, Graph&) { return reshape(i, Ints{24}); }), "cast(reshape(iota))")
      << "counts 0 to 5 four times";
}
TEST_F(SimplifyViews, KeepsReducedAxesThatAReshapePutsBack) {
  EXPECT_EQ(shown(g, reshape(max(x, Ints{1}), Ints{4, 1})), "max(x)");
  Graph h;
  EXPECT_EQ(shown(h, max(max(h.input("x", f32, {2, 3, 4}), Ints{2}), Ints{0})), "max(x)");
  Graph other;
  EXPECT_EQ(shown(other, max(sum(other.input("x", f32, {2, 3, 4}), Ints{2}), Ints{0})), "max(sum(x))");
}

TEST_F(SimplifyViews, AReductionStaysBesideWhatIsComputedWithIt) {
  Graph g;
  const Value x = reshape(matmul(g.input("a", f32, {6, 4}), g.input("b", f32, {4, 8})), Shape{2, 3, 8});
  const std::array<std::int64_t, 1> last{2};
  const Value largest = max(x, last, true);
  g.fetch("y", x - largest);
  run_and_compare(g, {simplify_views});
  EXPECT_EQ(g.type(only(g, "max").inputs[0]).shape, (Shape{2, 3, 8}));
}

}  // namespace
}  // namespace paoding
