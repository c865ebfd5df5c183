// SPDX-License-Identifier: Apache-2.0
// Collectives beside other launches: no launch touches memory of one that it has not waited for, nor one the memory of
// a launch before it, whatever the order in which the two streams go on.
#include <gtest/gtest.h>

#include <set>

#include "models/task.h"
#include "paoding/optimizer.h"
#include "runtime/compile.h"
#include "schedule/independent.h"
#include "schedule/schedule.h"
#include "tests/support/program_check.h"
#include "tests/support/thread_ranks.h"

namespace paoding::testing_program {
namespace {

CompiledPlan plan_of(const char* model, std::int64_t bucket_bytes) {
  const auto task = models::make_task(model);
  Graph g;
  const Value loss = task->loss(g, task->any_bucket(), 32, true);
  MinimizeOptions minimized{.clip_norm = 5, .skip_nonfinite = true};
  minimized.data_parallel = true;
  g.fetch("loss", minimize(loss, Adam{}, minimized).loss);
  ThreadRanks ranks(2, 0, Device::cuda());
  CompileOptions options;
  options.communicator = ranks.rank(0);
  options.bucket_bytes = bucket_bytes;
  options.precision = bf16;
  return compile_plan(g, options, std::make_shared<const Target>(named_target("h200")));
}

// Walks the entries and says of each launch beside a collective whether they touch the same memory. Collectives that an
// entry has waited for, and those in front of them in their stream, have ended.
std::vector<std::string> races(const Plan& plan, const Schedule& schedule) {
  const std::vector<std::byte*> bases = pretended_addresses(plan);
  std::vector<std::string> found;
  std::vector<std::pair<std::size_t, MemoryRanges>> beside;
  for (std::size_t k = 0; k < schedule.entries.size(); ++k) {
    const LaunchEntry& entry = schedule.entries[k];
    std::erase_if(beside, [&](const auto& each) { return static_cast<int>(each.first) <= entry.waits_for; });
    MemoryRanges memory;
    for (const std::size_t i : schedule.members(entry)) {
      for (const MemoryRange& range : ranges_of(schedule.launches[i], bases)) memory.push_back(range);
    }
    if (entry.stream == 0) {
      for (const auto& [other, ranges] : beside) {
        if (collide(ranges, memory)) found.push_back(fmt::format("entries {} and {}", other, k));
      }
      continue;
    }
    beside.emplace_back(k, memory);
  }
  return found;
}

TEST(ScheduleStreams, CollectivesAreBesideWhatDoesNotNeedThem) {
  for (const auto& [model, bucket_bytes] :
       {std::pair("g2p", 1 << 20), std::pair("fashion", 1 << 12), std::pair("lm", 1 << 20)}) {
    const CompiledPlan compiled = plan_of(model, bucket_bytes);
    Schedule schedule = make_schedule(compiled.plan, {.repeats = 2});
    std::size_t collectives = 0, beside = 0;
    int in_flight = -1;
    for (std::size_t k = 0; k < schedule.entries.size(); ++k) {
      const LaunchEntry& entry = schedule.entries[k];
      if (entry.stream != 0) ++collectives, in_flight = static_cast<int>(k);
      if (entry.waits_for == in_flight) in_flight = -1;
      beside += entry.stream == 0 && in_flight >= 0;
    }
    EXPECT_GE(collectives, 4u) << model;
    EXPECT_GE(beside, 4u) << model << ": launches beside a collective";
    EXPECT_EQ(races(compiled.plan, schedule), std::vector<std::string>()) << model;
    EXPECT_TRUE(has(to_string(schedule), "in the collectives' stream")) << model;
    // A wait that is missing is found.
    std::size_t planted = 0;
    for (LaunchEntry& entry : schedule.entries) {
      const bool is_launch = entry.kind == LaunchEntry::Kind::launch || entry.kind == LaunchEntry::Kind::fused;
      if (!is_launch || entry.waits_for < 0) continue;
      const int waits_for = std::exchange(entry.waits_for, -1);
      planted += !races(compiled.plan, schedule).empty();
      entry.waits_for = waits_for;
    }
    EXPECT_GE(planted, 1u) << model;
  }
}

// A kernel may read inputs before the launch in front of it has ended, but no results of a collective beside it, nor of
// the launch in front of the collective.
TEST(ScheduleStreams, NoKernelReadsEarlyWhatIsReducedBesideIt) {
  const CompiledPlan compiled = plan_of("g2p", std::int64_t{1} << 20);
  std::set<int> reduced, before, around;
  int seen = 0;
  for (const Step& step : compiled.plan.steps) {
    std::set<int> written;
    for (std::size_t k = step.reads; k < step.operands.size(); ++k) written.insert(step.operands[k].slot);
    if (is_collective(step)) {
      reduced.insert(written.begin(), written.end());
      around = before;
      continue;
    }
    for (std::size_t i = 0; i < std::min<std::size_t>(step.reads, 32); ++i) {
      if ((step.call.unmodified_by_previous >> i & 1u) == 0) continue;
      const int slot = step.operands[i].slot;
      EXPECT_FALSE(reduced.contains(slot) || around.contains(slot)) << step.label.op;
      ++seen;
    }
    around.clear();
    before = written;
  }
  EXPECT_GT(seen, 5);
}

}  // namespace
}  // namespace paoding::testing_program
