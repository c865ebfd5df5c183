// SPDX-License-Identifier: Apache-2.0
// A formula between elementwise ops is one kernel on a GPU, whatever it broadcasts: seen in the plan, which needs no
// GPU. (The op sweep counts the launches of the same programs where there is one.)
#include "tests/kernel_texts.h"
#include "tests/op_case.h"

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

}  // namespace
}  // namespace paoding::testing_program
