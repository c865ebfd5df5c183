// SPDX-License-Identifier: Apache-2.0
#include <gtest/gtest.h>

#include <cmath>

#include "paoding/ops.h"
#include "paoding/program.h"
#include "passes/pass.h"
#include "tests/support/pass_check.h"
#include "tests/support/program_check.h"

namespace paoding {
namespace {

TEST(FoldIdentities, LeavesNothingOfOpsThatGiveBackAnInput) {
  Graph g;
  const Value x = g.input("x", f32, {4, 3});
  g.fetch("y", -(-((1.0 * x * 1.0 / 1.0) - 0.0)) + 1.0);
  PassNotes notes;
  fold_identities(g, notes);
  fold_identities(g, notes);  // neg(neg(..)) shows when the ops inside have gone
  EXPECT_EQ(count_here(g, "mul"), 0);
  EXPECT_EQ(count_here(g, "div"), 0);
  EXPECT_EQ(count_here(g, "sub"), 0);
  EXPECT_EQ(count_here(g, "neg"), 0);
  EXPECT_EQ(count_here(g, "add"), 1);
  EXPECT_FALSE(notes.list().empty());
}

TEST(FoldIdentities, KeepsWhatStretchesAnInputOrChangesTheSignOfZero) {
  Graph g;
  const Value x = g.input("x", f32, {3});
  g.fetch("stretched", x * full(g, {4, 3}, 1));
  g.fetch("zero", x + 0.0);
  g.fetch("negated", 0.0 - x);
  PassNotes notes;
  fold_identities(g, notes);
  EXPECT_EQ(count_here(g, "mul"), 1);
  EXPECT_EQ(count_here(g, "add"), 1);
  EXPECT_EQ(count_here(g, "sub"), 1);
}

// -0 - 0 is -0, but -0 - (-0) is 0.
TEST(FoldIdentities, KeepTheSignOfZero) {
  Graph g;
  const Value x = g.input("x", f32, {4});
  const Value mixed = pad(full(g, {2}, 0.0), testing_program::Ints{1}, testing_program::Ints{1}, -0.0);
  g.fetch("less", x - 0.0);
  g.fetch("less_negative", x - (-0.0));
  g.fetch("less_mixed", x - mixed);
  g.fetch("more_mixed", mixed - (-x));
  CompileOptions none;
  none.disabled_passes = testing_program::pass_names();
  const std::map<std::string, Tensor> feeds{{"x", Tensor::from(f32, {4}, std::vector<double>{-0.0, -0.0, 0.0, 1.0})}};
  const auto folded = Program(g).run(feeds), plain = Program(g, none).run(feeds);
  const auto signs = [](const Tensor& tensor) {
    std::vector<bool> all;
    for (const double value : tensor.to_doubles()) all.push_back(std::signbit(value));
    return all;
  };
  EXPECT_EQ(signs(folded.at("less")), (std::vector<bool>{true, true, false, false}));
  EXPECT_EQ(signs(folded.at("less_negative")), (std::vector<bool>{false, false, false, false}));
  EXPECT_EQ(signs(folded.at("less_mixed")), (std::vector<bool>{false, true, false, false}));
  for (const auto& [name, tensor] : plain) EXPECT_EQ(signs(folded.at(name)), signs(tensor)) << name;
  PassNotes notes;
  fold_identities(g, notes);
  EXPECT_EQ(count_here(g, "sub"), 3) << "only that of 0 goes";
}

TEST(FoldIdentities, FoldsInsideLoopsToo) {
  Graph g;
  const Value xs = g.input("xs", f32, {5, 3}), h0 = g.input("h0", f32, {3});
  const StepResult loop = scan({h0}, {xs}, [](const Values& carries, const Values& elements) {
    const Value h = tanh(carries[0] * 1.0 + elements[0]);
    return step({h}, {h});
  });
  g.fetch("y", loop.outputs[0]);
  PassNotes notes;
  fold_identities(g, notes);
  EXPECT_EQ(count_here(*only(g, "scan").bodies[0], "mul"), 0);
}

}  // namespace
}  // namespace paoding
