// SPDX-License-Identifier: Apache-2.0
#include "schedule/gpu/fused_launches.h"

#include <fmt/format.h>

#include <algorithm>
#include <set>

#include "gpu/codegen/grouped_launch.h"
#include "gpu/codegen/pipelined_launch.h"
#include "gpu/codegen/vertical_launch.h"
#include "schedule/gpu/layer_pipelines.h"
#include "schedule/gpu/vertical_fusion.h"
#include "schedule/independent.h"

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

// Finds the launches of a schedule that start as one.
class LaunchFusion {
 public:
  LaunchFusion(const Plan& plan, Schedule* schedule)
      : schedule_(*schedule),
        launches_(schedule->launches),
        target_(*plan.target),
        addresses_(pretended_addresses(plan)),
        kind_(schedule->guards.kinds(launches_)),
        vertical_(launches_, addresses_, kind_, target_),
        fused_of_(launches_.size(), -1) {}

  void run() {
    add_vertical();
    add_pipelines();
    add_grouped();
    take_notes();
    if (!schedule_.fused.empty()) schedule_.kernels = std::move(kernels_);
  }

 private:
  bool is_fused(std::size_t i) const { return fused_of_[i] >= 0; }

  FusedLaunches::Kernel& add(FusedLaunches::Kind kind, std::vector<std::size_t> places,
                             const std::vector<const Step*>& steps, const std::vector<int>& axes = {}) {
    const std::size_t number = kernels_->find_or_add(kind, steps, axes);
    for (const std::size_t i : places) fused_of_[i] = static_cast<int>(schedule_.fused.size());
    schedule_.fused.push_back({std::move(places), number});
    return kernels_->kernels[number];
  }

  void add_vertical() {
    for (const VerticalRun& run : vertical_.all()) {
      std::vector<std::size_t> places;
      std::vector<const Step*> steps;
      std::vector<const gpu::FusedStage*> stages;
      for (std::size_t i = run.begin; i < run.end(); ++i) {
        places.push_back(i);
        steps.push_back(launches_[i].step);
        stages.push_back(&vertical_.stage(launches_[i].step, run.axes[i - run.begin]));
      }
      FusedLaunches::Kernel& kernel = add(FusedLaunches::Kind::vertical, std::move(places), steps, run.axes);
      if (!kernel.launches.empty()) continue;
      kernel.launches.push_back(std::make_unique<gpu::VerticalLaunch>(stages, run.partitions, target_));
      kernel.expected = fmt::format("; {:.1f} us expected, {:.1f} apart", run.fused_us, run.alone_us);
    }
  }

  void add_pipelines() {
    for (const LayerPipeline& pipeline : layer_pipelines_of(launches_, addresses_, kind_, &schedule_.notes)) {
      std::vector<std::size_t> places;
      std::vector<const Step*> steps, layers;
      for (std::size_t i = pipeline.begin; i < pipeline.end(); ++i) {
        places.push_back(i);
        steps.push_back(launches_[i].step);
        const bool is_layer = (i - pipeline.begin) % 2 == 0;
        if (is_layer) layers.push_back(launches_[i].step);
      }
      FusedLaunches::Kernel& kernel = add(FusedLaunches::Kind::pipelined, std::move(places), steps);
      if (!kernel.launches.empty()) continue;
      kernel.launches.push_back(
          std::make_unique<gpu::PipelinedLaunch>(members_of(layers, 0), kPipelineWeights, target_));
    }
  }

  void add_grouped() {
    for (const auto& [begin, end] : independent_segments(launches_, addresses_, kMostLaunches)) {
      std::map<int, std::vector<std::size_t>> of_kind;
      for (std::size_t i = begin; i < end; ++i) {
        if (!is_fused(i) && may_be_grouped(*launches_[i].step)) of_kind[kind_[i]].push_back(i);
      }
      for (const auto& [same, list] : of_kind) add_grouped(list);
    }
  }

  // Adds grouped launches of these, which may run side by side.
  void add_grouped(const std::vector<std::size_t>& list) {
    std::vector<const Step*> of_list;
    for (const std::size_t i : list) of_list.push_back(launches_[i].step);
    for (const std::vector<std::size_t>& grouped : gpu::launch_groups_of(members_of(of_list, 0))) {
      std::vector<std::size_t> places;
      std::vector<const Step*> steps;
      for (const std::size_t place : grouped) {
        places.push_back(list[place]);
        steps.push_back(of_list[place]);
      }
      if (!all_may_be_grouped(steps)) continue;
      FusedLaunches::Kernel& kernel = add(FusedLaunches::Kind::grouped, std::move(places), steps);
      for (std::size_t k = kernel.launches.size(); k < steps[0]->text->launches.size(); ++k) {
        kernel.launches.push_back(std::make_unique<gpu::GroupedLaunch>(members_of(steps, k), target_));
      }
    }
  }

  void take_notes() {
    std::vector<int> times(kernels_->kernels.size(), 0);
    for (FusedLaunch& fused : schedule_.fused) {
      ++times[fused.kernel];
      fused.overlaps_before = kernels_->kernels[fused.kernel].launches[0]->launch().overlaps_before;
    }
    for (const FusedLaunch& fused : schedule_.fused) {
      const int count = std::exchange(times[fused.kernel], 0);
      if (count == 0) continue;  // noted
      const FusedLaunches::Kernel& kernel = kernels_->kernels[fused.kernel];
      schedule_.notes.push_back(fmt::format("steps {}: {}{}{}", positions_of(kernel.steps),
                                            kernel.launches[0]->launch().why,
                                            count > 1 ? fmt::format(", {} times", count) : "", kernel.expected));
    }
    std::set<std::pair<const Step*, const Step*>> noted;
    for (std::size_t i = 0; i + 1 < launches_.size(); ++i) {
      const Step *first = launches_[i].step, *second = launches_[i + 1].step;
      if (is_fused(i) && fused_of_[i] == fused_of_[i + 1]) continue;
      if (!noted.emplace(first, second).second) continue;
      const std::string why = vertical_.why_not(i);
      if (why.empty()) continue;
      schedule_.notes.push_back(
          fmt::format("step {} does not run with {}, which it reads: {}", second->position, first->position, why));
    }
  }

  Schedule& schedule_;
  const std::vector<Launch>& launches_;
  const Target& target_;
  const std::vector<std::byte*> addresses_;
  const std::vector<int> kind_;
  VerticalFusion vertical_;
  std::vector<int> fused_of_;  // per launch; -1: it starts alone
  std::shared_ptr<FusedLaunches> kernels_ = std::make_shared<FusedLaunches>();
};

}  // namespace

std::size_t FusedLaunches::find_or_add(Kind kind, const std::vector<const Step*>& steps, const std::vector<int>& axes) {
  const auto [found, is_new] = numbers_.try_emplace({steps, axes}, kernels.size());
  if (is_new) kernels.push_back({kind, steps, {}, {}});
  return found->second;
}

void fuse_launches(const Plan& plan, Schedule* schedule) { LaunchFusion(plan, schedule).run(); }

}  // namespace paoding
