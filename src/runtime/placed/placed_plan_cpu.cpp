// SPDX-License-Identifier: Apache-2.0
// A plan on memory of somebody else's, on the CPU.
#include <algorithm>
#include <cstring>

#include "cpu/arena.h"
#include "cpu/parallel.h"
#include "runtime/cpu/kernels.h"
#include "runtime/placed/placed_plan.h"
#include "runtime/sites.h"

namespace paoding {
namespace {

using profile::Recorder;

class PlacedCpuPlan : public PlacedPlan {
 public:
  PlacedCpuPlan(const char* name, CompiledPlan compiled)
      : PlacedPlan(name, std::move(compiled), max_threads() > 1), kernels_(plan()) {
    require_threads();
    place_own();
    const LaunchSites sites(schedule().launches,
                            [this](const Step& step) { return StepKernel{kernels_.name_of(step)}; });
    for (const LaunchEntry& entry : schedule().entries) {
      starts_.push_back(entry.kind == LaunchEntry::Kind::fused ? batch(entry)
                                                               : alone(schedule().launches[entry.launch], sites));
    }
    tile_bytes_ = kernels_.tile_bytes();
  }

 private:
  // An entry of the schedule.
  struct Start {
    const CpuGroupBatch* batch = nullptr;
    const CpuGroupKernel* group = nullptr;
    const PreparedKernel* kernel = nullptr;
    StepSites sites = {};
  };

  Start alone(const Launch& launch, const LaunchSites& sites) const {
    Start start;
    if (launch.step->kind == Step::Kind::group) {
      start.group = &kernels_.group(launch.step);
    } else {
      start.kernel = &kernels_.kernel(launch.step);
    }
    start.sites = sites.of(launch);
    return start;
  }

  Start batch(const LaunchEntry& entry) {
    std::vector<const Step*> steps;
    std::vector<void* const*> operands;
    for (const std::size_t i : schedule().members(entry)) {
      steps.push_back(schedule().launches[i].step);
      operands.push_back(memory_of(i).operands);
    }
    Start start;
    start.batch = &kernels_.add_batch(steps, operands);
    start.sites = sites_of_batch(steps, {kernels_.name_of(*steps[0])});
    return start;
  }

  void* own_memory(const Slot& slot, const Tensor* constant) override {
    own_.emplace_back(u8, Shape{slot.bytes});
    std::fill_n(own_.back().bytes(), slot.bytes, std::byte{});
    if (constant != nullptr) std::copy_n(constant->bytes(), constant->size_bytes(), own_.back().bytes());
    return own_.back().bytes();
  }

  void begin_run() override { reserve_tiles(tile_bytes_); }  // of the thread that runs it

  void start(std::size_t k) {
    const Start& start = starts_[k];
    void* const* operands = nullptr;
    for (const std::size_t i : schedule().members(schedule().entries[k])) operands = memory_of(i).operands;
    if (start.batch != nullptr) return start.batch->run();
    if (start.group != nullptr) return start.group->run(operands);
    start.kernel->run({operands, kernels_.scratch(), nullptr});
  }

  void start_all(std::uint32_t, void*) override {
    if (!Recorder::active()) {
      for (std::size_t k = 0; k < starts_.size(); ++k) start(k);
      return;
    }
    const bool has_phases = Recorder::phases_active();
    profile::SpanList spans;
    for (std::size_t k = 0; k < starts_.size(); ++k) {
      start(k);
      const profile::Ticks began = spans.complete(starts_[k].sites.op);
      if (has_phases) Recorder::complete(starts_[k].sites.compute, began, spans.end());
    }
  }

  void copy(void* to, const void* from, std::int64_t bytes, void*) override {
    std::memcpy(to, from, static_cast<std::size_t>(bytes));
  }

  void clear(void* address, std::int64_t bytes, void*) override {
    std::memset(address, 0, static_cast<std::size_t>(bytes));
  }

  CpuKernels kernels_;
  std::vector<Start> starts_;
  std::vector<Tensor> own_;
  std::int64_t tile_bytes_ = 0;  // of a thread, for any of the groups
};

}  // namespace

std::unique_ptr<PlacedPlan> make_placed_cpu_plan(const char* name, CompiledPlan compiled) {
  return std::make_unique<PlacedCpuPlan>(name, std::move(compiled));
}

}  // namespace paoding
