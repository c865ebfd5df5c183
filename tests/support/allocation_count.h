// SPDX-License-Identifier: Apache-2.0
// Counts the process's allocations, with malloc and everything built on it, while AllocationCount lives; lets one of
// them fail, while FailingAllocation does, and all beyond a sum of bytes, while AllocationLimit does.
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

/// While it lives, whatever would bring the sum of all sizes that were asked for over `most_bytes` gets no memory.
/// Freeing gives nothing back, so that it ends loops too. One at a time; needs AllocationCount::works().
class AllocationLimit {
 public:
  explicit AllocationLimit(std::int64_t most_bytes);
  ~AllocationLimit();
  AllocationLimit(const AllocationLimit&) = delete;
  AllocationLimit& operator=(const AllocationLimit&) = delete;
  /// Whether something was refused.
  bool is_passed() const;
};

}  // namespace paoding::testing_program
