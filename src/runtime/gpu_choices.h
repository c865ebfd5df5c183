// SPDX-License-Identifier: Apache-2.0
// What decides on a GPU which branch runs and whether a loop has another turn: a kernel (gpu/choose.cu) that reads the
// index and sets a conditional node, or, where the branches' kernels are all launched, a word for each branch.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/driver.h"
#include "gpu/loaded_kernel.h"
#include "plan/plan.h"
#include "runtime/gpu_cancel.h"

namespace paoding {

class GpuChoices {
 public:
  GpuChoices() = default;
  /// Of a run that is captured. Error (device) where the driver has no conditional nodes and there has to be one.
  GpuChoices(const gpu::GpuDevice& device, const std::vector<Launch>& launches, const Target& target);

  /// The texts, once each.
  std::vector<std::string> sources() const;
  void load(const gpu::GpuDevice& device);

  /// What the launch asks before it writes, in place of anything else: not zero where it is in a branch that is not
  /// taken. nullptr where it is in none that has such words.
  void* word_of(std::size_t launch) const;
  /// What a choice reads beside its index.
  struct Asked {
    void* outer = nullptr;              // the word that the choice itself asks
    CUgraphConditionalHandle node = 0;  // the conditional node that it chooses for
    void* faults = nullptr;             // of a loop: words of launches in front of it and in it
    std::int64_t fault_words = 0;
  };
  /// Starts what chooses.
  void start(std::size_t launch, void* index, const Asked& asked, const GpuCancel& cancel, CUstream stream) const;

 private:
  struct Kernel {
    gpu::TextLaunch text;
    std::size_t first_word = 0;  // a word for each branch, or one that counts a loop's turns
    std::unique_ptr<gpu::LoadedKernel> loaded;
  };

  void* word(std::size_t number) const;
  const std::vector<Launch>* launches_ = nullptr;
  std::map<const Step*, Kernel> kernels_;
  std::vector<int> word_of_;  // per launch, or -1; empty where there is none
  std::size_t words_ = 0;
  gpu::DeviceMemory memory_;
};

}  // namespace paoding
