// SPDX-License-Identifier: Apache-2.0
// The kernels of a program's steps on a GPU, compiled and loaded.
#pragma once

#include <functional>
#include <map>
#include <memory>
#include <string>
#include <vector>

#include "gpu/codegen/kernel_source.h"
#include "gpu/driver/driver.h"
#include "plan/plan.h"
#include "runtime/executor.h"
#include "runtime/sites.h"

namespace paoding {

class GpuKernels {
 public:
  /// Compiles the groups and kernel ops of `plan`, which must outlive it, and in the same go `more` sources.
  void prepare(const gpu::GpuDevice& device, const Plan& plan, std::vector<gpu::KernelSource> more);

  const PreparedKernel& at(const Step* step) const { return *kernels_.at(step); }
  /// The symbol of the kernel that the step launches, of several all; of a library's kernel the library.
  std::string name(const Step& step) const;
  /// The size of the step's first launch, where that is of our own kernels.
  LaunchShape launch(const Step& step) const;
  KernelOf names() const {
    return [this](const Step& step) { return StepKernel{name(step), launch(step)}; };
  }
  const KernelCost& cost() const { return cost_; }
  /// The sources of all, once each.
  static std::string text(const Plan& plan);

 private:
  std::map<const Step*, std::unique_ptr<PreparedKernel>> kernels_;
  KernelCost cost_;
};

}  // namespace paoding
