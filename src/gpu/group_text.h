// SPDX-License-Identifier: Apache-2.0
// A Group as a CUDA kernel: text for NVRTC and everything a launch needs. The text depends on the shape class only
// (axis roles, stride classes, vector width, dtypes, tile sizes); extents and strides are kernel parameters, so that
// another size of the same model finds its cubin in the cache.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "gpu/group_schedule.h"

namespace paoding::gpu {

/// One kernel and its launch. Arguments, in order: a pointer per operand (loads, then outputs), the workspace, the
/// tickets, and a struct whose bytes are `sizes` (kernelParams points at sizes.data()).
struct GroupKernelPlan {
  std::string source;                // CUDA C++ text
  std::string entry;                 // the kernel's name in it
  unsigned grid[3] = {0, 1, 1};      // grid[0] == 0: every output is empty, nothing to launch
  unsigned block = 0;                // threads of a CTA
  unsigned shared_bytes = 0;         // dynamic shared memory: none so far
  std::vector<std::uint64_t> sizes;  // the last argument
  std::int64_t workspace_bytes = 0;  // partial sums, need no initial value; aligned to 256 bytes
  std::int64_t ticket_count = 0;     // 32-bit counters, zero before the first launch; every launch leaves zeros
  std::string why;                   // one line: roles, tile, splits
  double floor_us = 0;               // least bytes over the chip's rate
};

/// The kernel of a canonical group. `alignment`: for each operand, bytes that its address will be a multiple of.
GroupKernelPlan plan_group(const Group& canonical, std::span<const int> alignment, const ChipFacts& chip = {});

}  // namespace paoding::gpu
