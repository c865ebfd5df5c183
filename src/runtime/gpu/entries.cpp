// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/entries.h"

#include <set>
#include <utility>

#include "base/check.h"
#include "base/one_line.h"
#include "runtime/gpu/copy_span.h"

namespace paoding {

GpuEntries::GpuEntries(const Plan& plan, const Schedule& schedule, const PlanMemory& memory,
                       std::vector<gpu::KernelSource> more, const ExecutorOptions& options)
    : schedule_(schedule), memory_(memory), phases_(memory.device()) {
  const gpu::GpuDevice& device = memory.device();
  resolve_addresses();
  if (schedule.is_captured) {
    fused_ = FusedKernels(schedule);
    results_ = GpuResults(device, schedule.results, *plan.target, memory.addresses());
    choices_ = GpuChoices(device, schedule, *plan.target);
  }
  for (const auto& texts : {fused_.sources(), choices_.sources(), results_.sources()}) {
    more.insert(more.end(), texts.begin(), texts.end());
  }
  kernels_.prepare(device, plan, std::move(more));
  fused_.load(device);
  choices_.load(device);
  results_.load(device);
  memory.stream().wait_idle();
  prints_ = GpuPrints(device, launches_, options.on_print);
  place_guard(options);
  add_phases();
}

void GpuEntries::resolve_addresses() {
  std::size_t count = 0;
  for (const Launch& launch : launches_) count += launch.addresses.size();
  pointers_.reserve(count);
  for (const Launch& launch : launches_) {
    first_pointer_.push_back(pointers_.size());
    for (const auto& [slot, offset] : launch.addresses) {
      pointers_.push_back(reinterpret_cast<void*>(memory_.at(slot, offset)));
    }
  }
}

void GpuEntries::place_guard(const ExecutorOptions& options) {
  std::vector<const PreparedKernel*> kernels;
  for (std::size_t i = 0; i < launches_.size(); ++i) {
    kernels.push_back(schedule_.guards.may_fault[i] != 0 ? &kernels_.at(launches_[i].step) : nullptr);
  }
  auto failure = std::dynamic_pointer_cast<GpuFailure>(options.failure);
  if (!failure) failure = std::make_shared<GpuFailure>(memory_.device());
  guard_ = std::make_unique<CommitGuard>(memory_.device(), memory_.stream(), memory_.arena()->cancel, schedule_.guards,
                                         std::move(kernels), std::move(failure), [this] { memory_.clear_state(); });
}

void GpuEntries::add_phases() {
  std::set<const Step*> seen;
  std::optional<LaunchSites> sites;
  for (const Launch& launch : launches_) {
    const gpu::TextPlan* const text = launch.step->text.get();
    if (text == nullptr || text->launches.size() != 1 || text->launches[0].phases.empty()) continue;
    if (!seen.insert(launch.step).second) continue;
    if (!sites) sites.emplace(launch_sites());
    phases_.add(memory_.at(launch.step->state, 4 * text->launches[0].phases_at), text->launches[0].phases,
                sites->of(launch).kernel);
  }
}

std::string GpuEntries::who(std::size_t launch) const {
  const StepLabel& label = launches_[launch].step->label;
  return fmt::format("step {} ({}{}, turn {})", launch, one_line(label.op),
                     label.scope.empty() ? "" : " in " + one_line(label.scope), launches_[launch].instance);
}

void GpuEntries::start(std::size_t k, CUstream stream, CUgraphConditionalHandle node, void* stamp) const {
  using Kind = LaunchEntry::Kind;
  const LaunchEntry& entry = schedule_.entries[k];
  switch (entry.kind) {
    case Kind::launch:
    case Kind::print: return start_launch(entry.launch, stream, stamp);
    case Kind::fused:
      return fused_.start(entry, stream, [&](std::size_t member) { return run_of(member, stream, stamp); });
    case Kind::guard: return guard_->start(stream);
    case Kind::poll: return memory_.arena()->cancel.start_poll(stream);
    case Kind::host:
    case Kind::host_choice: return;  // never among others
    case Kind::results: return results_.start(stream);
    case Kind::choice:
    case Kind::again:
      return choices_.start(
          entry, [&](std::size_t select) { return asked(select, node); }, stream);
  }
}

void GpuEntries::start_launch(std::size_t launch, CUstream stream, void* stamp) const {
  const Step* const step = launches_[launch].step;
  if (step->kind == Step::Kind::print) {
    const auto printed = reinterpret_cast<CUdeviceptr>(pointers_[first_pointer_[launch]]);
    prints_.start(launch, printed, asked_by(launch), stream);
  } else {
    kernels_.at(step).run(run_of(launch, stream, stamp));
  }
}

KernelRun GpuEntries::run_of(std::size_t launch, CUstream stream, void* stamp) const {
  const Step& step = *launches_[launch].step;
  return {pointers_.data() + first_pointer_[launch],
          memory_.pointer(step.workspace),
          stream,
          memory_.pointer(step.state),
          guard_->fault_of(launch),
          asked_by(launch),
          stamp};
}

GpuChoices::Asked GpuEntries::asked(std::size_t select, CUgraphConditionalHandle node) const {
  const auto [faults, words] = guard_->faults_before(launches_[select].end);
  const GpuCancel& cancel = memory_.arena()->cancel;
  return {pointers_[first_pointer_[select]], asked_by(select), node, faults, words, cancel.flag(), cancel.word()};
}

std::optional<std::size_t> GpuEntries::taken_by(std::size_t select) const {
  memory_.stream().wait_idle();
  const Launch& launch = launches_[select];
  const DType dtype = launch.step->operands[0].layout.type.dtype;
  unsigned is_off = 0;
  std::int64_t index = 0;
  const void* const asked = asked_by(select);
  const CopySpan seen(profile::Copy::device_to_host, memory_.device());
  const gpu::Driver& driver = gpu::required_driver();
  if (asked != nullptr) PD_CUDA(driver.cuMemcpyDtoH(&is_off, reinterpret_cast<CUdeviceptr>(asked), sizeof(is_off)));
  if (is_off != 0) return std::nullopt;
  PD_CUDA(driver.cuMemcpyDtoH(&index, reinterpret_cast<CUdeviceptr>(pointers_[first_pointer_[select]]),
                              static_cast<std::size_t>(size_bytes(dtype))));
  return chosen(dtype, &index, launch.targets.size());
}

// The word that the launch asks before it writes.
void* GpuEntries::asked_by(std::size_t launch) const {
  void* const of_branch = choices_.word_of(launch);
  return of_branch != nullptr ? of_branch : guard_->called_off(launch);
}

}  // namespace paoding
