// SPDX-License-Identifier: Apache-2.0
#include <algorithm>
#include <set>

#include "base/check.h"
#include "gpu/choose_text.h"
#include "plan/host_steps.h"
#include "plan/step_work.h"
#include "runtime/gpu_choices.h"
#include "runtime/gpu_order.h"

namespace paoding {
namespace {

// A read of the host's memory takes about a microsecond: now and then, but a loop that never ends is called off soon.
constexpr double kBetweenLooksUs = 5'000;
constexpr std::int64_t kMostTurnsBetween = 256;

std::int64_t turns_between_looks(const Step& loop, const Target& target) {
  double us = 0;
  for (const auto* body : loop.bodies()) {
    for (const Step& step : *body) us += expected_us(step, target);
  }
  return std::clamp(static_cast<std::int64_t>(kBetweenLooksUs / std::max(us, 1.0)), std::int64_t{1}, kMostTurnsBetween);
}

}  // namespace

GpuChoices::GpuChoices(const gpu::GpuDevice& device, const std::vector<Launch>& launches, const Target& target)
    : launches_(&launches) {
  for (std::size_t i = 0; i < launches.size(); ++i) {
    const Launch& select = launches[i];
    if (select.kind != Launch::Kind::select || runs_on_host(target, *select.step)) continue;
    const Step& step = *select.step;
    const bool is_loop = step.kind == Step::Kind::repeat, is_node = is_conditional(select);
    const DType index = step.operands[0].layout.type.dtype;
    const auto [kernel, is_new] = kernels_.try_emplace(&step);
    if (is_new) {
      const auto count = static_cast<std::int64_t>(step.branches.size());
      kernel->second.text = is_loop   ? gpu::plan_choose_turn(index, turns_between_looks(step, target), target)
                            : is_node ? gpu::plan_choose_body(index, count, target)
                                      : gpu::plan_choose_words(index, count, target);
      kernel->second.first_word = words_;
      words_ += is_loop ? 1 : is_node ? 0 : step.branches.size();
      const gpu::Driver& driver = gpu::required_driver();
      if (is_node && (driver.cuGraphConditionalHandleCreate == nullptr || driver.cuGraphAddNode == nullptr)) {
        fail(ErrorKind::device,
             "{}: it needs a conditional node, which this NVIDIA driver does not have: 570 or newer does\nhint: "
             "Execution::stepwise needs none",
             step.label.op);
      }
    }
    if (is_node) continue;
    word_of_.resize(launches.size(), -1);
    for (std::size_t k = 0; k < select.targets.size(); ++k) {  // those of inner branches come later, and stay
      const std::size_t end = k + 1 < select.targets.size() ? select.targets[k + 1] : select.end;
      std::fill(word_of_.begin() + static_cast<std::ptrdiff_t>(select.targets[k]),
                word_of_.begin() + static_cast<std::ptrdiff_t>(end), static_cast<int>(kernel->second.first_word + k));
    }
  }
  if (words_ == 0) return;
  memory_ = gpu::DeviceMemory(device, words_ * sizeof(unsigned));
  const std::vector<unsigned> zeros(words_, 0);
  PD_CUDA(gpu::required_driver().cuMemcpyHtoD(memory_.address(), zeros.data(), words_ * sizeof(unsigned)));
}

std::vector<std::string> GpuChoices::sources() const {
  std::set<std::string> texts;
  for (const auto& [step, kernel] : kernels_) texts.insert(kernel.text.source);
  return {texts.begin(), texts.end()};
}

void GpuChoices::load(const gpu::GpuDevice& device) {
  for (auto& [step, kernel] : kernels_) {
    const std::size_t operands = step->kind == Step::Kind::repeat ? 8 : 3;
    kernel.loaded = std::make_unique<gpu::LoadedKernel>(device, kernel.text, operands);
  }
}

void* GpuChoices::word(std::size_t number) const { return static_cast<unsigned*>(memory_.pointer()) + number; }

void* GpuChoices::word_of(std::size_t launch) const {
  return word_of_.empty() || word_of_[launch] < 0 ? nullptr : word(static_cast<std::size_t>(word_of_[launch]));
}

void GpuChoices::start(std::size_t launch, void* index, const Asked& asked, const GpuCancel& cancel,
                       CUstream stream) const {
  const Step* step = (*launches_)[launch].step;
  const Kernel& kernel = kernels_.at(step);
  void* const handle = reinterpret_cast<void*>(asked.node);
  if (step->kind == Step::Kind::repeat) {
    void* operands[] = {index,         asked.outer,
                        handle,        cancel.flag(),
                        cancel.word(), word(kernel.first_word),
                        asked.faults,  reinterpret_cast<void*>(asked.fault_words)};
    kernel.loaded->start(stream, operands, {});
  } else {
    void* operands[] = {index, asked.outer, step->is_conditional ? handle : word(kernel.first_word)};
    kernel.loaded->start(stream, operands, {});
  }
}

}  // namespace paoding
