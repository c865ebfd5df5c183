// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <map>

#include "base/check.h"
#include "runtime/copy_span.h"
#include "runtime/gpu_host.h"

namespace paoding {
namespace {

void mark_slots(const Step& step, std::vector<char>* slots) {
  for (const Operand& operand : step.operands) (*slots)[static_cast<std::size_t>(operand.slot)] = 1;
  for (const auto* body : step.bodies()) {
    for (const Step& inner : *body) mark_slots(inner, slots);
  }
}

// The step at the top of the plan that each launch belongs to.
std::vector<std::size_t> tops_of(const Plan& plan, const std::vector<Launch>& launches) {
  std::map<const Step*, std::size_t> top;
  const std::function<void(const Step&, std::size_t)> add = [&](const Step& step, std::size_t i) {
    top.emplace(&step, i);
    for (const auto* body : step.bodies()) {
      for (const Step& inner : *body) add(inner, i);
    }
  };
  for (std::size_t i = 0; i < plan.steps.size(); ++i) add(plan.steps[i], i);
  std::vector<std::size_t> tops;
  for (const Launch& launch : launches) tops.push_back(top.at(launch.step));
  return tops;
}

}  // namespace

GpuHost::GpuHost(const Plan& plan, const std::vector<Launch>& launches, const ExecutorOptions& options,
                 const std::vector<CUdeviceptr>& bases, GpuFeeds* feeds)
    : bases_(bases), feeds_(*feeds) {
  std::vector<std::unique_ptr<HostStretch>> planned = host_stretches(plan);
  if (planned.empty()) return;
  is_fed_.assign(plan.slots.size(), 0);
  is_read_on_device_.assign(plan.slots.size(), 0);
  for (std::size_t s = 0; s < plan.slots.size(); ++s) is_fed_[s] = plan.slots[s].kind == SlotKind::input;
  for (const Step& step : plan.steps) {
    if (!runs_on_host(*plan.target, step)) mark_slots(step, &is_read_on_device_);
  }
  for (const Plan::Fetch& fetch : plan.fetches) is_read_on_device_[static_cast<std::size_t>(fetch.operand.slot)] = 1;
  const std::vector<std::size_t> tops = tops_of(plan, launches);
  for (auto& each : planned) {
    Stretch stretch{std::move(each), nullptr, {}, {}};
    const HostStretch& own = *stretch.planned;
    ExecutorOptions cpu;
    cpu.name = options.name;
    cpu.execution = options.execution;
    cpu.on_step = options.on_step;
    cpu.on_print = options.on_print;
    stretch.executor = make_cpu_executor(own.plan, cpu);
    const auto add = [&](const std::vector<int>& slots, std::vector<std::pair<int, Tensor>>* to) {
      for (const int slot : slots) {
        if (to == &stretch.inputs && is_fed_[static_cast<std::size_t>(slot)] != 0) continue;
        to->emplace_back(slot, Tensor(whole_slot(plan, slot).layout.type));
      }
    };
    add(own.inputs, &stretch.inputs);
    add(own.outputs, &stretch.outputs);
    for (const auto& [slot, tensor] : stretch.outputs) {
      feeds_.add(slot, bases_[static_cast<std::size_t>(slot)], tensor.size_bytes());
    }
    stretches_.push_back(std::move(stretch));
  }
  for (std::size_t i = 0; i < launches.size();) {
    const auto is_in = [&](const Stretch& stretch) {
      return tops[i] >= stretch.planned->first && tops[i] < stretch.planned->end;
    };
    const auto found = std::ranges::find_if(stretches_, is_in);
    std::size_t end = i + 1;
    if (found != stretches_.end()) {
      // A list of several runs has the same steps again behind the last of the one before.
      while (end < launches.size() && tops[end] >= tops[end - 1] && tops[end] < found->planned->end) ++end;
      launches_.emplace_back(i, end);
    }
    i = end;
  }
}

std::size_t GpuHost::behind(std::size_t launch) const {
  const auto found = std::ranges::find(launches_, launch, [](const auto& each) { return each.first; });
  return found == launches_.end() ? launch : found->second;
}

bool GpuHost::write(int slot, const Tensor& tensor) {
  const auto at = static_cast<std::size_t>(slot);
  const bool is_needed = stretches_.empty() || is_read_on_device_[at] != 0;
  for (const Stretch& stretch : stretches_) {
    const bool reads = std::ranges::find(stretch.planned->inputs, slot) != stretch.planned->inputs.end();
    if (reads) stretch.executor->write(slot, tensor);
  }
  return !is_needed;
}

void GpuHost::run(std::size_t first_launch, std::uint32_t run, const std::function<void()>& wait) {
  const auto which = static_cast<std::size_t>(
      std::ranges::find(launches_, first_launch, [](const auto& each) { return each.first; }) - launches_.begin());
  Stretch& stretch = stretches_[which % stretches_.size()];  // of several runs each has all
  if (!stretch.inputs.empty()) wait();
  const gpu::Driver& driver = gpu::required_driver();
  for (auto& [slot, tensor] : stretch.inputs) {
    if (tensor.size_bytes() == 0) continue;
    {
      const CopySpan seen(profile::Copy::device_to_host, false);
      PD_CUDA(driver.cuMemcpyDtoH(const_cast<std::byte*>(tensor.bytes()), bases_[static_cast<std::size_t>(slot)],
                                  static_cast<std::size_t>(tensor.size_bytes())));
    }
    stretch.executor->write(slot, tensor);
  }
  stretch.executor->run(run);
  for (auto& [slot, tensor] : stretch.outputs) {
    stretch.executor->read(whole_slot(stretch.planned->plan, slot), &tensor);
    feeds_.write(slot, tensor);
  }
  feeds_.take_over();
}

}  // namespace paoding
