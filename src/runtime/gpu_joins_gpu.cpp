// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "gpu/chained_launch.h"
#include "gpu/joined_launch.h"
#include "runtime/chains.h"
#include "runtime/gpu_joins.h"
#include "runtime/independent.h"
#include "runtime/sites.h"

namespace paoding {
namespace {

constexpr std::size_t kMostLaunches = 256;  // that are looked at together

// A step that is one kernel of our own.
const gpu::TextLaunch* only_kernel(const Step& step) {
  return step.text != nullptr && step.text->launches.size() == 1 ? &step.text->launches[0] : nullptr;
}

}  // namespace

GpuJoins::GpuJoins(const std::vector<Launch>& launches, const std::vector<CUdeviceptr>& bases,
                   const std::vector<int>& kind, const Target& target) {
  std::vector<std::byte*> addresses;
  for (const CUdeviceptr base : bases) addresses.push_back(reinterpret_cast<std::byte*>(base));
  Chains chains(launches, addresses, kind, target);
  std::vector<bool> is_chained(launches.size());
  for (const Chain& chain : chains.all()) {
    std::vector<std::size_t> places;
    std::vector<const Step*> steps;
    std::vector<const gpu::ChainPhase*> phases;
    for (std::size_t i = chain.begin; i < chain.end(); ++i) {
      is_chained[i] = true;
      places.push_back(i);
      steps.push_back(launches[i].step);
      phases.push_back(&chains.phase(launches[i].step, chain.axes[i - chain.begin]));
    }
    Kernel& kernel = kernels_[{steps, chain.axes}];
    if (kernel.shared == nullptr) {
      kernel = {steps, std::make_unique<gpu::ChainedLaunch>(phases, chain.shares, target), nullptr};
    }
    place_of_.resize(launches.size());
    add(std::move(places), &kernel);
  }
  for (const auto& [begin, end] : independent_stretches(launches, addresses, kMostLaunches)) {
    std::map<int, std::vector<std::size_t>> of_kind;
    for (std::size_t i = begin; i < end; ++i) {
      if (!is_chained[i] && only_kernel(*launches[i].step) != nullptr) of_kind[kind[i]].push_back(i);
    }
    for (const auto& [same, list] : of_kind) {
      std::vector<gpu::JoinMember> members;
      for (const std::size_t i : list) {
        members.push_back({only_kernel(*launches[i].step), launches[i].step->operands.size()});
      }
      for (const std::vector<std::size_t>& joined : gpu::joins_of(members)) {
        std::vector<std::size_t> places;
        std::vector<const Step*> steps;
        std::vector<gpu::JoinMember> each;
        for (const std::size_t place : joined) {
          places.push_back(list[place]);
          steps.push_back(launches[list[place]].step);
          each.push_back(members[place]);
        }
        Kernel& kernel = kernels_[{steps, {}}];
        if (kernel.shared == nullptr) kernel = {steps, std::make_unique<gpu::JoinedLaunch>(each, target), nullptr};
        place_of_.resize(launches.size());
        add(std::move(places), &kernel);
      }
    }
  }
}

void GpuJoins::add(std::vector<std::size_t> launches, Kernel* kernel) {
  for (const std::size_t i : launches) place_of_[i] = {static_cast<int>(joins_.size()), i == launches.front()};
  joins_.push_back({kernel, std::move(launches)});
}

std::vector<std::string> GpuJoins::sources() const {
  std::set<std::string> texts;
  for (const auto& [steps, kernel] : kernels_) texts.insert(kernel.shared->launch().source);
  return {texts.begin(), texts.end()};
}

void GpuJoins::load(const gpu::GpuDevice& device) {
  for (auto& [steps, kernel] : kernels_) {
    kernel.loaded = std::make_unique<gpu::LoadedKernel>(device, kernel.shared->launch(), 0);
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
    join.kernel->shared->place(m, run.operands, run.scratch, run.tickets);
  }
  join.kernel->loaded->start(stream, nullptr, {nullptr, nullptr, first.fault, first.failed, first.stamp});
}

std::vector<std::pair<std::size_t, profile::SiteId>> GpuJoins::sites() const {
  std::map<const Kernel*, profile::SiteId> of_kernel;
  std::vector<std::pair<std::size_t, profile::SiteId>> found;
  for (const Join& join : joins_) {
    auto site = of_kernel.find(join.kernel);
    if (site == of_kernel.end()) {
      site =
          of_kernel.emplace(join.kernel, sites_of_batch(join.kernel->steps, join.kernel->shared->launch().entry).kernel)
              .first;
    }
    found.emplace_back(join.launches.front(), site->second);
  }
  return found;
}

}  // namespace paoding
