// SPDX-License-Identifier: Apache-2.0
#include "schedule/guards.h"

#include <unordered_map>

#include "plan/host_steps.h"
#include "plan/step_work.h"

namespace paoding {
namespace {

// Places cancellation polls in a long run, one every kBetweenUs or kBetweenLaunches, since a poll takes about 3 us. The
// launches that ask read the polled word from L2: all of them in a run of many launches, else those that are long
// enough for the read not to matter.
void place_polls(const std::vector<Launch>& launches, const std::vector<double>& expected_us, GuardPlan* plan) {
  constexpr double kBetweenUs = 20'000, kLongLaunchUs = 20;
  constexpr std::size_t kBetweenLaunches = 1024;
  const bool all_ask = static_cast<std::int64_t>(launches.size()) > kManyLaunches;
  double since_us = 0;
  std::size_t since = 0;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    if (launches[i].kind != Launch::Kind::run) continue;
    if (since_us >= kBetweenUs || since >= kBetweenLaunches || plan->polls.empty())
      plan->polls.push_back(i), since_us = 0, since = 0;
    since_us += expected_us[i], ++since;
    const bool is_text = launches[i].step->text != nullptr;
    plan->asks[i] = is_text && plan->writes[i] == 0 && (all_ask || expected_us[i] >= kLongLaunchUs);
  }
}

}  // namespace

GuardPlan plan_guards(const Plan& plan, const std::vector<Launch>& launches, int repeats, Execution execution) {
  GuardPlan made;
  bool can_fail = false, all_are_text = true;
  std::unordered_map<const Step*, double> expected;
  std::vector<double> expected_us;
  for (const Launch& launch : launches) {
    const Step& step = *launch.step;
    const bool on_host = runs_on_host(*plan.target, step);
    const bool may_fault = step.kind == Step::Kind::kernel && step.kernel->faults == Faults::possible && !on_host;
    const bool writes = writes_parameter(plan, step);
    made.may_fault.push_back(may_fault);
    made.writes.push_back(writes);
    made.has_loop |= step.kind == Step::Kind::repeat && !on_host;
    can_fail |= may_fault || made.has_loop;
    all_are_text &= !writes || step.text != nullptr || launch.kind != Launch::Kind::run;
    const auto [found, is_new] = expected.try_emplace(&step, 0);
    if (is_new && launch.kind == Launch::Kind::run) found->second = paoding::expected_us(step, *plan.target);
    expected_us.push_back(found->second);
    made.expected_us += found->second;
  }
  made.asks.assign(launches.size(), 0);
  if (execution == Execution::stepwise) return made;
  const bool is_long = static_cast<std::int64_t>(launches.size()) > kManyLaunches || made.expected_us > kLongRunUs;
  if (is_long && all_are_text) place_polls(launches, expected_us, &made);
  if (!can_fail && made.polls.empty()) return made;
  const std::size_t size = launches.size() / static_cast<std::size_t>(repeats);
  for (std::size_t begin = 0; begin < launches.size(); begin += size) {
    std::size_t commit = begin;
    while (commit < begin + size && !launches[commit].is_commit) ++commit;
    const bool is_last = begin + size == launches.size(), writes = commit < begin + size;
    if (commit != begin && (can_fail || writes || is_last)) made.guards.push_back(commit - 1);
  }
  if (made.guards.empty()) {  // the run is a commit alone, which is not cancelled
    made.polls.clear();
    made.asks.assign(launches.size(), 0);
  }
  return made;
}

std::vector<int> GuardPlan::kinds(const std::vector<Launch>& launches) const {
  std::vector<int> all;
  all.reserve(launches.size());
  int passed = 0;
  for (std::size_t i = 0; i < launches.size(); ++i) {
    all.push_back(passed * 8 + (launches[i].is_commit ? 4 : 0) + (writes[i] != 0 ? 2 : 0) + (asks[i] != 0 ? 1 : 0));
    passed += static_cast<std::size_t>(passed) < guards.size() && guards[static_cast<std::size_t>(passed)] == i ? 1 : 0;
  }
  return all;
}

}  // namespace paoding
