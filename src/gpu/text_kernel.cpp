// SPDX-License-Identifier: Apache-2.0
#include "gpu/text_kernel.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "gpu/group_prelude.h"

namespace paoding::gpu {
namespace {

class TextKernel : public PreparedKernel {
 public:
  TextKernel(std::shared_ptr<const TextPlan> plan, std::size_t operands, const Device& device)
      : plan_(std::move(plan)) {
    for (const GroupKernelPlan& launch : plan_->launches) {
      kernels_.emplace_back(GpuDevice::get(device.index), launch, operands);
    }
  }

  std::int64_t scratch_bytes() const override { return plan_->workspace_bytes; }
  void run(const KernelRun& run) const override {
    for (const GroupKernel& kernel : kernels_) {
      kernel.launch(static_cast<CUstream>(run.stream), run.operands, run.scratch, run.fault);
    }
  }
  bool may_fault() const override { return plan_->raise != nullptr; }
  void raise(const std::uint64_t* fault) const override { plan_->raise(fault); }
  std::vector<std::string> texts() const override {
    std::vector<std::string> texts;
    for (const GroupKernelPlan& launch : plan_->launches) texts.push_back(launch.source);
    return texts;
  }

 private:
  std::shared_ptr<const TextPlan> plan_;
  std::vector<GroupKernel> kernels_;
};

}  // namespace

GroupKernelPlan make_text_kernel(const TextParts& parts) {
  if (parts.ctas >= std::int64_t{1} << 31) {
    fail(ErrorKind::unsupported, "{}: {} CTAs, at most 2^31 - 1 fit a grid", parts.name, parts.ctas);
  }
  GroupKernelPlan plan;
  plan.why = fmt::format("{}: {} CTAs of {} threads", parts.name, parts.ctas, parts.threads);
  if (parts.ctas == 0) return plan;
  plan.source = fmt::format("// {}\n{}\nusing Index = {};\nconstexpr int kThreads = {};\n{}\n{}{}", parts.name,
                            group_prelude(), parts.is_wide ? "long long" : "int", parts.threads, parts.constants,
                            parts.sizes.text(), parts.functions);
  const std::string body =
      fmt::format("({}, void* workspace, unsigned long long* fault, const Sizes size) {{\n  {};\n}}\n",
                  fmt::join(parts.operands, ", "), parts.call);
  std::uint64_t hash = 14695981039346656037ull;  // FNV-1a
  for (const char c : plan.source + body) hash = (hash ^ static_cast<unsigned char>(c)) * 1099511628211ull;
  plan.entry = fmt::format("{}_{:016x}", parts.name, hash);
  plan.source +=
      fmt::format("\nextern \"C\" __global__ void __launch_bounds__({}) {}{}", parts.threads, plan.entry, body);
  plan.grid[0] = static_cast<unsigned>(parts.ctas);
  plan.block = static_cast<unsigned>(parts.threads);
  plan.sizes = parts.sizes.words();
  return plan;
}

std::int64_t reach_of(const Layout& layout) {
  std::int64_t reach = 1;
  for (int axis = 0; axis < layout.type.shape.rank(); ++axis) {
    reach += layout.type.shape[axis] * std::abs(layout.strides[static_cast<std::size_t>(axis)]);
  }
  return reach;
}

std::string input_parameter(DType dtype, std::string_view name) {
  return fmt::format("const {}* {}", stored_type(dtype), name);
}
std::string output_parameter(DType dtype, std::string_view name) {
  return fmt::format("{}* {}", stored_type(dtype), name);
}

std::vector<GroupKernelPlan> kernels_of(const Step& step, const ChipFacts& chip) {
  if (step.kind == Step::Kind::kernel && step.kernel->plan_text) return step.kernel->plan_text(step.call)->launches;
  if (step.kind != Step::Kind::group) return {};
  GroupKernelPlan group = plan_group_step(step, chip);
  if (group.grid[0] == 0) return {};
  return {std::move(group)};
}

void register_text_kernel(const std::string& op, std::string name,
                          std::function<std::string(const KernelCall&)> refusal,
                          std::function<TextPlan(const KernelCall&)> plan) {
  const auto plan_text = [plan = std::move(plan)](const KernelCall& call) {
    TextPlan made = plan(call);
    std::erase_if(made.launches, [](const GroupKernelPlan& launch) { return launch.grid[0] == 0; });
    return std::make_shared<const TextPlan>(std::move(made));
  };
  KernelImplementation implementation;
  implementation.name = std::move(name);
  implementation.device = DeviceKind::cuda;
  implementation.refusal = std::move(refusal);
  implementation.plan_text = plan_text;
  implementation.prepare = [plan_text](const KernelCall& call, const Device& device) {
    return std::make_unique<TextKernel>(plan_text(call), call.inputs.size() + call.outputs.size(), device);
  };
  register_kernel(op, std::move(implementation));
}

}  // namespace paoding::gpu
