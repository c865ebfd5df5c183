// SPDX-License-Identifier: Apache-2.0
// How a branch runs on a GPU. Where its bodies are few kernels of our own, all are launched, and those of a branch that
// is not taken return at once; else they are bodies of a conditional node, which is dearer to enter.
#include "plan/choice.h"

#include <algorithm>

#include "base/check.h"
#include "base/one_line.h"
#include "plan/host_steps.h"

namespace paoding {
namespace {

// Measured on an H200: a kernel that returns at once, and a conditional node around the branch that is taken.
constexpr double kReturnUs = 0.6, kNodeUs = 6.8;
constexpr auto kMostReturns = static_cast<std::int64_t>(kNodeUs / kReturnUs);

// Why the launches of these steps cannot look at a word before they write; empty when they can.
std::string asks_nothing(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    switch (step.kind) {
      case Step::Kind::group:
      case Step::Kind::print: break;
      case Step::Kind::kernel:
        if (step.text == nullptr) return fmt::format("{} is {}'s", one_line(step.label.op), step.kernel->name);
        break;
      default: {
        std::string why;
        for (const auto* body : step.bodies()) {
          // Steps inside a conditional node do not run where the node does not.
          const bool is_held = step.is_conditional || (step.kind == Step::Kind::repeat && body == &step.body);
          if (!is_held && why.empty()) why = asks_nothing(*body);
        }
        if (!why.empty()) return why;
      }
    }
  }
  return "";
}

}  // namespace

void choose_form(Step* step, Plan* plan) {
  std::int64_t all = 0, least = kMaxLaunches;
  std::string why;
  bool is_asked = false;
  for (const std::vector<Step>& branch : step->branches) {
    const std::int64_t launches = std::min(count_launches(branch), kMaxLaunches);
    all += launches;
    least = std::min(least, launches);
    is_asked |= std::ranges::any_of(branch, [&](const Step& each) { return holds_host_steps(*plan->target, each); });
    if (why.empty()) why = asks_nothing(branch);
  }
  const std::int64_t returns = all - least;  // at most, in a run
  if (why.empty() && returns > kMostReturns) {
    why = fmt::format("{} launches would return at once, more than {}", returns, kMostReturns);
  }
  step->is_conditional = !is_asked && !why.empty();
  const std::string who = fmt::format("{}{}", one_line(step->label.op), in_scope(step->label.scope));
  if (is_asked) {
    plan->notes.push_back(who + ": the host chooses, since a part runs on the CPU");
    return;
  }
  plan->notes.push_back(
      step->is_conditional
          ? fmt::format("{}: a conditional node: {}", who, why)
          : fmt::format("{}: kernels of branches not taken return at once, at most {} of them", who, returns));
}

}  // namespace paoding
