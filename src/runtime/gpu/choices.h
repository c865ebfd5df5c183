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
#include "schedule/schedule.h"

namespace paoding {

class GpuChoices {
 public:
  GpuChoices() = default;
  /// Where the words of choices are: in memory of their own, or where place() says.
  enum class Words : std::uint8_t { own, placed };
  /// Prepares the choices of a run; `schedule` must outlive it. Error (device) where the driver has no conditional
  /// nodes and needs one.
  GpuChoices(const gpu::GpuDevice& device, const Schedule& schedule, const Target& target, Words words = Words::own);

  /// The bytes of the words, and where they are from here on. Whatever they hold before a run, it is the same.
  std::int64_t word_bytes() const { return static_cast<std::int64_t>(words_ * sizeof(unsigned)); }
  void place(void* words) { at_ = static_cast<unsigned*>(words); }

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
    // ---- of a loop ----
    void* faults = nullptr;  // words of launches in front of it and in it
    std::int64_t fault_words = 0;
    void* flag = nullptr;       // not zero where the run is to be called off
    void* cancelled = nullptr;  // where it writes that it is
  };
  /// Starts the kernel of a choice.
  void start(const LaunchEntry& choice, const std::function<Asked(std::size_t select)>& asked, CUstream stream) const;

 private:
  struct Kernel {
    gpu::TextLaunch text;
    std::size_t operands = 0;
    std::unique_ptr<gpu::LoadedKernel> loaded;
  };
  using Steps = std::vector<const Step*>;

  Kernel made(const Steps& steps, const Target& target) const;
  Steps steps_of(const LaunchEntry& choice) const;
  void add_words_of_branches();
  void* word(std::size_t number) const { return at_ + number; }
  const Schedule* schedule_ = nullptr;
  std::map<Steps, Kernel> kernels_;                // those that are chosen for at once
  std::vector<const Kernel*> kernel_of_;           // per choice of the schedule
  std::map<const Step*, std::size_t> first_word_;  // a word for each branch, or one that counts a loop's turns
  std::vector<int> word_of_;                       // per launch, or -1; empty where there is none
  std::size_t words_ = 0;
  unsigned* at_ = nullptr;  // the words
  gpu::DeviceMemory memory_;
};

}  // namespace paoding
