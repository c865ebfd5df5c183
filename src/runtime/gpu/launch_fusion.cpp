// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/launch_fusion.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "gpu/codegen/grouped_launch.h"
#include "gpu/codegen/pipelined_launch.h"
#include "gpu/codegen/vertical_launch.h"
#include "runtime/gpu/commit_guard.h"
#include "runtime/gpu/layer_pipelines.h"
#include "runtime/gpu/vertical_fusion.h"
#include "runtime/independent.h"
#include "runtime/sites.h"

namespace paoding {
namespace {

constexpr std::size_t kMostLaunches = 256;  // that are looked at together

// Whether a step may go together with its likes: one kernel of our own, or a group with the kernels that sum after it.
bool may_be_grouped(const Step& step) {
  if (step.text == nullptr || step.text->launches.empty()) return false;
  return step.text->launches.size() == 1 || step.kind == Step::Kind::group;
}

std::vector<gpu::FusedMember> members_of(const std::vector<const Step*>& steps, std::size_t kernel) {
  std::vector<gpu::FusedMember> members;
  for (const Step* step : steps) members.push_back({&step->text->launches[kernel], step->operands.size()});
  return members;
}

// Whether the kernels after the steps' first ones, which go together, do so too.
bool all_may_be_grouped(const std::vector<const Step*>& steps) {
  const std::size_t count = steps[0]->text->launches.size();
  for (const Step* step : steps) {
    if (step->text->launches.size() != count) return false;
  }
  for (std::size_t kernel = 1; kernel < count; ++kernel) {
    const auto grouped = gpu::launch_groups_of(members_of(steps, kernel));
    if (grouped.size() != 1 || grouped[0].size() != steps.size()) return false;
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

LaunchFusion::LaunchFusion(const std::vector<Launch>& launches, const std::vector<CUdeviceptr>& bases,
                           const std::vector<int>& kind, const Target& target) {
  std::vector<std::byte*> addresses;
  for (const CUdeviceptr base : bases) addresses.push_back(reinterpret_cast<std::byte*>(base));
  VerticalFusion vertical(launches, addresses, kind, target);
  std::vector<bool> is_fused(launches.size());
  for (const VerticalRun& run : vertical.all()) {
    std::vector<std::size_t> places;
    std::vector<const Step*> steps;
    std::vector<const gpu::FusedStage*> stages;
    for (std::size_t i = run.begin; i < run.end(); ++i) {
      is_fused[i] = true;
      places.push_back(i);
      steps.push_back(launches[i].step);
      stages.push_back(&vertical.stage(launches[i].step, run.axes[i - run.begin]));
    }
    Kernel& kernel = kernels_[{steps, run.axes}];
    if (kernel.launches.empty()) {
      kernel.steps = steps;
      kernel.launches.push_back(std::make_unique<gpu::VerticalLaunch>(stages, run.partitions, target));
      kernel.expected = fmt::format("; {:.1f} us expected, {:.1f} apart", run.fused_us, run.alone_us);
    }
    place_of_.resize(launches.size());
    add(std::move(places), &kernel);
  }
  for (const LayerPipeline& pipeline : layer_pipelines_of(launches, addresses, kind, &notes_)) {
    std::vector<std::size_t> places;
    std::vector<const Step*> steps, layers;
    for (std::size_t i = pipeline.begin; i < pipeline.end(); ++i) {
      is_fused[i] = true;
      places.push_back(i);
      steps.push_back(launches[i].step);
      const bool is_layer = (i - pipeline.begin) % 2 == 0;
      if (is_layer) layers.push_back(launches[i].step);
    }
    Kernel& kernel = kernels_[{steps, {}}];
    if (kernel.launches.empty()) {
      kernel.steps = steps;
      kernel.launches.push_back(
          std::make_unique<gpu::PipelinedLaunch>(members_of(layers, 0), kPipelineWeights, target));
    }
    place_of_.resize(launches.size());
    add(std::move(places), &kernel);
  }
  for (const auto& [begin, end] : independent_segments(launches, addresses, kMostLaunches)) {
    std::map<int, std::vector<std::size_t>> of_kind;
    for (std::size_t i = begin; i < end; ++i) {
      if (!is_fused[i] && may_be_grouped(*launches[i].step)) of_kind[kind[i]].push_back(i);
    }
    for (const auto& [same, list] : of_kind) {
      std::vector<const Step*> of_list;
      for (const std::size_t i : list) of_list.push_back(launches[i].step);
      for (const std::vector<std::size_t>& grouped : gpu::launch_groups_of(members_of(of_list, 0))) {
        std::vector<std::size_t> places;
        std::vector<const Step*> steps;
        for (const std::size_t place : grouped) {
          places.push_back(list[place]);
          steps.push_back(of_list[place]);
        }
        if (!all_may_be_grouped(steps)) continue;
        Kernel& kernel = kernels_[{steps, {}}];
        kernel.steps = steps;
        for (std::size_t k = kernel.launches.size(); k < steps[0]->text->launches.size(); ++k) {
          kernel.launches.push_back(std::make_unique<gpu::GroupedLaunch>(members_of(steps, k), target));
        }
        place_of_.resize(launches.size());
        add(std::move(places), &kernel);
      }
    }
  }
  take_notes(launches, &vertical);
}

void LaunchFusion::take_notes(const std::vector<Launch>& launches, VerticalFusion* vertical) {
  std::map<const Kernel*, int> times;
  for (const FusedSteps& fused : fused_) ++times[fused.kernel];
  for (const FusedSteps& fused : fused_) {
    int& count = times[fused.kernel];
    if (count == 0) continue;  // noted
    notes_.push_back(fmt::format("steps {}: {}{}{}", positions_of(fused.kernel->steps),
                                 fused.kernel->launches[0]->launch().why,
                                 count > 1 ? fmt::format(", {} times", count) : "", fused.kernel->expected));
    count = 0;
  }
  std::set<std::pair<const Step*, const Step*>> noted;
  for (std::size_t i = 0; i + 1 < launches.size(); ++i) {
    const Step *first = launches[i].step, *second = launches[i + 1].step;
    if (has(i) && has(i + 1) && place_of_[i].fused == place_of_[i + 1].fused) continue;
    if (!noted.emplace(first, second).second) continue;
    const std::string why = vertical->why_not(i);
    if (why.empty()) continue;
    notes_.push_back(
        fmt::format("step {} does not run with {}, which it reads: {}", second->position, first->position, why));
  }
}

std::vector<std::string> notes_of_fused_launches(const Plan& plan) {
  const std::vector<Launch> launches = unroll(plan);
  std::vector<CUdeviceptr> bases;
  constexpr CUdeviceptr kApart = CUdeviceptr{1} << 40;  // as no slot is larger
  for (const Slot& slot : plan.slots) {
    const bool is_alone =
        slot.kind == SlotKind::parameter || slot.kind == SlotKind::input || slot.kind == SlotKind::state;
    bases.push_back(is_alone ? (bases.size() + 2) * kApart : kApart + static_cast<CUdeviceptr>(slot.offset));
  }
  const GuardPlan guards = plan_guards(plan, launches, 1, Execution::captured);
  return LaunchFusion(launches, bases, guards.kinds(launches), *plan.target).notes();
}

void LaunchFusion::add(std::vector<std::size_t> launches, Kernel* kernel) {
  for (const std::size_t i : launches) place_of_[i] = {static_cast<int>(fused_.size()), i == launches.front()};
  fused_.push_back({kernel, std::move(launches)});
}

std::vector<std::string> LaunchFusion::sources() const {
  std::set<std::string> texts;
  for (const auto& [steps, kernel] : kernels_) {
    for (const auto& launch : kernel.launches) texts.insert(launch->launch().source);
  }
  return {texts.begin(), texts.end()};
}

void LaunchFusion::load(const gpu::GpuDevice& device) {
  for (auto& [steps, kernel] : kernels_) {
    for (const auto& launch : kernel.launches) kernel.loaded.emplace_back(device, launch->launch(), 0);
  }
}

std::int64_t LaunchFusion::saved_launches() const {
  std::int64_t saved = 0;
  for (const FusedSteps& fused : fused_) saved += static_cast<std::int64_t>(fused.launches.size()) - 1;
  return saved;
}

void LaunchFusion::start(std::size_t i, CUstream stream, const std::function<KernelRun(std::size_t)>& run_of) const {
  if (!place_of_[i].is_first) return;
  const FusedSteps& fused = fused_[static_cast<std::size_t>(place_of_[i].fused)];
  const KernelRun first = run_of(i);
  for (std::size_t m = 0; m < fused.launches.size(); ++m) {
    const KernelRun run = run_of(fused.launches[m]);
    for (const auto& launch : fused.kernel->launches) launch->place(m, run.operands, run.scratch, run.tickets);
  }
  void* stamp = first.stamp;
  for (const gpu::LoadedKernel& kernel : fused.kernel->loaded) {
    kernel.start(stream, nullptr, {nullptr, nullptr, first.fault, first.failed, std::exchange(stamp, nullptr)});
  }
}

std::vector<std::pair<std::size_t, profile::SiteId>> LaunchFusion::sites() const {
  std::map<const Kernel*, profile::SiteId> of_kernel;
  std::vector<std::pair<std::size_t, profile::SiteId>> found;
  for (const FusedSteps& fused : fused_) {
    auto site = of_kernel.find(fused.kernel);
    if (site == of_kernel.end()) {
      site = of_kernel
                 .emplace(fused.kernel,
                          sites_of_batch(fused.kernel->steps, fused.kernel->launches[0]->launch().entry).kernel)
                 .first;
    }
    found.emplace_back(fused.launches.front(), site->second);
  }
  return found;
}

}  // namespace paoding
