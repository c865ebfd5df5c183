// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/host.h"

#include <algorithm>
#include <unordered_map>

#include "base/check.h"
#include "base/one_line.h"
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

template <class Visit>
void for_each_step(const Step& step, const Visit& visit) {
  visit(&step);
  for (const auto* body : step.bodies()) {
    for (const Step& inner : *body) for_each_step(inner, visit);
  }
}

}  // namespace

GpuHost::GpuHost(const Plan& plan, const std::vector<Launch>& launches, const ExecutorOptions& options,
                 const std::vector<CUdeviceptr>& bases, GpuFeeds* feeds)
    : device_(gpu::GpuDevice::get(options.device.index)), bases_(bases), feeds_(*feeds) {
  std::vector<std::unique_ptr<HostSegment>> planned = host_segments(plan);
  if (planned.empty()) return;
  is_read_on_device_.assign(plan.slots.size(), 0);
  mark_slots(*plan.target, plan.steps, &is_read_on_device_);
  for (const Plan::Fetch& fetch : plan.fetches) {
    is_read_on_device_[static_cast<std::size_t>(fetch.operand.slot)] = 1;
    for (const Operand& each : fetch.alternatives) is_read_on_device_[static_cast<std::size_t>(each.slot)] = 1;
  }
  std::unordered_map<const Step*, std::size_t> segment_of;
  std::vector<std::vector<Launch>> own;  // per segment
  for (auto& each : planned) {
    for (std::size_t i = each->first; i < each->end; ++i) {
      for_each_step((*each->list)[i], [&](const Step* step) { segment_of.emplace(step, segments_.size()); });
    }
    own.push_back(unroll(each->plan));
    plan_segment(plan, options, std::move(each));
  }
  for (std::size_t i = 0; i < launches.size();) {
    const auto found = segment_of.find(launches[i].step);
    if (found == segment_of.end()) {
      ++i;
      continue;
    }
    const std::size_t end = i + own[found->second].size();
    turns_.push_back(turn_of(segments_[found->second].get(), own[found->second], launches, i));
    launches_.emplace_back(i, end);
    i = end;
  }
}

void GpuHost::plan_segment(const Plan& plan, const ExecutorOptions& options, std::unique_ptr<HostSegment> planned) {
  auto segment = std::make_unique<Segment>();
  segment->planned = std::move(planned);
  ExecutorOptions cpu;
  cpu.name = options.name;
  cpu.execution = options.execution;
  cpu.on_step = options.on_step;
  cpu.on_print = options.on_print;
  segment->executor = make_cpu_executor(segment->planned->plan, cpu);
  segment->first_feed = next_feed_;
  const std::vector<HostWindow>& windows = segment->planned->windows;
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const HostWindow& window = windows[k];
    const auto slot = static_cast<std::size_t>(window.slot);
    if (window.is_input && !window.is_fed) {
      if (plan.slots[slot].kind == SlotKind::input) is_read_on_device_[slot] = 1;
      segment->inputs.push_back({k, Tensor(DType::u8, Shape{window.lead + window.bytes})});
    }
    if (!window.is_output) continue;
    segment->outputs.push_back({k, Tensor(DType::u8, Shape{window.bytes})});
    feeds_.add(next_feed_--, bases_[slot], window.bytes);
  }
  segments_.push_back(std::move(segment));
}

// The segment's own launches have each operand where the program's have it, beside the begin of its window.
GpuHost::Turn GpuHost::turn_of(Segment* segment, const std::vector<Launch>& own, const std::vector<Launch>& launches,
                               std::size_t first) const {
  const std::vector<HostWindow>& windows = segment->planned->windows;
  std::vector<std::int64_t> begins(windows.size(), 0);
  for (std::size_t j = 0; j < own.size(); ++j) {
    PD_ASSERT(first + j < launches.size() && launches[first + j].kind == own[j].kind, "a segment comes as a whole");
    for (std::size_t i = 0; i < own[j].addresses.size(); ++i) {
      const auto& [window, offset] = own[j].addresses[i];
      begins[static_cast<std::size_t>(window)] = launches[first + j].addresses[i].second - offset;
    }
  }
  Turn turn{segment, {}};
  for (std::size_t k = 0; k < windows.size(); ++k) {
    const std::int64_t begin = begins[k] + windows[k].lead, end = begin + windows[k].bytes;
    for (std::size_t other = 0; other < k; ++other) {
      const bool is_written = windows[k].is_output || windows[other].is_output;
      const std::int64_t from = begins[other] + windows[other].lead, to = from + windows[other].bytes;
      if (windows[other].slot != windows[k].slot || !is_written || end <= from || to <= begin) continue;
      const StepLabel& label = launches[first].step->label;
      fail(ErrorKind::unsupported,
           "{}: is to run on the CPU{}, in a loop that runs on the GPU, and what it writes lies in what it reads"
           "\nhint: the whole loop can be OnCpu",
           one_line(label.op), in_scope(label.scope));
    }
    turn.at.push_back(bases_[static_cast<std::size_t>(windows[k].slot)] + static_cast<CUdeviceptr>(begin));
  }
  return turn;
}

std::size_t GpuHost::behind(std::size_t launch) const {
  const auto found = std::ranges::lower_bound(launches_, launch, {}, [](const auto& each) { return each.first; });
  return found == launches_.end() || found->first != launch ? launch : found->second;
}

bool GpuHost::write(int slot, const Tensor& tensor) {
  for (const auto& segment : segments_) {
    const std::vector<HostWindow>& windows = segment->planned->windows;
    for (std::size_t k = 0; k < windows.size(); ++k) {
      if (windows[k].slot == slot && windows[k].is_fed) segment->executor->write(static_cast<int>(k), tensor);
    }
  }
  return !segments_.empty() && is_read_on_device_[static_cast<std::size_t>(slot)] == 0;
}

bool GpuHost::reads(int slot) const {
  return std::ranges::any_of(segments_, [&](const auto& segment) {
    return std::ranges::any_of(segment->planned->windows,
                               [&](const HostWindow& window) { return window.slot == slot && window.is_fed; });
  });
}

void GpuHost::run(std::size_t first_launch, std::uint32_t run, const std::function<void()>& wait) {
  const auto found = std::ranges::lower_bound(launches_, first_launch, {}, [](const auto& each) { return each.first; });
  Turn& turn = turns_[static_cast<std::size_t>(found - launches_.begin())];
  Segment& segment = *turn.segment;
  const std::vector<HostWindow>& windows = segment.planned->windows;
  if (!segment.inputs.empty()) wait();
  for (auto& [k, tensor] : segment.inputs) {
    if (windows[k].bytes == 0) continue;
    {
      const CopySpan seen(profile::Copy::device_to_host, device_);
      PD_CUDA(gpu::required_driver().cuMemcpyDtoH(const_cast<std::byte*>(tensor.bytes()) + windows[k].lead, turn.at[k],
                                                  static_cast<std::size_t>(windows[k].bytes)));
    }
    segment.executor->write(static_cast<int>(k), tensor);
  }
  segment.executor->run(run);
  int feed = segment.first_feed;
  for (auto& [k, tensor] : segment.outputs) {
    segment.executor->read({static_cast<int>(k), windows[k].lead, {}, Layout::dense(tensor.type())}, &tensor);
    feeds_.move(feed, turn.at[k]);
    feeds_.write(feed--, tensor);
  }
  feeds_.take_over();
}

}  // namespace paoding
