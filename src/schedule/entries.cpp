// SPDX-License-Identifier: Apache-2.0
// The entries of a schedule: its launches, walked as the tree that the plan was, and between them guards, polls and
// choices.
#include <algorithm>

#include "gpu/codegen/text_launch.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

using Kind = LaunchEntry::Kind;

class Entries {
 public:
  Entries(Schedule* schedule, bool is_stepwise)
      : schedule_(*schedule), launches_(schedule->launches), is_stepwise_(is_stepwise) {
    if (schedule->fused.empty()) return;
    fused_of_.assign(launches_.size(), -1);
    for (std::size_t f = 0; f < schedule->fused.size(); ++f) {
      for (const std::size_t i : schedule->fused[f].launches) fused_of_[i] = static_cast<int>(f);
    }
  }

  void add_all() {
    auto guard = schedule_.guards.guards.begin();
    const auto last = schedule_.guards.guards.end();
    for (std::size_t i = 0; i < launches_.size();) {
      const std::size_t next = add(i, &beside_);
      // After all that the launches of before the commit are in.
      for (; guard != last && *guard < next; ++guard) push(Kind::guard, *guard);
      i = next;
    }
    if (!schedule_.results.results.empty() && !launches_.empty()) push(Kind::results, launches_.size() - 1);
  }

 private:
  // The choice that stands last in a list of launches, where only its branches are after it.
  struct Beside {
    int choice = -1;
    std::size_t end = 0;
  };

  void push(Kind kind, std::size_t launch, int choice = -1, int fused = -1) {
    schedule_.entries.push_back({kind, launch, fused, choice, body_of_, branch_});
    LaunchEntry& entry = schedule_.entries.back();
    if (kind == Kind::fused) entry.overlaps_before = schedule_.fused[static_cast<std::size_t>(fused)].overlaps_before;
    if (kind == Kind::launch) entry.overlaps_before = overlaps_before(*launches_[launch].step);
  }
  static bool overlaps_before(const Step& step) {
    return step.text != nullptr && !step.text->launches.empty() && step.text->launches.front().overlaps_before;
  }
  Choice& choice(int number) { return schedule_.choices[static_cast<std::size_t>(number)]; }

  void walk(std::size_t begin, std::size_t end) {
    Beside beside;
    for (std::size_t i = begin; i < end;) i = add(i, &beside);
  }

  // The entry that starts the launch; none where that is another launch's.
  void add_launch(std::size_t i) {
    const int fused = fused_of_.empty() ? -1 : fused_of_[i];
    if (fused >= 0) {
      const bool is_first = schedule_.fused[static_cast<std::size_t>(fused)].launches.front() == i;
      if (is_first) push(Kind::fused, i, -1, fused);
      return;
    }
    push(launches_[i].step->kind == Step::Kind::print ? Kind::print : Kind::launch, i);
  }

  // Adds the entries of the launch; returns the launch after them.
  std::size_t add(std::size_t i, Beside* beside) {
    const Launch& launch = launches_[i];
    if (const HostRun* run = schedule_.host.find(i); run != nullptr) {
      push(Kind::host, i);
      return run->end;
    }
    if (std::ranges::binary_search(schedule_.guards.polls, i)) push(Kind::poll, i);
    if (launch.kind == Launch::Kind::run) add_launch(i);
    if (launch.kind != Launch::Kind::select) return i + 1;  // jumps are where bodies end
    const bool is_hosts = is_stepwise_ || holds_host(launch, i);
    if (!is_hosts && belongs_to(*beside, i)) {
      choice(beside->choice).selects.push_back(i);
      beside->end = launch.end;
      add_branches(i, -1);
      return launch.end;
    }
    const int number = static_cast<int>(schedule_.choices.size());
    schedule_.choices.emplace_back();
    push(is_hosts ? Kind::host_choice : Kind::choice, i, number);
    if (launch.step->kind == Step::Kind::repeat) {
      add_loop(launch, i, number, is_hosts);
    } else if (is_hosts || is_conditional(launch)) {
      add_branches(i, number);
    } else {
      choice(number).selects.push_back(i);
      *beside = {number, launch.end};
      add_branches(i, -1);
    }
    return launch.end;
  }

