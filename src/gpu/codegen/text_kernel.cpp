// SPDX-License-Identifier: Apache-2.0
#include "gpu/codegen/text_kernel.h"

#include <algorithm>
#include <cstdlib>

#include "base/check.h"
#include "base/hash.h"
#include "gpu/codegen/group_text.h"
#include "gpu/kernels/kernel_prelude.h"
#include "plan/epilogues.h"

namespace paoding::gpu {

TextLaunch make_text_kernel(const TextParts& parts) {
  if (parts.ctas >= std::int64_t{1} << 31) {
    fail(ErrorKind::unsupported, "{}: {} CTAs, at most 2^31 - 1 fit a grid", parts.name, parts.ctas);
  }
  TextLaunch plan;
  plan.why = fmt::format("{}: {} CTAs of {} threads", parts.name, parts.ctas, parts.threads);
  if (parts.ctas == 0) return plan;
  const std::string sizes = parts.sizes.text();
  std::string source;
  source.reserve(kernel_prelude().size() + parts.constants.size() + sizes.size() + parts.functions.size() + 1000);
  source.append("// ").append(parts.name).append("\n").append(kernel_prelude()).append("\nusing Index = ");
  source.append(parts.is_wide ? "long long" : "int").append(";\nconstexpr int kThreads = ");
  source.append(std::to_string(parts.threads)).append(";\n").append(parts.constants).append("\n");
  source.append(sizes).append(parts.functions);
  std::string maps;
  for (const std::string& name : parts.maps) maps += ", const __grid_constant__ Map " + name;
  const std::string start = parts.waits_for_grid_dependency ? "" : fmt::format("  grid_dependency_wait();\n{}", kBegin);
  const std::string body = fmt::format("({}, const LaunchScratch scratch, const Sizes size{}) {{\n{}  {};\n}}\n",
                                       fmt::join(parts.operands, ", "), maps, start, parts.call);
  plan.entry = fmt::format("{}_{:016x}", parts.name, hash_of_text(body, hash_of_source(source)));
  source += fmt::format("\nextern \"C\" __global__ void __launch_bounds__({}{}) {}{}", parts.threads,
                        parts.resident_ctas > 0 ? fmt::format(", {}", parts.resident_ctas) : "", plan.entry, body);
  plan.source = std::move(source);
  plan.grid[0] = static_cast<unsigned>(parts.ctas);
  plan.block = static_cast<unsigned>(parts.threads);
  plan.sizes = parts.sizes.words();
  plan.leaves_stamp = parts.leaves_stamp || !parts.waits_for_grid_dependency;
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

namespace {

void overlap_launches(const Target& target, TextPlan* text) {
  for (TextLaunch& launch : text->launches) launch.overlaps_before = overlaps_before(target, launch);
}

}  // namespace

bool overlaps_before(const Target& target, const TextLaunch& launch) {
  const std::int64_t threads = std::int64_t{launch.grid[0]} * launch.grid[1] * launch.grid[2] * launch.block;
  // CTAs that wait for each other would share an SM, where those of the launch before still have others.
  const bool may_share_sm = launch.shared_bytes <= half_of_shared(target);
  if (launch.is_cooperative && may_share_sm) return false;
  return target.major >= 9 && threads <= std::int64_t{target.sm_count} * 1024;
}

std::shared_ptr<const TextPlan> text_of(const Step& step, const Target& target) {
  if (step.kind == Step::Kind::kernel && step.kernel->plan_text) {
    const std::string& op = step.call.op->name;
    auto text =
        std::make_shared<TextPlan>(step.has_prologue    ? *prologue_kernel(op)->plan_text(step.call, prologue_of(step))
                                   : has_epilogue(step) ? *epilogue_kernel(op)->plan_text(step.call, epilogue_of(step))
                                                        : *step.kernel->plan_text(step.call));
    overlap_launches(target, text.get());
    return text;
  }
  if (step.kind != Step::Kind::group) return nullptr;
  std::vector<int> alignment;
  for (const Operand& operand : step.operands) alignment.push_back(static_cast<int>(alignment_of(operand)));
  auto text = std::make_shared<TextPlan>(plan_group(canonical(step.group), alignment, target));
  overlap_launches(target, text.get());
  // A group that fills the chip gains by it too, 0.3 us between two, where it does not write more than it reads (H100).
  if (target.major >= 9 && step.group.min_read_bytes() >= step.group.min_written_bytes()) {
    for (TextLaunch& each : text->launches) each.overlaps_before = true;
  }
  return text;
}

void register_text_kernel(const std::string& op, std::string name,
                          std::function<std::string(const KernelCall&)> refusal,
                          std::function<TextPlan(const KernelCall&)> plan, Faults faults, std::uint32_t channels_last,
                          std::uint32_t any_layout, std::vector<std::pair<std::size_t, std::size_t>> in_place,
                          std::function<std::string(const KernelCall&)> reason,
                          std::function<std::uint32_t(const KernelCall&)> transposed,
                          std::function<bool(const KernelCall&)> wants_by_units) {
  KernelImplementation implementation;
  implementation.name = std::move(name);
  implementation.device = DeviceKind::cuda;
  implementation.faults = faults;
  implementation.channels_last = channels_last, implementation.any_layout = any_layout;
  implementation.in_place = std::move(in_place);
  implementation.reason = std::move(reason), implementation.transposed = std::move(transposed);
  implementation.wants_by_units = std::move(wants_by_units);
  implementation.refusal = std::move(refusal);
  implementation.plan_text = [plan = std::move(plan), faults](const KernelCall& call) {
    TextPlan made = plan(call);
    PD_ASSERT((made.raise != nullptr) == (faults == Faults::possible), "what may fault says what it met");
    std::erase_if(made.launches, [](const TextLaunch& launch) { return launch.grid[0] == 0; });
    return std::make_shared<const TextPlan>(std::move(made));
  };
  register_kernel(op, std::move(implementation));
}

}  // namespace paoding::gpu
