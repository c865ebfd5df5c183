// SPDX-License-Identifier: Apache-2.0
// GPUs as targets, and steps as the CUDA sources that they become.
#include "runtime/target.h"

#include <algorithm>

#include "gpu/codegen/text_kernel.h"
#include "gpu/driver/driver.h"
#include "gpu/libraries/cublaslt.h"
#include "gpu/libraries/cudnn.h"
#include "gpu/libraries/plan_cache.h"
#include "ops/recurrence/cell.h"
#include "runtime/kernel_environment.h"

namespace paoding {
TargetPtr target_of_gpu(int index) {
  Target target = gpu::GpuDevice::get(index).target();
  target.libraries.clear();
  if (gpu::cublaslt() != nullptr) {
    target.libraries.push_back({"cublaslt", static_cast<std::int64_t>(gpu::cublaslt()->cublasLtGetVersion())});
  }
  if (gpu::cudnn_functions() != nullptr) {
    target.libraries.push_back({"cudnn", static_cast<std::int64_t>(gpu::cudnn_functions()->cudnnGetVersion())});
  }
  return std::make_shared<const Target>(std::move(target));
}

std::shared_ptr<TimedChoices> process_timed_choices() {
  return {std::shared_ptr<void>(), &gpu::PlanCache::shared()};  // it lives as long as the process
}

StepNeeds lower_for_gpu(Step& step, const Target& target) {
  StepNeeds needs;
  step.text = gpu::text_of(step, target);
  needs.may_be_grouped = step.kind == Step::Kind::group || gpu::may_be_grouped(step.text.get());
  if (step.text) {
    needs.workspace_bytes = step.text->workspace_bytes;
    needs.state_bytes = 4 * step.text->ticket_count;
    needs.is_launched = !step.text->launches.empty();
  }
  // A library's kernel has no source, so it is no part of a launch of ours.
  const bool is_layer = step.pipeline >= 0 && cell_over_time(*step.call.op) != nullptr;
  const bool is_pipelined = step.text && step.text->launches.size() == 1 && step.text->launches[0].pipelined_layers > 1;
  if (is_layer && !is_pipelined) step.pipeline = -1;
  if (step.kind == Step::Kind::print) needs.is_launched = false;
  if (step.kind != Step::Kind::kernel) return needs;
  // The chosen one may decline when it is prepared: there is room for all that come after it.
  for (const KernelImplementation* kernel : step.decision->accepting) {
    if (kernel->workspace_bytes) {
      needs.workspace_bytes = std::max(needs.workspace_bytes, kernel->workspace_bytes(step.call));
    } else if (kernel->plan_text && kernel != step.kernel) {
      needs.workspace_bytes = std::max(needs.workspace_bytes, kernel->plan_text(step.call)->workspace_bytes);
    }
  }
  return needs;
}

}  // namespace paoding
