// SPDX-License-Identifier: Apache-2.0
#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "gpu/chained_launch.h"
#include "gpu/joined_launch.h"
#include "gpu/stacked_launch.h"
#include "runtime/chains.h"
#include "runtime/gpu_gate.h"
#include "runtime/gpu_joins.h"
#include "runtime/independent.h"
#include "runtime/sites.h"
#include "runtime/stacks.h"

namespace paoding {
namespace {

constexpr std::size_t kMostLaunches = 256;  // that are looked at together

// Whether a step may go together with its likes: one kernel of our own, or a group and what adds up behind it.
bool may_join(const Step& step) {
  if (step.text == nullptr || step.text->launches.empty()) return false;
  return step.text->launches.size() == 1 || step.kind == Step::Kind::group;
}

std::vector<gpu::JoinMember> members_of(const std::vector<const Step*>& steps, std::size_t kernel) {
  std::vector<gpu::JoinMember> members;
  for (const Step* step : steps) members.push_back({&step->text->launches[kernel], step->operands.size()});
  return members;
}

// Whether what comes behind the steps' first kernels, which go together, does so too.
bool all_join(const std::vector<const Step*>& steps) {
  const std::size_t count = steps[0]->text->launches.size();
  for (const Step* step : steps) {
    if (step->text->launches.size() != count) return false;
  }
  for (std::size_t kernel = 1; kernel < count; ++kernel) {
    const auto joined = gpu::joins_of(members_of(steps, kernel));
    if (joined.size() != 1 || joined[0].size() != steps.size()) return false;
  }
  return true;
}

// "3 to 6, 9"
std::string positions_of(const std::vector<const Step*>& steps) {
  std::string text;
  for (std::size_t i = 0; i < steps.size();) {
    std::size_t end = i + 1;
    while (end < steps.size() && steps[end]->position == steps[end - 1]->position + 1) ++end;
    if (!text.empty()) text += ", ";
    text += fmt::format("{}", steps[i]->position);
    if (end > i + 1) text += fmt::format("{}{}", end > i + 2 ? " to " : ", ", steps[end - 1]->position);
    i = end;
  }
  return text;
}

}  // namespace

GpuJoins::GpuJoins(const std::vector<Launch>& launches, const std::vector<CUdeviceptr>& bases,
                   const std::vector<int>& kind, const Target& target) {
  std::vector<std::byte*> addresses;
  for (const CUdeviceptr base : bases) addresses.push_back(reinterpret_cast<std::byte*>(base));
  Chains chains(launches, addresses, kind, target);
  std::vector<bool> is_shared(launches.size());
  for (const Chain& chain : chains.all()) {
    std::vector<std::size_t> places;
    std::vector<const Step*> steps;
    std::vector<const gpu::ChainPhase*> phases;
    for (std::size_t i = chain.begin; i < chain.end(); ++i) {
      is_shared[i] = true;
      places.push_back(i);
      steps.push_back(launches[i].step);
      phases.push_back(&chains.phase(launches[i].step, chain.axes[i - chain.begin]));
    }
    Kernel& kernel = kernels_[{steps, chain.axes}];
    if (kernel.shared.empty()) {
      kernel.steps = steps;
      kernel.shared.push_back(std::make_unique<gpu::ChainedLaunch>(phases, chain.shares, target));
      kernel.expected = fmt::format("; {:.1f} us expected, {:.1f} apart", chain.chain_us, chain.alone_us);
    }
    place_of_.resize(launches.size());
    add(std::move(places), &kernel);
  }
  for (const Stack& stack : stacks_of(launches, addresses, kind, &notes_)) {
    std::vector<std::size_t> places;
    std::vector<const Step*> steps, layers;
    for (std::size_t i = stack.begin; i < stack.end(); ++i) {
      is_shared[i] = true;
      places.push_back(i);
      steps.push_back(launches[i].step);
      const bool is_layer = (i - stack.begin) % 2 == 0;
      if (is_layer) layers.push_back(launches[i].step);
    }
    Kernel& kernel = kernels_[{steps, {}}];
    if (kernel.shared.empty()) {
      kernel.steps = steps;
      kernel.shared.push_back(std::make_unique<gpu::StackedLaunch>(members_of(layers, 0), kStackWeights, target));
    }
    place_of_.resize(launches.size());
    add(std::move(places), &kernel);
  }
  for (const auto& [begin, end] : independent_stretches(launches, addresses, kMostLaunches)) {
    std::map<int, std::vector<std::size_t>> of_kind;
    for (std::size_t i = begin; i < end; ++i) {
      if (!is_shared[i] && may_join(*launches[i].step)) of_kind[kind[i]].push_back(i);
    }
    for (const auto& [same, list] : of_kind) {
      std::vector<const Step*> of_list;
      for (const std::size_t i : list) of_list.push_back(launches[i].step);
      for (const std::vector<std::size_t>& joined : gpu::joins_of(members_of(of_list, 0))) {
        std::vector<std::size_t> places;
        std::vector<const Step*> steps;
        for (const std::size_t place : joined) {
          places.push_back(list[place]);
          steps.push_back(of_list[place]);
        }
        if (!all_join(steps)) continue;
        Kernel& kernel = kernels_[{steps, {}}];
        kernel.steps = steps;
        for (std::size_t k = kernel.shared.size(); k < steps[0]->text->launches.size(); ++k) {
          kernel.shared.push_back(std::make_unique<gpu::JoinedLaunch>(members_of(steps, k), target));
        }
        place_of_.resize(launches.size());
        add(std::move(places), &kernel);
      }
    }
  }
  take_notes(launches, &chains);
}

void GpuJoins::take_notes(const std::vector<Launch>& launches, Chains* chains) {
  std::map<const Kernel*, int> times;
  for (const Join& join : joins_) ++times[join.kernel];
  for (const Join& join : joins_) {
    int& count = times[join.kernel];
    if (count == 0) continue;  // noted
    notes_.push_back(fmt::format("steps {}: {}{}{}", positions_of(join.kernel->steps),
                                 join.kernel->shared[0]->launch().why,
                                 count > 1 ? fmt::format(", {} times", count) : "", join.kernel->expected));
    count = 0;
  }
  std::set<std::pair<const Step*, const Step*>> noted;
  for (std::size_t i = 0; i + 1 < launches.size(); ++i) {
    const Step *first = launches[i].step, *second = launches[i + 1].step;
    if (has(i) && has(i + 1) && place_of_[i].join == place_of_[i + 1].join) continue;
    if (!noted.emplace(first, second).second) continue;
    const std::string why = chains->why_not(i);
    if (why.empty()) continue;
    notes_.push_back(
        fmt::format("step {} does not run with {}, which it reads: {}", second->position, first->position, why));
  }
}

std::vector<std::string> notes_of_joins(const Plan& plan) {
  const std::vector<Launch> launches = unroll(plan);
  std::vector<CUdeviceptr> bases;
  constexpr CUdeviceptr kApart = CUdeviceptr{1} << 40;  // as no slot is larger
  for (const Slot& slot : plan.slots) {
    const bool is_alone =
        slot.kind == SlotKind::parameter || slot.kind == SlotKind::input || slot.kind == SlotKind::state;
    bases.push_back(is_alone ? (bases.size() + 2) * kApart : kApart + static_cast<CUdeviceptr>(slot.offset));
  }
  const GatePlan gates = plan_gates(plan, launches, 1, Execution::captured);
  return GpuJoins(launches, bases, gates.kinds(launches), *plan.target).notes();
}

void GpuJoins::add(std::vector<std::size_t> launches, Kernel* kernel) {
  for (const std::size_t i : launches) place_of_[i] = {static_cast<int>(joins_.size()), i == launches.front()};
  joins_.push_back({kernel, std::move(launches)});
}

std::vector<std::string> GpuJoins::sources() const {
  std::set<std::string> texts;
  for (const auto& [steps, kernel] : kernels_) {
    for (const auto& shared : kernel.shared) texts.insert(shared->launch().source);
  }
  return {texts.begin(), texts.end()};
}

void GpuJoins::load(const gpu::GpuDevice& device) {
  for (auto& [steps, kernel] : kernels_) {
    for (const auto& shared : kernel.shared) kernel.loaded.emplace_back(device, shared->launch(), 0);
  }
}

std::int64_t GpuJoins::saved_launches() const {
  std::int64_t saved = 0;
  for (const Join& join : joins_) saved += static_cast<std::int64_t>(join.launches.size()) - 1;
  return saved;
}

void GpuJoins::start(std::size_t i, CUstream stream, const std::function<KernelRun(std::size_t)>& run_of) const {
  if (!place_of_[i].is_first) return;
  const Join& join = joins_[static_cast<std::size_t>(place_of_[i].join)];
  const KernelRun first = run_of(i);
  for (std::size_t m = 0; m < join.launches.size(); ++m) {
    const KernelRun run = run_of(join.launches[m]);
    for (const auto& shared : join.kernel->shared) shared->place(m, run.operands, run.scratch, run.tickets);
  }
  void* stamp = first.stamp;
  for (const gpu::LoadedKernel& kernel : join.kernel->loaded) {
    kernel.start(stream, nullptr, {nullptr, nullptr, first.fault, first.failed, std::exchange(stamp, nullptr)});
  }
}

std::vector<std::pair<std::size_t, profile::SiteId>> GpuJoins::sites() const {
  std::map<const Kernel*, profile::SiteId> of_kernel;
  std::vector<std::pair<std::size_t, profile::SiteId>> found;
  for (const Join& join : joins_) {
    auto site = of_kernel.find(join.kernel);
    if (site == of_kernel.end()) {
      site =
          of_kernel
              .emplace(join.kernel, sites_of_batch(join.kernel->steps, join.kernel->shared[0]->launch().entry).kernel)
              .first;
    }
    found.emplace_back(join.launches.front(), site->second);
  }
  return found;
}

}  // namespace paoding
