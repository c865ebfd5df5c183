// SPDX-License-Identifier: Apache-2.0
// The least time a piece of work can take on a machine: bytes over the rate of their kind of access, operations over
// the rate of their unit; the larger is the floor.
#pragma once

#include "cli/bench/case.h"

namespace paoding::cli::bench {

// Rates of one H200, measured on 2026-11-21, in bytes per us; then the fixed time of one more kernel in a CUDA graph,
// and of one graph launch with its caller waiting for it.
inline constexpr double kReadRate = 4.6e6;    // hardly anything written
inline constexpr double kMixedRate = 4.15e6;  // read and written: the best of copy (3.95) and triad (4.15)
inline constexpr double kCachedRate =
    10e6;  // up to kCachedBytes, in L2: the best of copy (7.6), read (9.0) and triad (10.1)
inline constexpr double kCachedBytes = 40e6;
inline constexpr double kLaunchUs = 1.3;
inline constexpr double kWallUs = 5.8;

struct Floor {
  double us = 0;           // 0: unknown on this machine
  double with_launch = 0;  // us, and the fixed time of one kernel
  const char* by = "";     // "memory", "products", "count" (by hand)
};

/// `is_cold`: the buffers are in no cache. `is_wall`: as a caller waits. On a CPU the rates are measured here and now,
/// once for each need; on another GPU than an H200 nothing is known.
class Floors {
 public:
  Floors(const Device& device, const MachineFacts& machine);
  Floor of(const Case& work, bool is_cold, bool is_wall, int sets, const Effort& effort);

 private:
  double cpu_product_rate(DType dtype);
  Device device_;
  bool is_h200_;
  std::map<DType, double> product_rates_;  // operations per us on this CPU
};

}  // namespace paoding::cli::bench