  // Whether a segment on the CPU is in a branch, or in the body or the condition of a loop.
  bool holds_host(const Launch& select, std::size_t i) const {
    const bool is_loop = select.step->kind == Step::Kind::repeat;
    return schedule_.host.begins_in(is_loop ? launches_[select.end - 1].targets[0] : i, select.end);
  }

  // Whether the choice can be made with the one beside it: its index is there by then. Turns of a loop have one step's
  // words, and so do not.
  bool belongs_to(const Beside& beside, std::size_t i) {
    constexpr std::size_t kMost = 8;
    const Launch& launch = launches_[i];
    if (beside.choice < 0 || beside.end != i || is_conditional(launch)) return false;
    const std::vector<std::size_t>& selects = choice(beside.choice).selects;
    const auto is_of_step = [&](std::size_t select) { return launches_[select].step == launch.step; };
    if (selects.size() == kMost || std::ranges::any_of(selects, is_of_step)) return false;
    if (launches_[selects.front()].is_commit != launch.is_commit) return false;  // a guard may stand between them
    const int index = launch.addresses[0].first;
    for (std::size_t j = selects.front(); j < i; ++j) {
      if (launches_[j].kind != Launch::Kind::run) continue;
      for (std::size_t k = launches_[j].step->reads; k < launches_[j].addresses.size(); ++k) {
        if (launches_[j].addresses[k].first == index) return false;
      }
    }
    return true;
  }

  // `number`: of the choice whose bodies the branches are; -1: they are started whatever is chosen.
  void add_branches(std::size_t i, int number) {
    const Launch& select = launches_[i];
    std::vector<std::pair<std::size_t, std::size_t>> bodies;
    const int around = number < 0 ? body_of_ : std::exchange(body_of_, number), branch_around = branch_;
    for (std::size_t k = 0; k < select.targets.size(); ++k) {
      const bool is_last = k + 1 == select.targets.size();
      const std::size_t first = schedule_.entries.size();
      if (number < 0) {
        branch_ = static_cast<int>(schedule_.branches.size());
        schedule_.branches.push_back({i, k});
      }
      walk(select.targets[k], is_last ? select.end : select.targets[k + 1] - 1);
      bodies.emplace_back(first, schedule_.entries.size());
    }
    body_of_ = around, branch_ = branch_around;
    if (number < 0) return;
    choice(number).bodies = std::move(bodies);
    choice(number).end = schedule_.entries.size();
  }

  // A turn is the body and, for the next one, the condition.
  void add_loop(const Launch& select, std::size_t i, int number, bool is_hosts) {
    const std::size_t first = schedule_.entries.size(), jump = select.end - 1;
    const int around = std::exchange(body_of_, number);
    walk(select.targets[1], jump);
    walk(launches_[jump].targets[0], i);
    if (!is_hosts) push(Kind::again, i, number);
    body_of_ = around;
    Choice& made = choice(number);
    made.bodies = {{first, schedule_.entries.size()}};
    made.end = schedule_.entries.size();
    made.is_loop = true;
  }

  Schedule& schedule_;
  const std::vector<Launch>& launches_;
  const bool is_stepwise_;
  std::vector<int> fused_of_;  // per launch; empty where nothing is fused
  Beside beside_;              // of the whole list
  int body_of_ = -1;           // of the entries that are added now
  int branch_ = -1;            // likewise
};

}  // namespace

bool is_conditional(const Launch& launch) {
  return launch.kind == Launch::Kind::select &&
         (launch.step->kind == Step::Kind::repeat || launch.step->is_conditional);
}

void order_entries(Schedule* schedule, bool is_stepwise) { Entries(schedule, is_stepwise).add_all(); }

}  // namespace paoding
