// SPDX-License-Identifier: Apache-2.0
#include "runtime/cpu/kernels.h"

#include <algorithm>

#include "base/cancel_poll.h"

namespace paoding {
namespace {

// Only a parameter is ever written where the same step reads it.
Sharing sharing_of(const Step& step) {
  for (std::size_t out = step.reads; out < step.operands.size(); ++out) {
    for (std::size_t in = 0; in < step.reads; ++in) {
      if (step.operands[in].slot == step.operands[out].slot) return Sharing::possible;
    }
  }
  return Sharing::none;
}

}  // namespace

CpuKernels::CpuKernels(const Plan& plan, Far far) : far_(std::move(far)) { prepare(plan.steps); }

void CpuKernels::prepare(const std::vector<Step>& steps) {
  for (const Step& step : steps) {
    CancelScope::poll();
    for (const auto* body : step.bodies()) prepare(*body);
    if (step.kind == Step::Kind::kernel) {
      auto kernel = prepare_kernel(*step.decision, *step.kernel, step.call, Device::cpu(), &cost_.notes);
      if (const std::int64_t bytes = kernel->scratch_bytes(); bytes > scratch_.size_bytes()) {
        scratch_ = Tensor(DType::u8, Shape{bytes});
        held_.set(bytes);
      }
      kernels_.emplace(&step, std::move(kernel));
    }
  }
}

const CpuGroupKernel& CpuKernels::group(const Step* step) {
  const auto found = groups_.find(step);
  return found != groups_.end() ? found->second : groups_.emplace(step, scheduled(*step, 0)).first->second;
}

CpuGroupKernel CpuKernels::scheduled(const Step& step, int threads) const {
  const auto far = far_.find(&step);
  return CpuGroupKernel(step.group, threads, sharing_of(step), far == far_.end() ? std::vector<bool>() : far->second);
}

const CpuGroupBatch& CpuKernels::add_batch(const std::vector<const Step*>& steps,
                                           const std::vector<void* const*>& operands) {
  double together = 0;
  for (const Step* step : steps) {
    const auto [cost, is_new] = costs_.try_emplace(step, 0);
    if (is_new) cost->second = estimated_cost(step->group);
    together += cost->second;
  }
  const int threads = useful_threads(together);
  std::vector<CpuGroupBatch::Member> members;
  for (std::size_t i = 0; i < steps.size(); ++i) {
    const double cost = costs_.at(steps[i]);
    const CpuGroupKernel& kernel = batch_kernel(steps[i], CpuGroupBatch::threads_of(cost, together, threads));
    members.push_back({&kernel, operands[i], cost});
  }
  return batches_.emplace_back(std::move(members), threads);
}

// For that many threads, or for one where the group cannot be shared out so.
const CpuGroupKernel& CpuKernels::batch_kernel(const Step* step, int threads) {
  const auto key = std::make_pair(step, threads);
  if (const auto found = batch_kernels_.find(key); found != batch_kernels_.end()) return found->second;
  CpuGroupKernel kernel = scheduled(*step, threads);
  if (kernel.regions() > 1 || (kernel.threads() != threads && kernel.threads() > 1)) kernel = scheduled(*step, 1);
  return batch_kernels_.emplace(key, std::move(kernel)).first->second;
}

std::string CpuKernels::name_of(const Step& step) const {
  const auto name = [](const CpuGroupKernel& group) { return group.has_machine_code() ? "machine code" : "routines"; };
  if (const auto group = groups_.find(&step); group != groups_.end()) return name(group->second);
  if (const auto group = batch_kernels_.lower_bound({&step, 0});
      group != batch_kernels_.end() && group->first.first == &step) {
    return name(group->second);
  }
  const auto kernel = kernels_.find(&step);
  return kernel == kernels_.end() ? "" : kernel->second->made_by->name;
}

std::int64_t CpuKernels::tile_bytes() const {
  std::int64_t most = 0;
  for (const auto& [step, kernel] : groups_) most = std::max(most, kernel.tile_bytes());
  for (const auto& [key, kernel] : batch_kernels_) most = std::max(most, kernel.tile_bytes());
  return most;
}

}  // namespace paoding
