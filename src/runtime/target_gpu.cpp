// SPDX-License-Identifier: Apache-2.0
// GPUs as targets, and steps as the CUDA texts that they become.
#include <algorithm>
#include <cctype>

#include "gpu/cublaslt.h"
#include "gpu/driver.h"
#include "gpu/text_kernel.h"
#include "runtime/target.h"

namespace paoding {
namespace {

// A chip whose rates are known goes by its name: "NVIDIA H200" is an h200.
const Target* known_chip(const gpu::GpuInfo& info) {
  std::string words = info.name + " ";
  std::transform(words.begin(), words.end(), words.begin(), [](unsigned char c) { return std::tolower(c); });
  for (const Target& target : named_targets()) {
    const bool is_same = target.is_gpu() && target.major == info.major && target.minor == info.minor;
    if (is_same && words.find(target.name + " ") != std::string::npos) return &target;
  }
  return nullptr;
}

}  // namespace

TargetPtr target_of_gpu(int index) {
  const gpu::GpuInfo& info = gpu::GpuDevice::get(index).info();
  const Target* known = known_chip(info);
  Target target = known != nullptr
                      ? *known
                      : gpu_target(info.name, info.major, info.minor, info.sm_count, info.memory_bytes_per_us);
  target.name = info.name;
  target.sm_count = info.sm_count;
  target.memory_bytes = info.memory_bytes;
  target.last_cache_bytes = info.l2_bytes;
  target.shared_bytes = info.max_shared_bytes;
  target.libraries.clear();
  if (gpu::cublaslt() != nullptr) {
    target.libraries.push_back({"cublaslt", static_cast<std::int64_t>(gpu::cublaslt()->cublasLtGetVersion())});
  }
  return std::make_shared<const Target>(std::move(target));
}

StepNeeds lower_for_gpu(Step& step, const Target& target) {
  StepNeeds needs;
  step.text = gpu::text_of(step, target);
  if (step.text) {
    needs.workspace_bytes = step.text->workspace_bytes;
    needs.state_bytes = 4 * step.text->ticket_count;
  }
  if (step.kind != Step::Kind::kernel) return needs;
  // The chosen one may decline when it is prepared: there is room for all that come behind it.
  std::vector<std::string> unused;
  for (const KernelImplementation* kernel : accepting_kernels(step.call, &unused)) {
    if (kernel->workspace_bytes) {
      needs.workspace_bytes = std::max(needs.workspace_bytes, kernel->workspace_bytes(step.call));
    } else if (kernel->plan_text && kernel != step.kernel) {
      needs.workspace_bytes = std::max(needs.workspace_bytes, kernel->plan_text(step.call)->workspace_bytes);
    }
  }
  return needs;
}

}  // namespace paoding
