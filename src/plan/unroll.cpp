// SPDX-License-Identifier: Apache-2.0
// From steps to one flat list: loops unrolled, branches and loops without a length as entries that choose the next
// entry.
#include <algorithm>
#include <span>

#include "base/cancel_poll.h"
#include "base/check.h"
#include "base/memory.h"
#include "plan/plan.h"

namespace paoding {
namespace {

// Whether nothing comes of running the step: all that it writes is empty, and it checks nothing.
bool is_idle(const Step& step) {
  if ((step.kind != Step::Kind::group && step.kind != Step::Kind::kernel) || may_fault(step)) return false;
  const auto written = std::span(step.operands).subspan(step.reads);
  return !written.empty() &&
         std::ranges::all_of(written, [](const Operand& operand) { return size_bytes(operand.layout.type) == 0; });
}

class Unroller {
 public:
  Unroller(const Plan& plan, std::size_t count) : turn_(static_cast<std::size_t>(plan.loops), 0) {
    launches_.reserve(count);
  }

  void walk(const Plan& plan) {
    const auto commit = plan.steps.begin() + static_cast<std::ptrdiff_t>(plan.commit);
    is_commit_ = false;
    walk({plan.steps.begin(), commit}, 0);
    is_commit_ = true;
    walk({commit, plan.steps.end()}, 0);
  }

  std::vector<Launch> take() { return std::move(launches_); }

 private:
  void walk(std::span<const Step> steps, std::int64_t instance) {
    for (const Step& step : steps) {
      switch (step.kind) {
        case Step::Kind::loop:
          if (count_launches(step.body) == 0) break;  // however often
          for (std::int64_t s = 0; s < step.length; ++s) {
            poll_();
            turn_[static_cast<std::size_t>(step.loop)] = s;
            walk(step.body, s);
          }
          break;
        case Step::Kind::branch: branch(step, instance); break;
        case Step::Kind::repeat: repeat(step, instance); break;
        default:
          if (!is_idle(step)) add(step, instance, Launch::Kind::run);
      }
    }
  }

  std::size_t add(const Step& step, std::int64_t instance, Launch::Kind kind) {
    Launch launch{&step, instance, {}, kind, {}, is_commit_, 0};
    for (std::size_t i = 0; kind != Launch::Kind::jump && i < step.operands.size(); ++i) {
      const Operand& operand = step.operands[i];
      std::int64_t offset = operand.offset;
      for (const LoopTerm& term : operand.terms) {
        std::int64_t count = turn_[static_cast<std::size_t>(term.loop)] + term.shift;
        if (term.modulus != 0) count %= term.modulus;
        offset += count * term.stride;
      }
      launch.addresses.emplace_back(operand.slot, offset);
    }
    launches_.push_back(std::move(launch));
    return launches_.size() - 1;
  }

  void branch(const Step& step, std::int64_t instance) {
    const std::size_t select = add(step, instance, Launch::Kind::select);
    std::vector<std::size_t> jumps;
    for (std::size_t k = 0; k < step.branches.size(); ++k) {
      launches_[select].targets.push_back(launches_.size());
      walk(step.branches[k], instance);
      if (k + 1 < step.branches.size()) jumps.push_back(add(step, instance, Launch::Kind::jump));
    }
    for (std::size_t jump : jumps) launches_[jump].targets = {launches_.size()};
    launches_[select].end = launches_.size();
  }

  void repeat(const Step& step, std::int64_t instance) {
    const std::size_t start = launches_.size();
    walk(step.condition, instance);
    const std::size_t select = add(step, instance, Launch::Kind::select);
    const std::size_t body = launches_.size();
    walk(step.body, instance);
    launches_[add(step, instance, Launch::Kind::jump)].targets = {start};
    launches_[select].targets = {launches_.size(), body};  // false, true
    launches_[select].end = launches_.size();
  }

  const CancelPoll poll_;
  bool is_commit_ = false;
  std::vector<std::int64_t> turn_;  // per loop
  std::vector<Launch> launches_;
};

// Asks for the memory of a long list at once, before a machine without it takes minutes to find out.
void require_launches(std::int64_t count) {
  constexpr std::int64_t kBytes = 300;  // of a launch here and in an executor
  constexpr std::int64_t kMany = 1 << 16;
  if (count < kMany) return;
  const std::string what = fmt::format("plan: a run of {} launches", count);
  if (count * kBytes > machine_bytes()) fail_without_memory(what, count * kBytes);
  require_memory(what, count * kBytes);
}

}  // namespace

std::int64_t count_launches(const std::vector<Step>& steps) {
  constexpr std::int64_t kMost = std::int64_t{1} << 62;
  std::int64_t count = 0;
  const auto add = [&](std::int64_t more) { count = more > kMost - count ? kMost : count + more; };
  for (const Step& step : steps) {
    if (step.kind == Step::Kind::loop) {
      const std::int64_t in_body = count_launches(step.body);
      add(step.length == 0 ? 0 : in_body > kMost / step.length ? kMost : in_body * step.length);
      continue;
    }
    if (!is_idle(step)) add(step.kind == Step::Kind::repeat ? 2 : 1);
    for (const auto* body : step.bodies()) add(count_launches(*body));
    if (!step.branches.empty()) add(static_cast<std::int64_t>(step.branches.size()) - 1);
  }
  return count;
}

std::vector<Launch> unroll(const Plan& plan, int repeats) {
  const std::int64_t per_run = count_launches(plan.steps);
  if (per_run > kMaxLaunches / repeats) {
    fail(ErrorKind::unsupported,
         "plan: a run has {} launches, at most {} are possible\nhint: shorter scans, or several runs", per_run,
         kMaxLaunches / repeats);
  }
  require_launches(per_run * repeats);
  Unroller unroller(plan, static_cast<std::size_t>(per_run * repeats));
  for (int i = 0; i < repeats; ++i) unroller.walk(plan);
  return unroller.take();
}

}  // namespace paoding
