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

// Copies into buckets, of more than the weight that is fed.
int copies_for_ranks(const Plan& plan) {
  return static_cast<int>(std::ranges::count_if(plan.notes, [](const std::string& note) {
    return has(note, "copies") && has(note, "all_reduce") && !has(note, "copies f32[1]");
  }));
}

CompileOptions on(ThreadRanks& ranks, int rank) {
  CompileOptions options;
  options.communicator = ranks.rank(rank);
  return options;
}

Plan training_plan(const char* model, const std::string& target, std::int64_t bucket_bytes, DType precision) {
  const auto task = models::make_task(model);
  Graph g;
  const Value loss = task->loss(g, task->any_bucket(), 32, true);
  const Value weight = g.input("weight", f32, {});
  MinimizeOptions minimized{.clip_norm = 5, .skip_nonfinite = true};
  minimized.data_parallel = true;
  minimized.loss_weight = weight;
  g.fetch("loss", minimize(loss, Adam{}, minimized).loss);
  const auto machine = std::make_shared<const Target>(named_target(target));
  ThreadRanks ranks(2, 0, machine->is_gpu() ? Device::cuda() : Device::cpu());
  CompileOptions options = on(ranks, 0);
  options.bucket_bytes = bucket_bytes;
  options.precision = precision;
  options.allow_tf32 = precision == f32;
  return compile_plan(g, options, machine).plan;
}

TEST(BucketCollectives, GradientsOfModelsAreWrittenWhereTheyAreReduced) {
  for (const char* model : {"g2p", "fashion"}) {
    for (const char* target : {"avx512", "h200"}) {
      for (const DType precision : {f32, bf16}) {
        const Plan plan = training_plan(model, target, std::int64_t{16} << 20, precision);
        EXPECT_LE(reduced(plan).size(), 3u) << model << " " << target;
        EXPECT_EQ(copies_for_ranks(plan), 0) << model << " " << target << " " << to_string(precision);
      }
    }
  }
}

// Ready in the order a, b, .. f; a bucket takes 4 of them, the last one.
TEST(BucketCollectives, GoInTheOrderInWhichTheyAreReadyAndTheLastIsSmaller) {
  Graph g;
  Value x = g.input("x", f32, {1, 100});
  for (const char* name : {"a", "b", "c", "d", "e", "f"})
    g.fetch(name, all_reduce(x = matmul(tanh(x), g.input(std::string("w") + name, f32, {100, 100}))));
  ThreadRanks ranks(2);
  CompileOptions options = on(ranks, 0);
  options.bucket_bytes = 1600;
  const auto sizes_with = [&](std::int64_t bytes) {
    options.bucket_bytes = bytes;
    return reduced(compile_plan(g, options, std::make_shared<const Target>()).plan);
  };
  EXPECT_EQ(sizes_with(1600), (std::vector<std::int64_t>{100, 400, 100}));
  EXPECT_EQ(sizes_with(1 << 20), (std::vector<std::int64_t>{600}));
  EXPECT_EQ(sizes_with(0).size(), 6u);
  options.disabled_passes = {"bucket_collectives"};
  EXPECT_EQ(sizes_with(1 << 20).size(), 6u);
}

// Reductions of one kind that need each other, with others between them: no bucket has to wait for itself.
TEST(BucketCollectives, ChangeNoBits) {
  const auto build = [](Graph& g) {
    const Value x = g.input("x", f32, {6, 4}), y = g.input("y", f32, {5});
    const Value a = all_reduce(x), b = all_reduce(y * 2.0), c = all_reduce(sum(a) * y), d = all_reduce(y, "max");
    const Value e = all_reduce(exp(d)), f = all_reduce(sum(c) + sum(e) * x, "max"), h = all_reduce(cast(x, i64));
    const Value parts = matmul(x, transpose(x, std::array<std::int64_t, 2>{1, 0}));  // [6, 6]
    const Value p = all_reduce(slice(parts, 0, 0, 2)), q = all_reduce(slice(parts, 0, 2, 6));
    int i = 0;
    for (const Value& each : {a, b, c, d, e, f, h, p, q}) g.fetch("r" + std::to_string(i++), each);
  };
  for (const int count : {2, 4, 8}) {
    std::map<bool, std::vector<Tensors>> results;
    std::map<bool, std::size_t> calls;
    for (const bool merges : {false, true}) {
      ThreadRanks ranks(count, static_cast<unsigned>(count));
      results[merges].resize(static_cast<std::size_t>(count));
      const auto errors = ranks.run([&](int rank, const std::shared_ptr<Communicator>& communicator) {
        Graph g;
        build(g);
        CompileOptions options;
        options.communicator = communicator;
        if (!merges) options.disabled_passes = {"bucket_collectives"};
        Program program(g, options);
        results[merges][static_cast<std::size_t>(rank)] =
            program.run(to_tensors(g, make_feeds(g, static_cast<unsigned>(rank + 1))));
      });
      for (const std::string& error : errors) EXPECT_EQ(error, "");
      calls[merges] = ranks.calls(0).size();
    }
    EXPECT_LT(calls[true], calls[false]);
    for (int rank = 0; rank < count; ++rank) {
      expect_same_bits(results[true][static_cast<std::size_t>(rank)], results[false][static_cast<std::size_t>(rank)]);
      EXPECT_EQ(results[true][static_cast<std::size_t>(rank)].at("r0").to_doubles(),
                results[true][0].at("r0").to_doubles());
    }
  }
}

}  // namespace
}  // namespace paoding::testing_program
