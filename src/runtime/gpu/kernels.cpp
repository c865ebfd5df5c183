// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/kernels.h"

#include <algorithm>
#include <atomic>
#include <set>

#include "base/cancel_poll.h"
#include "gpu/driver/kernel_cache.h"
#include "gpu/driver/loaded_kernel.h"
#include "plan/host_steps.h"
#include "runtime/gpu/fused_kernels.h"
#include "runtime/target.h"
#include "schedule/schedule.h"

namespace paoding {
namespace {

// Every group and kernel op that runs on the GPU.
void for_each_step(const Target& target, const std::vector<Step>& steps,
                   const std::function<void(const Step&)>& visit) {
  for (const Step& step : steps) {
    if (runs_on_host(target, step)) continue;
    if (step.kind == Step::Kind::group || step.kind == Step::Kind::kernel) visit(step);
    for (const auto* body : step.bodies()) for_each_step(target, *body, visit);
  }
}

std::set<gpu::KernelSource> texts_of(const Plan& plan) {
  std::set<gpu::KernelSource> texts;
  for_each_step(*plan.target, plan.steps, [&](const Step& step) {
    if (step.text == nullptr) return;
    for (const gpu::TextLaunch& launch : step.text->launches) texts.insert(launch.source);
  });
  return texts;
}

}  // namespace

void GpuKernels::prepare(const gpu::GpuDevice& device, const Plan& plan, std::vector<gpu::KernelSource> more) {
  const gpu::CacheCounts before = gpu::KernelCache::shared().counts();
  std::set<gpu::KernelSource> texts = texts_of(plan);
  texts.insert(more.begin(), more.end());
  const std::vector<gpu::KernelSource> list(texts.begin(), texts.end());
  gpu::KernelCache::shared().compile_all(list, plan.target->arch());
  for_each_step(*plan.target, plan.steps, [&](const Step& step) {
    if (step.text != nullptr) {
      kernels_.emplace(&step, gpu::load_text(device, step.text, step.operands.size()));
      return;
    }
    const auto load = [&](const KernelImplementation& kernel, const KernelCall& call) -> Preparation {
      return gpu::load_text(device, kernel.plan_text(call), step.operands.size());
    };
    kernels_.emplace(&step, prepare_kernel(*step.decision, *step.kernel, step.call, Device::cuda(device.index()),
                                           &cost_.notes, load));
  });
  const gpu::CacheCounts after = gpu::KernelCache::shared().counts();
  cost_.compiled = static_cast<int>(after.compiles - before.compiles);
  cost_.milliseconds = after.compile_milliseconds - before.compile_milliseconds;
}

void compile_kernels_of(const Plan& plan, const CompileOptions& options) {
  std::set<gpu::KernelSource> texts = texts_of(plan);
  const Schedule schedule = make_schedule(plan, {options.execution, options.repeats, options.fuses_launches});
  const std::vector<gpu::KernelSource> fused = FusedKernels(schedule).sources();
  texts.insert(fused.begin(), fused.end());
  // Threads that have plans of other shapes want mostly the same kernels, so each begins with others: one that a thread
  // is at makes the next wait.
  static std::atomic<std::size_t> calls{0};
  constexpr std::size_t kStride = 37;
  std::vector<gpu::KernelSource> list(texts.begin(), texts.end());
  if (list.empty()) return;
  std::ranges::rotate(list, list.begin() + static_cast<std::ptrdiff_t>(calls++ * kStride % list.size()));
  const CancelPoll poll;
  for (const gpu::KernelSource& source : list) {
    poll();
    gpu::KernelCache::shared().cubin(source, plan.target->arch());
  }
}

std::string GpuKernels::name(const Step& step) const {
  if (step.text == nullptr) {
    const auto found = kernels_.find(&step);
    return found == kernels_.end() || found->second->made_by == nullptr ? "" : found->second->made_by->name;
  }
  std::string all;
  for (const gpu::TextLaunch& launch : step.text->launches) all += (all.empty() ? "" : " + ") + launch.entry;
  return all;
}

LaunchShape GpuKernels::launch(const Step& step) const {
  const auto found = kernels_.find(&step);
  return found == kernels_.end() ? LaunchShape{} : found->second->launch();
}

std::string GpuKernels::text(const Plan& plan) {
  const std::set<gpu::KernelSource> texts = texts_of(plan);
  std::set<std::string_view> sorted;
  for (const gpu::KernelSource& text : texts) sorted.insert(text.text());
  std::string all;
  for (const std::string_view text : sorted) all.append(text).append("\n");
  return all;
}

}  // namespace paoding
