// SPDX-License-Identifier: Apache-2.0
// A formula between elementwise ops is one kernel on a GPU, whatever it broadcasts: seen in the plan, which needs no
// GPU. (The op sweep counts the launches of the same programs where there is one.)
#include "tests/gpu/kernel_texts.h"
#include "tests/support/op_case.h"

namespace paoding::testing_program {
namespace {

TEST(OneLaunch, IsAFormulaBetweenElementwiseOpsOnAGpu) {
  int compared = 0;
  for (const DType dtype : {f32, f64, bf16}) {
    for (const SweepCase& c : sweep_cases(dtype)) {
      if (c.op->kind != OpKind::formula || !c.shape.error.empty() || c.op->name.starts_with("test_")) continue;
      const std::vector<DType> dtypes = input_dtypes(c);
      if (dtype != f32 && std::ranges::find(dtypes, dtype) == dtypes.end()) continue;
      const CaseGraph made(c, Around::elementwise, false);
      const Plan plan = plan_for_gpu(made.graph);
      EXPECT_EQ(plan.steps.size(), 1u) << c.op->name << "/" << c.name << "/" << to_string(dtype);
      ++compared;
    }
  }
  EXPECT_GT(compared, 500);
}

TEST(OneLaunch, OfALargeGroupStartsEarlyWhereItReadsAsMuchAsItWrites) {
  const auto starts_early = [](const std::string& target, bool has_gradients) {
    Graph g;
    const Shape shape = {16, 102400};
    const Value x = g.input("x", f32, shape), y = g.input("y", f32, shape), w = g.input("w", f32, {1});
    const Value blended = lerp(x, y, w);
    if (has_gradients) {
      const Values d = gradients(Values{blended}, Values{x, y}, Values{g.input("seed", f32, shape)});
      g.fetch("dx", d[0]), g.fetch("dy", d[1]);
    } else {
      g.fetch("blended", blended);
    }
    const Plan plan = plan_for_gpu(g, {}, target);
    EXPECT_EQ(plan.steps.size(), 1u);
    return plan.steps.at(0).text->launches.at(0).overlaps_before;
  };
  EXPECT_TRUE(starts_early("h200", false));
  EXPECT_FALSE(starts_early("h200", true)) << "one row is read, two are written";
  EXPECT_FALSE(starts_early("a100", false)) << "which has no such launch";
}

}  // namespace
}  // namespace paoding::testing_program
