// SPDX-License-Identifier: Apache-2.0
// The memory of a plan on a GPU: the address of every slot, and copies out of and into it.
#pragma once

#include <cstddef>
#include <memory>
#include <vector>

#include "gpu/driver/driver.h"
#include "plan/plan.h"
#include "runtime/executor.h"
#include "runtime/gpu/arena.h"
#include "runtime/gpu/feeds.h"

namespace paoding {

class PlanMemory {
 public:
  /// Slots of parameters lie where `options` says, the others in the arena or in memory of their own, and those of
  /// state are cleared. Takes an arena that earlier programs have, where it can grow to the size that this plan needs.
  /// `plan` must outlive it. Error (memory) where the device has too little.
  PlanMemory(const Plan& plan, const gpu::GpuDevice& device, const ExecutorOptions& options);

  const gpu::GpuDevice& device() const { return device_; }
  const std::shared_ptr<GpuArena>& arena() const { return arena_; }
  /// Runs and copies are enqueued in it.
  const gpu::Stream& stream() const { return arena_->stream; }
  /// Values of inputs on their way.
  GpuFeeds& feeds() { return feeds_; }

  /// Per slot.
  const std::vector<CUdeviceptr>& addresses() const { return addresses_; }
  bool is_input(int slot) const { return is_input_[static_cast<std::size_t>(slot)]; }
  CUdeviceptr at(int slot, std::int64_t offset = 0) const {
    return addresses_[static_cast<std::size_t>(slot)] + static_cast<CUdeviceptr>(offset);
  }
  /// nullptr where there is no such slot.
  void* pointer(int slot) const { return slot < 0 ? nullptr : reinterpret_cast<void*>(at(slot)); }

  /// Writes a constant, before the first run.
  void write_constant(int slot, const Tensor& tensor) const;
  /// The value of an operand of the launch, by its position in Step::operands, made dense; for a launch that is done.
  Tensor read(const Launch& launch, std::size_t operand) const;
  /// Clears the state that kernels keep from run to run; after a failed run it is as good as lost.
  void clear_state() const;
  /// The bytes of all parameters, as Plan::parameters, to be put back later.
  std::vector<std::vector<std::byte>> parameters() const;
  void set_parameters(const std::vector<std::vector<std::byte>>& kept) const;

 private:
  std::shared_ptr<GpuArena> arena_for(const ExecutorOptions& options) const;
  CUdeviceptr new_memory(const Slot& slot);

  const Plan& plan_;
  const gpu::GpuDevice& device_;
  const std::shared_ptr<GpuArena> arena_;
  GpuFeeds feeds_;
  std::vector<gpu::DeviceMemory> own_;  // of slots outside the arena
  std::vector<CUdeviceptr> addresses_;
  std::vector<bool> is_input_;  // per slot
};

}  // namespace paoding
