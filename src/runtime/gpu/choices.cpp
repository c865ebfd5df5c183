// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/choices.h"

#include <algorithm>
#include <set>

#include "base/check.h"
#include "gpu/driver/write_memory.h"
#include "gpu/kernels/choose_text.h"
#include "plan/host_steps.h"
#include "plan/step_work.h"

namespace paoding {
namespace {

// A read of the host's memory takes about a microsecond: now and then, but a loop that never ends is called off soon.
constexpr double kBetweenPollsUs = 5'000;
constexpr std::int64_t kMostTurnsBetween = 256;

std::int64_t turns_between_polls(const Step& loop, const Target& target) {
  double us = 0;
  for (const auto* body : loop.bodies()) {
    for (const Step& step : *body) us += expected_us(step, target);
  }
  return std::clamp(static_cast<std::int64_t>(kBetweenPollsUs / std::max(us, 1.0)), std::int64_t{1}, kMostTurnsBetween);
}

}  // namespace

GpuChoices::Kernel GpuChoices::made(const Steps& steps, const Target& target) const {
  const Step& step = *steps[0];
  const DType index = step.operands[0].layout.type.dtype;
  if (step.kind == Step::Kind::repeat) {
    return {gpu::plan_choose_turn(index, turns_between_polls(step, target), target), 8, nullptr};
  }
  if (step.is_conditional) {
    return {gpu::plan_choose_body(index, static_cast<std::int64_t>(step.branches.size()), target), 3, nullptr};
  }
  std::vector<gpu::WordChoice> choices;
  for (const Step* each : steps) {
    choices.push_back({each->operands[0].layout.type.dtype, static_cast<std::int64_t>(each->branches.size())});
  }
  return {gpu::plan_choose_words(choices, target), 3 * steps.size(), nullptr};
}

GpuChoices::Steps GpuChoices::steps_of(const LaunchEntry& choice) const {
  const std::vector<std::size_t>& selects = schedule_->choice_of(choice).selects;
  if (selects.empty()) return {schedule_->launches[choice.launch].step};
  Steps steps;
  for (const std::size_t select : selects) steps.push_back(schedule_->launches[select].step);
  return steps;
}

GpuChoices::GpuChoices(const gpu::GpuDevice& device, const Schedule& schedule, const Target& target, Words where)
    : schedule_(&schedule), kernel_of_(schedule.choices.size(), nullptr) {
  const std::vector<Launch>& launches = schedule.launches;
  const gpu::Driver& driver = gpu::required_driver();
  for (const LaunchEntry& choice : schedule.entries) {
    if (choice.kind != LaunchEntry::Kind::choice) continue;
    const Steps steps = steps_of(choice);
    const auto [kernel, is_new] = kernels_.try_emplace(steps);
    if (is_new) kernel->second = made(steps, target);
    kernel_of_[static_cast<std::size_t>(choice.choice)] = &kernel->second;
    if (schedule.holds_bodies(choice) &&
        (driver.cuGraphConditionalHandleCreate == nullptr || driver.cuGraphAddNode == nullptr)) {
      fail(ErrorKind::device,
           "{}: it needs a conditional node, which this NVIDIA driver does not have: 570 or newer does{}",
           steps[0]->label.op, where == Words::own ? "\nhint: Execution::stepwise needs none" : "");
    }
  }
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Launch& select = launches[i];
    if (select.kind != Launch::Kind::select || runs_on_host(target, *select.step)) continue;
    const Step& step = *select.step;
    const auto [first, is_new] = first_word_.try_emplace(&step, words_);
    if (is_new) words_ += step.kind == Step::Kind::repeat ? 1 : step.is_conditional ? 0 : step.branches.size();
  }
  add_words_of_branches();
  if (words_ == 0 || where == Words::placed) return;
  memory_ = gpu::DeviceMemory(device, words_ * sizeof(unsigned));
  const std::vector<unsigned> zeros(words_, 0);
  gpu::write_memory(memory_.address(), zeros.data(), words_ * sizeof(unsigned));
  place(memory_.pointer());
}

void GpuChoices::add_words_of_branches() {
  if (schedule_->branches.empty()) return;
  word_of_.assign(schedule_->launches.size(), -1);
  for (const LaunchEntry& entry : schedule_->entries) {
    if (entry.branch < 0) continue;
    const Branch& branch = schedule_->branches[static_cast<std::size_t>(entry.branch)];
    const auto word = static_cast<int>(first_word_.at(schedule_->launches[branch.select].step) + branch.number);
    word_of_[entry.launch] = word;
    for (const std::size_t i : schedule_->members(entry)) word_of_[i] = word;
    if (entry.kind != LaunchEntry::Kind::choice) continue;
    for (const std::size_t i : schedule_->choice_of(entry).selects) word_of_[i] = word;
  }
}

std::vector<gpu::KernelSource> GpuChoices::sources() const {
  std::set<gpu::KernelSource> texts;
  for (const auto& [steps, kernel] : kernels_) texts.insert(kernel.text.source);
  return {texts.begin(), texts.end()};
}

void GpuChoices::load(const gpu::GpuDevice& device) {
  for (auto& [steps, kernel] : kernels_) {
    kernel.loaded = std::make_unique<gpu::LoadedKernel>(device, kernel.text, kernel.operands);
  }
}

void* GpuChoices::word_of(std::size_t launch) const {
  return word_of_.empty() || word_of_[launch] < 0 ? nullptr : word(static_cast<std::size_t>(word_of_[launch]));
}

void GpuChoices::start(const LaunchEntry& choice, const std::function<Asked(std::size_t select)>& asked,
                       CUstream stream) const {
  const Choice& among = schedule_->choice_of(choice);
  const auto first_word = [&](std::size_t select) { return word(first_word_.at(schedule_->launches[select].step)); };
  std::vector<void*> operands;
  if (among.selects.empty()) {
    const Asked first = asked(choice.launch);
    operands = {first.index, first.outer, reinterpret_cast<void*>(first.node)};
    if (among.is_loop) {
      operands.insert(operands.end(), {first.flag, first.cancelled, first_word(choice.launch), first.faults,
                                       reinterpret_cast<void*>(first.fault_words)});
    }
  }
  for (const std::size_t select : among.selects) {
    const Asked each = asked(select);
    operands.insert(operands.end(), {each.index, each.outer, first_word(select)});
  }
  kernel_of_[static_cast<std::size_t>(choice.choice)]->loaded->start(stream, operands.data(), {});
}

}  // namespace paoding
