// SPDX-License-Identifier: Apache-2.0
// Counts what the process allocates, with malloc and everything built on it, while AllocationCount lives.
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

}  // namespace paoding::testing_program
