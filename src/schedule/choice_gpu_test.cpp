// SPDX-License-Identifier: Apache-2.0
// How branches of a program for an H200 run, though none need be here, and where OnCpu ops stand in one.
#include <fmt/ranges.h>
#include <gtest/gtest.h>

#include <set>

#include "plan/host_steps.h"
#include "schedule/schedule.h"
#include "tests/gpu/kernel_texts.h"

namespace paoding::testing_program {
namespace {

const Step* find_kind(const std::vector<Step>& steps, Step::Kind kind) {
  for (const Step& step : steps) {
    if (step.kind == kind) return &step;
    for (const auto* body : step.bodies()) {
      if (const Step* found = find_kind(*body, kind)) return found;
    }
  }
  return nullptr;
}

// Two branches, one of so many kernels, none of which can be a part of another.
Plan plan_of(int kernels) {
  Graph g;
  const Value p = g.input("p", boolean, {}), x = g.input("x", f32, {64, 64});
  g.fetch("y", cond(
                   p,
                   [&] {
                     Value y = x;
                     for (int i = 0; i < kernels; ++i) y = cumsum(y, i % 2);
                     return y;
                   },
                   [&] { return x * 2.0; }));
  return plan_for_gpu(g);
}

TEST(Choice, LaunchesTheKernelsOfAllBranchesWhileTheyAreFew) {
  const Plan few = plan_of(8), many = plan_of(12);
  EXPECT_FALSE(find_kind(few.steps, Step::Kind::branch)->is_conditional) << to_string(few);
  EXPECT_TRUE(find_kind(many.steps, Step::Kind::branch)->is_conditional) << to_string(many);
  EXPECT_TRUE(has(to_string(many), "branch: a conditional node: 12 launches would return at once, more than 11"));
}

TEST(Choice, HoldsWhatALibraryLaunchesInAConditionalNode) {
  Graph g;
  const Value p = g.input("p", boolean, {}), x = g.input("x", f64, {256, 256});
  g.fetch("y", cond(
                   p, [&] { return matmul(x, x); }, [&] { return x * 2.0; }));
  const Plan plan = plan_for_gpu(g);
  EXPECT_TRUE(has(to_string(plan), "branch: a conditional node: matmul is cublaslt's")) << to_string(plan);
}

// A guard in front of the commit stands after all of a loop, and a turn ends with the condition of the next.
TEST(GpuOrder, IsTheTreeOfTheLaunches) {
  Graph g;
  const Value w = g.parameter("w", f32, {4}), limit = g.input("limit", f32, {});
  const Value y = while_loop(
      {w}, [&](const Values& v) { return less(sum(v[0]), limit); },
      [&](const Values& v) { return Values{v[0] * 2.0}; })[0];
  assign(w, y + 1.0);
  const Plan plan = plan_for_gpu(g);
  const Schedule schedule = make_schedule(plan, {.repeats = 2});
  std::string text;
  for (const LaunchEntry& entry : schedule.entries) {
    const char* const names[] = {"launch", "fused", "print", "guard", "poll", "choice", "again"};
    text += names[static_cast<std::size_t>(entry.kind)];
    if (schedule.holds_bodies(entry)) {
      const Choice& choice = schedule.choice_of(entry);
      text += fmt::format("[{} to {}]", choice.bodies[0].first, choice.end);
    }
    text += ' ';
  }
  // The carry's start, the condition, the choice; a turn: the body and the condition; after the guard the kernel that
  // writes w.
  const std::string run = "launch launch choice[{} to {}] launch launch again guard launch ";
  EXPECT_EQ(text, fmt::format(fmt::runtime(run), 3, 6) + fmt::format(fmt::runtime(run), 11, 14)) << to_string(plan);
}

// The index of c follows from b, so c waits for it; a, which is planned after c, could be anywhere.
TEST(GpuOrder, HasOneChoiceForBranchesSideBySide) {
  Graph g;
  const Value p = g.input("p", boolean, {}), q = g.input("q", boolean, {}), x = g.input("x", f32, {4});
  const auto branch = [&](const Value& which, double factor) {
    return cond(
        which, [&] { return x * factor; }, [&] { return exp(x * factor); });
  };
  const Value a = branch(p, 2), b = branch(q, 3), c = branch(less(sum(b), 1.0), 4);
  g.fetch("a", a), g.fetch("b", b), g.fetch("c", c);
  const Plan plan = plan_for_gpu(g);
  const Schedule schedule = make_schedule(plan);
  std::vector<std::size_t> chosen;
  for (const LaunchEntry& each : schedule.entries) {
    if (each.kind == LaunchEntry::Kind::choice) chosen.push_back(schedule.choice_of(each).selects.size());
  }
  EXPECT_EQ(chosen, (std::vector<std::size_t>{1, 2})) << to_string(plan);
}

// In a caller's stream the device chooses as in a captured run: small branches by words that their kernels ask, a loop
// by a conditional node.
TEST(GpuOrder, InACallersStreamIsThatOfACapturedRun) {
  Graph g;
  const Value p = g.input("p", boolean, {}), x = g.input("x", f32, {4}), limit = g.input("limit", f32, {});
  const Value y = cond(
      p, [&] { return sum(exp(x)); }, [&] { return sum(x * 3.0) + 1.0; });
  g.fetch("z", while_loop(
                   {x * y}, [&](const Values& v) { return less(sum(v[0]), limit); },
                   [&](const Values& v) { return Values{v[0] * 2.0}; })[0]);
  const Plan plan = plan_for_gpu(g);
  const Schedule captured = make_schedule(plan), placed = make_schedule(plan, {.in_callers_stream = true});
  std::set<std::pair<std::size_t, std::size_t>> asked;
  std::vector<LaunchEntry::Kind> kinds;
  for (const LaunchEntry& entry : placed.entries) {
    kinds.push_back(entry.kind);
    if (entry.branch < 0) continue;
    const Branch& branch = placed.branches[static_cast<std::size_t>(entry.branch)];
    asked.emplace(branch.select, branch.number);
    const Launch& select = placed.launches[branch.select];
    EXPECT_GE(entry.launch, select.targets[branch.number]);
    EXPECT_LT(entry.launch, select.end);
    EXPECT_EQ(entry.body_of, -1);
  }
  EXPECT_EQ(asked.size(), 2u) << to_string(placed);
  std::vector<LaunchEntry::Kind> of_captured;
  for (const LaunchEntry& entry : captured.entries) {
    if (entry.kind != LaunchEntry::Kind::guard && entry.kind != LaunchEntry::Kind::poll)
      of_captured.push_back(entry.kind);
  }
  EXPECT_EQ(kinds, of_captured) << to_string(captured);
  EXPECT_TRUE(placed.needs_graph());
  EXPECT_FALSE(placed.guards.has_guard());
}

TEST(HostSteps, StandTogetherAndReadWhatIsFedWithoutACopy) {
  Graph g;
  const Value x = g.input("x", f32, {1}), y = g.input("y", f32, {1}), z = g.input("z", f32, {64});
  Value p, q, r;
  const Value first = exp(z);
  {
    const OnCpu scope(g);
    p = less(x, y);
  }
  const Value second = sum(first);
  {
    const OnCpu scope(g);
    q = less(y, x * 3.0);
    r = less(second, 3.0);  // of the device
  }
  g.fetch("a", where(p, first, z));
  g.fetch("b", where(q, first, z * 2.0));
  g.fetch("c", where(r, first, z * 3.0));
  const Plan plan = plan_for_gpu(g);
  const auto segments = host_segments(plan);
  ASSERT_EQ(segments.size(), 2u) << to_string(plan);
  const auto names = [&](std::size_t segment, bool HostWindow::*which) {
    std::vector<std::string> all;
    for (const HostWindow& window : segments[segment]->windows) {
      if (window.*which) all.push_back(plan.slots[static_cast<std::size_t>(window.slot)].name);
    }
    std::ranges::sort(all);
    return all;
  };
  EXPECT_EQ(names(0, &HostWindow::is_fed), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(names(0, &HostWindow::is_input), (std::vector<std::string>{"x", "y"}));
  EXPECT_EQ(names(0, &HostWindow::is_output).size(), 2u);
  EXPECT_EQ(names(1, &HostWindow::is_input).size(), 1u);
  EXPECT_EQ(names(1, &HostWindow::is_output).size(), 1u);
  EXPECT_EQ(segments[0]->plan.target->kind, DeviceKind::cpu);
  for (const auto& segment : segments) {
    for (const Step& step : segment->plan.steps) EXPECT_EQ(step.text, nullptr);
  }
}

// A segment in a loop copies only the elements that one turn touches.
TEST(HostSteps, InALoopCopyWhatATurnTouches) {
  Graph g;
  const Value x = g.input("x", f32, {3}), xs = g.input("xs", f32, {4, 3});
  g.fetch("y", scan({x}, {tanh(xs)}, [&](const Values& c, const Values& e) {
                 const Value doubled = c[0] * 2.0;
                 const OnCpu here(c[0].graph());
                 return step({tanh(doubled) + e[0]}, {});
               }).carries[0]);
  const Plan plan = plan_for_gpu(g);
  const auto segments = host_segments(plan);
  ASSERT_EQ(segments.size(), 1u) << to_string(plan);
  EXPECT_NE(segments[0]->list, &plan.steps);
  for (const HostWindow& window : segments[0]->windows) EXPECT_EQ(window.bytes, 12) << to_string(plan);
  EXPECT_TRUE(has(fmt::format("{}", fmt::join(plan.notes, "; ")), "what is around is driven by the host"));
}

}  // namespace
}  // namespace paoding::testing_program
