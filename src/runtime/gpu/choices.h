// SPDX-License-Identifier: Apache-2.0
// Choices on a GPU of the branch that runs and of another turn of a loop: a kernel (gpu/kernels/choose.cu) reads the
// index and sets a conditional node, or, where the branches' kernels are all launched, a word for each branch.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/loaded_kernel.h"
#include "plan/plan.h"
#include "runtime/gpu/cancel.h"
#include "schedule/schedule.h"

namespace paoding {

class GpuChoices {
 public:
  GpuChoices() = default;
  /// Prepares the choices of a run that is captured; `schedule` must outlive it. Error (device) where the driver has no
  /// conditional nodes and needs one.
  GpuChoices(const gpu::GpuDevice& device, const Schedule& schedule, const Target& target);

  /// The sources, once each.
  std::vector<gpu::KernelSource> sources() const;
  void load(const gpu::GpuDevice& device);

  /// The word that the launch asks before it writes, in place of anything else: not zero where it is in a branch that
  /// is not taken. nullptr where it is in none that has such words.
  void* word_of(std::size_t launch) const;
  /// The operands of a choice.
  struct Asked {
    void* index = nullptr;
    void* outer = nullptr;              // the word that the choice itself asks
    CUgraphConditionalHandle node = 0;  // the conditional node that it chooses for
    void* faults = nullptr;             // of a loop: words of launches in front of it and in it
    std::int64_t fault_words = 0;
  };
  /// Starts the kernel of a choice.
  void start(const LaunchEntry& choice, const std::function<Asked(std::size_t select)>& asked, const GpuCancel& cancel,
             CUstream stream) const;

 private:
  struct Kernel {
    gpu::TextLaunch text;
    std::size_t operands = 0;
    std::unique_ptr<gpu::LoadedKernel> loaded;
  };
  using Steps = std::vector<const Step*>;

  Kernel made(const Steps& steps, const Target& target) const;
  Steps steps_of(const LaunchEntry& choice) const;
  void* word(std::size_t number) const;
  const Schedule* schedule_ = nullptr;
  std::map<Steps, Kernel> kernels_;                // those that are chosen for at once
  std::map<const Step*, std::size_t> first_word_;  // a word for each branch, or one that counts a loop's turns
  std::vector<int> word_of_;                       // per launch, or -1; empty where there is none
  std::size_t words_ = 0;
  gpu::DeviceMemory memory_;
};

}  // namespace paoding
