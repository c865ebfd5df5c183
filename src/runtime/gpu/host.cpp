// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/host.h"

#include <algorithm>

#include "base/check.h"
#include "runtime/gpu/copy_span.h"

namespace paoding {
namespace {

// Marks the slots that steps on the device touch.
void mark_slots(const Target& target, const std::vector<Step>& steps, std::vector<char>* slots) {
  for (const Step& step : steps) {
    if (runs_on_host(target, step)) continue;
    for (const Operand& operand : step.operands) (*slots)[static_cast<std::size_t>(operand.slot)] = 1;
    for (const auto* body : step.bodies()) mark_slots(target, *body, slots);
  }
}

}  // namespace

GpuHost::GpuHost(const Plan& plan, const HostRuns& runs, const ExecutorOptions& options,
                 const std::vector<CUdeviceptr>& bases, GpuFeeds* feeds)
    : device_(gpu::GpuDevice::get(options.device.index)), bases_(bases), feeds_(*feeds) {
  if (runs.segments.empty()) return;
  is_read_on_device_.assign(plan.slots.size(), 0);
  mark_slots(*plan.target, plan.steps, &is_read_on_device_);
  for (const Plan::Fetch& fetch : plan.fetches) {
    is_read_on_device_[static_cast<std::size_t>(fetch.operand.slot)] = 1;
    for (const Operand& each : fetch.alternatives) is_read_on_device_[static_cast<std::size_t>(each.slot)] = 1;
  }
  for (const auto& each : runs.segments) prepare_segment(plan, options, *each);
}

void GpuHost::prepare_segment(const Plan& plan, const ExecutorOptions& options, const HostSegment& planned) {
  Segment& segment = segments_.emplace_back();
  segment.planned = &planned;
  ExecutorOptions cpu;
  cpu.name = options.name;
  cpu.execution = options.execution;
  cpu.on_step = options.on_step;
  cpu.on_print = options.on_print;
  segment.executor = make_cpu_executor(planned.plan, cpu);
  segment.first_feed = next_feed_;
  const std::vector<HostWindow>& windows = planned.windows;
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const HostWindow& window = windows[k];
    const auto slot = static_cast<std::size_t>(window.slot);
    if (window.is_input && !window.is_fed) {
      if (plan.slots[slot].kind == SlotKind::input) is_read_on_device_[slot] = 1;
      segment.inputs.push_back({k, Tensor(DType::u8, Shape{window.lead + window.bytes})});
    }
    if (!window.is_output) continue;
    segment.outputs.push_back({k, Tensor(DType::u8, Shape{window.bytes})});
    feeds_.add(next_feed_--, bases_[slot], window.bytes);
  }
}

bool GpuHost::write(int slot, const Tensor& tensor) {
  for (const Segment& segment : segments_) {
    const std::vector<HostWindow>& windows = segment.planned->windows;
    for (std::size_t k = 0; k < windows.size(); ++k) {
      if (windows[k].slot == slot && windows[k].is_fed) segment.executor->write(static_cast<int>(k), tensor);
    }
  }
  return !segments_.empty() && is_read_on_device_[static_cast<std::size_t>(slot)] == 0;
}

bool GpuHost::reads(int slot) const {
  return std::ranges::any_of(segments_, [&](const Segment& segment) {
    return std::ranges::any_of(segment.planned->windows,
                               [&](const HostWindow& window) { return window.slot == slot && window.is_fed; });
  });
}

void GpuHost::run(const HostRun& turn, std::uint32_t run, const std::function<void()>& wait) {
  Segment& segment = segments_[turn.segment];
  const std::vector<HostWindow>& windows = segment.planned->windows;
  const auto address = [&](std::size_t k) {
    return bases_[static_cast<std::size_t>(windows[k].slot)] + static_cast<CUdeviceptr>(turn.at[k]);
  };
  if (!segment.inputs.empty()) wait();
  for (auto& [k, tensor] : segment.inputs) {
    if (windows[k].bytes == 0) continue;
    {
      const CopySpan seen(profile::Copy::device_to_host, device_);
      PD_CUDA(gpu::required_driver().cuMemcpyDtoH(const_cast<std::byte*>(tensor.bytes()) + windows[k].lead, address(k),
                                                  static_cast<std::size_t>(windows[k].bytes)));
    }
    segment.executor->write(static_cast<int>(k), tensor);
  }
  segment.executor->run(run);
  int feed = segment.first_feed;
  for (auto& [k, tensor] : segment.outputs) {
    segment.executor->read({static_cast<int>(k), windows[k].lead, {}, Layout::dense(tensor.type())}, &tensor);
    feeds_.move(feed, address(k));
    feeds_.write(feed--, tensor);
  }
  feeds_.take_over();
}

}  // namespace paoding
