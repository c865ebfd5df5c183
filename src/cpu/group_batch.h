// SPDX-License-Identifier: Apache-2.0
// Groups that touch nothing of each other's results, in one parallel region: starting threads costs as much as a small
// group, so that thirty parameter updates cost one start and not thirty.
#pragma once

#include <cstddef>
#include <vector>

#include "cpu/group_kernel.h"

namespace paoding {

class CpuGroupBatch {
 public:
  struct Member {
    const CpuGroupKernel* kernel = nullptr;  // in no other member; of one thread, or of as many as the batch
    void* const* operands = nullptr;
    double cost = 0;  // nanoseconds of one thread
  };

  CpuGroupBatch(std::vector<Member> members, int threads);

  /// Runs all members. Allocates nothing. The same bits as running one member after the other.
  void run() const;
  std::size_t size() const { return members_.size(); }
  int threads() const { return static_cast<int>(shares_.size()); }

  /// The number of threads that a member of this cost should be scheduled with in a batch of that cost: 1, which leaves
  /// it whole to one of the threads, or all.
  static int threads_of(double cost, double batch_cost, int threads);

 private:
  void work(std::size_t thread) const;

  std::vector<Member> members_;
  std::vector<std::vector<std::size_t>> shares_;  // members that each thread has a part in
};

}  // namespace paoding
