// SPDX-License-Identifier: Apache-2.0
// The kernels of a plan's steps on the CPU, prepared, and batches of those that start as one.
#pragma once

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "cpu/group_batch.h"
#include "cpu/group_kernel.h"
#include "plan/plan.h"
#include "profile/held_bytes.h"
#include "runtime/executor.h"

namespace paoding {

class CpuKernels {
 public:
  /// Per group step, which of its results are stored past the caches (runtime/reuse.h).
  using Far = std::map<const Step*, std::vector<bool>>;

  /// Prepares the kernel ops of `plan`, which must outlive it. Groups are prepared when they are asked for: a group
  /// that is in a batch alone needs no kernel of its own.
  explicit CpuKernels(const Plan& plan, Far far = {});

  const CpuGroupKernel& group(const Step* step);
  const PreparedKernel& kernel(const Step* step) const { return *kernels_.at(step); }
  /// Groups that do not depend on each other, in one parallel region; `operands`: of each step, where they are when the
  /// batch runs.
  const CpuGroupBatch& add_batch(const std::vector<const Step*>& steps, const std::vector<void* const*>& operands);

  /// Whose code the step runs, for recordings.
  std::string name_of(const Step& step) const;
  /// The bytes that any of the groups asks of a thread's tile_memory().
  std::int64_t tile_bytes() const;
  /// Memory that kernels share, one at a time.
  void* scratch() const { return const_cast<std::byte*>(scratch_.bytes()); }
  const KernelCost& cost() const { return cost_; }

 private:
  void prepare(const std::vector<Step>& steps);
  CpuGroupKernel scheduled(const Step& step, int threads) const;
  const CpuGroupKernel& batch_kernel(const Step* step, int threads);

  const Far far_;
  std::map<const Step*, CpuGroupKernel> groups_;
  std::map<std::pair<const Step*, int>, CpuGroupKernel> batch_kernels_;  // by their threads
  std::map<const Step*, double> costs_;                                  // of groups in batches
  std::deque<CpuGroupBatch> batches_;
  std::map<const Step*, std::unique_ptr<PreparedKernel>> kernels_;
  Tensor scratch_{DType::u8, Shape{0}};
  profile::HeldBytes held_{profile::HeldFor::kernels, -1, 0};
  KernelCost cost_;
};

}  // namespace paoding
