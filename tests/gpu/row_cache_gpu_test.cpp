// SPDX-License-Identifier: Apache-2.0
// An op of a user's own, registered outside of the tree with a cost, an alias and a kernel that claims it, is planned
// as the library's own are: examples/row_cache.h.
#include "examples/row_cache.h"
#include "plan/step_cost.h"
#include "plan/step_work.h"
#include "tests/gpu/emulated_program.h"

namespace paoding::testing_program {
namespace {

constexpr std::int64_t kRows = 1 << 16, kWidth = 64;

struct Cache {
  Graph graph;
  Value row = graph.input("row", f32, {kWidth}), position = graph.input("position", i64, {});
  Value input = graph.input("x", f32, {kRows, kWidth});

  Cache() { row_cache::register_write_row(); }
};

const Step& step_of(const Plan& plan) {
  static const Step none;
  const auto found = std::ranges::find_if(plan.steps, [](const Step& step) { return step.label.op == "my_write_row"; });
  EXPECT_NE(found, plan.steps.end());
  return found == plan.steps.end() ? none : *found;
}

std::size_t copies_in(const Plan& plan) {
  return static_cast<std::size_t>(std::ranges::count_if(
      plan.steps, [](const Step& step) { return step.label.op.find("copy") != std::string::npos; }));
}

std::string text_of(const Plan& plan) { return to_string(plan); }

TEST(RowCache, IsClaimedAndItsCostShowsInTheWorkOfItsStep) {
  Cache cache;
  cache.graph.fetch("y", row_cache::write_row(cache.input * 2.0, cache.row, cache.position));
  const Plan plan = plan_for_gpu(cache.graph);
  const Step& step = step_of(plan);
  ASSERT_NE(step.kernel, nullptr);
  EXPECT_EQ(step.kernel->name, "write_row");
  const std::int64_t bytes = 2 * 4 * kWidth + 8;
  EXPECT_EQ(bytes_of(step), bytes) << "not those of the cache";
  EXPECT_EQ(cost_of(step).bytes, bytes);
  EXPECT_EQ(cost_of(step).flops, 0);
  // The planner expects 50 times the time of its operands from a kernel whose time is not known.
  Step unknown = step;
  OpDef plain = *step.call.op;
  plain.cost = {};
  unknown.call.op = &plain;
  EXPECT_GT(expected_us(unknown, *plan.target), 10 * expected_us(step, *plan.target));
}

TEST(RowCache, LiesWhereTheCacheDidThatNothingElseReads) {
  Cache cache;
  cache.graph.fetch("y", row_cache::write_row(cache.input * 2.0, cache.row, cache.position));
  const Plan plan = plan_for_gpu(cache.graph);
  const Step& step = step_of(plan);
  ASSERT_EQ(step.operands.size(), 4u);
  EXPECT_EQ(step.operands[0].slot, step.operands[3].slot);
  EXPECT_EQ(plan.fetches[0].operand.slot, step.operands[3].slot);
  EXPECT_EQ(copies_in(plan), 0u) << text_of(plan);
  EXPECT_EQ(plan.steps.size(), 2u) << text_of(plan);
}

TEST(RowCache, IsCopiedFirstWhereTheCacheIsReadLater) {
  Cache cache;
  const Value old = cache.input * 2.0, made = row_cache::write_row(old, cache.row, cache.position);
  cache.graph.fetch("difference", sum(matmul(old, made, true, false)));
  const Plan plan = plan_for_gpu(cache.graph);
  const Step& step = step_of(plan);
  EXPECT_EQ(step.operands[0].slot, step.operands[3].slot);
  EXPECT_EQ(copies_in(plan), 1u) << text_of(plan);
  const bool is_noted = std::ranges::any_of(plan.notes, [](const std::string& note) {
    return note.find("copy_my_write_row: copies f32[65536,64]") != std::string::npos;
  });
  EXPECT_TRUE(is_noted) << text_of(plan);
}

TEST(RowCache, OfAParameterIsWrittenInTheParameter) {
  Cache cache;
  const Value kept = cache.graph.parameter("cache", f32, {kRows, kWidth});
  cache.graph.assign(kept, row_cache::write_row(kept, cache.row, cache.position));
  const Plan plan = plan_for_gpu(cache.graph);
  const Step& step = step_of(plan);
  ASSERT_EQ(step.operands.size(), 4u);
  for (const std::size_t operand : {0u, 3u}) {
    const Slot& slot = plan.slots[static_cast<std::size_t>(step.operands[operand].slot)];
    EXPECT_EQ(slot.kind, SlotKind::parameter);
    EXPECT_EQ(slot.name, "cache");
  }
  EXPECT_EQ(plan.steps.size(), 1u) << text_of(plan);
  EXPECT_EQ(plan.commit, 0u);
}

// The kernel's source, run by the emulation, against the composition on the CPU; a row that is not there writes
// nothing.
TEST(RowCache, HoldsTheRowThatItsKernelWrites) {
  row_cache::register_write_row();
  Graph g;
  const Value x = g.input("x", f32, {5, 300}), row = g.input("row", f32, {300}),
              position = g.input("position", i64, {});
  g.fetch("y", row_cache::write_row(x * 2.0, row, position));
  const EmulatedProgram program(g);
  const gpu::EmulatedKernels compiled(program.kernels());
  Program composition(g, {.device = Device::cpu()});
  for (const double at : {0.0, 3.0, 5.0, -1.0}) {
    Tensors feeds{{"position", Tensor::from(i64, {}, Dense{at})}};
    for (const auto& [name, shape] : {std::pair("x", Shape{5, 300}), std::pair("row", Shape{300})}) {
      Dense values(static_cast<std::size_t>(shape.elements()));
      for (std::size_t i = 0; i < values.size(); ++i) values[i] = static_cast<double>(i % 97) - 50;
      feeds.emplace(name, Tensor::from(f32, shape, values));
    }
    EXPECT_EQ(program.run(compiled, feeds, 1).at("y").to_doubles(), composition.run(feeds).at("y").to_doubles()) << at;
  }
}

}  // namespace
}  // namespace paoding::testing_program
