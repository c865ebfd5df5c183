// SPDX-License-Identifier: Apache-2.0
#include "staged.h"

#include "base/one_line.h"
#if PAODING_WITH_CUDA
#include "gpu/driver/driver.h"
#endif

namespace paoding::cli {
namespace {

bool is_there(const Device& device) {
#if PAODING_WITH_CUDA
  return device.kind == DeviceKind::cpu || device.index < gpu::GpuDevice::count();
#else
  return device.kind == DeviceKind::cpu;
#endif
}

}  // namespace

TargetPtr target_of(const std::string& target, const std::string& device) {
  if (!target.empty()) return std::make_shared<const Target>(named_target(target));
  const Device wanted = parse_device(device);
  return is_there(wanted) ? paoding::target_of(wanted) : std::make_shared<const Target>(named_target("h200"));
}

CompiledPlan plan_of(const Graph& graph, const CompileFlags& flags, const TargetPtr& target,
                     const std::function<void(const std::string& pass, const Graph& graph)>& after) {
  CompileOptions options;
  options.disabled_passes = flags.no_pass;
  options.allow_tf32 = flags.allow_tf32;
  options.precision = flags.precision.precision();
  options.after_pass = after;
  return compile_plan(graph, options, target, Preprocess::once);
}

std::string step_name(const Step& step) {
  if (step.label.members.empty()) return one_line(step.label.op);
  return fmt::format("{} ({})", one_line(step.label.op),
                     one_line(fmt::format("{}", fmt::join(step.label.members, "+"))));
}

}  // namespace paoding::cli
