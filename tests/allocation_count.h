// SPDX-License-Identifier: Apache-2.0
// Counts what the process allocates, with malloc and everything built on it, while AllocationCount lives; lets one of
// them fail, while FailingAllocation does.
#pragma once

#include <cstdint>

namespace paoding::testing_program {

class AllocationCount {
 public:
  AllocationCount();
  ~AllocationCount();
  AllocationCount(const AllocationCount&) = delete;
  AllocationCount& operator=(const AllocationCount&) = delete;
  /// Allocations so far, by any thread.
  std::int64_t count() const;
  /// False under sanitizers, which have allocators of their own.
  static bool works();
};

/// The allocation of that number, from 0, is refused, whichever thread asks for it but that of this object.
class FailingAllocation {
 public:
  explicit FailingAllocation(std::int64_t number);
  ~FailingAllocation();
  FailingAllocation(const FailingAllocation&) = delete;
  FailingAllocation& operator=(const FailingAllocation&) = delete;
  /// Whether it was asked for.
  bool has_failed() const;
};

}  // namespace paoding::testing_program
