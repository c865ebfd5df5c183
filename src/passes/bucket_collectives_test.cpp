// SPDX-License-Identifier: Apache-2.0
// Buckets of gradients: how many, in which order, and that producers write into them on both devices.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>

#include "models/task.h"
#include "paoding/optimizer.h"
#include "runtime/compile.h"
#include "tests/support/program_check.h"
#include "tests/support/thread_ranks.h"

namespace paoding::testing_program {
namespace {

// The collectives of a plan, by the elements that they reduce.
std::vector<std::int64_t> reduced(const Plan& plan) {
  std::vector<std::int64_t> sizes;
  for (const Step& step : plan.steps) {
    if (step.kind != Step::Kind::kernel || step.call.op->collective == Collective::none) continue;
    sizes.push_back(step.call.inputs[0].type.shape.elements());
    EXPECT_EQ(step.operands[0].slot, step.operands[1].slot) << "it is reduced where it lies";
  }
  return sizes;
}

// Copies that the ranks are the reason of.
int copies_for_ranks(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.notes, [](const std::string& note) {
    return has(note, "copies") && (has(note, "all_reduce") || has(note, "in ranks"));
  }));
}

Plan training_plan(const char* model, const std::string& target, std::int64_t bucket_bytes, DType precision) {
  const auto task = models::make_task(model);
  Graph g;
  const Value loss = task->loss(g, task->any_bucket(), 32, true);
  const Value weight = g.input("weight", f32, {});
  const TrainingStep step =
      minimize(loss, Adam{}, {.clip_norm = 5, .skip_nonfinite = true, .data_parallel = true, .loss_weight = weight});
  g.fetch("loss", step.loss);
  const auto machine = std::make_shared<const Target>(named_target(target));
  ThreadRanks ranks(2, 0, machine->is_gpu() ? Device::cuda() : Device::cpu());
  CompileOptions options;
  options.communicator = ranks.rank(0);
  options.bucket_bytes = bucket_bytes;
  options.precision = precision;
  options.allow_tf32 = precision == f32;
  const CompiledPlan compiled = compile_plan(g, options, machine);
  if (std::getenv("SHOW_PLAN") != nullptr) {
    for (const std::string& note : compiled.plan.notes) std::printf("%s\n", note.c_str());
    std::printf("%s\n", to_string(compiled.plan).c_str());
  }
  return std::move(const_cast<CompiledPlan&>(compiled).plan);
}

TEST(BucketCollectives, GradientsOfARecurrentModelAreWrittenWhereTheyAreReduced) {
  for (const char* target : {"avx512", "h200"}) {
    for (const DType precision : {f32, bf16}) {
      const Plan plan = training_plan("g2p", target, std::int64_t{16} << 20, precision);
      const std::vector<std::int64_t> sizes = reduced(plan);
      EXPECT_LE(sizes.size(), 3u) << target;
      EXPECT_EQ(copies_for_ranks(plan), 0) << target;
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
