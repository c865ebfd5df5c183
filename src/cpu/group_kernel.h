// SPDX-License-Identifier: Apache-2.0
// The CPU back end of groups: a Group scheduled once into loops over L1-sized tiles and a flat list of SIMD routines
// per tile, then run as often as wanted.
#pragma once

#include <cstdint>
#include <memory>
#include <vector>

#include "group/group.h"

namespace paoding {

/// Whether an output may be given the memory of a load of its dtype and strides, as Group allows.
enum class Sharing : std::uint8_t {
  possible,  // outputs that could spoil a load which is read again later go through a register
  none,      // every output has memory of its own: it is computed right there
};

class CpuGroupKernel {
 public:
  /// Schedules `group`. threads = 0 chooses by the group's cost, at most max_threads(). `far`: per output, whether
  /// nobody touches it again while a cache would have it, so that its stores go past them; empty: none. Error
  /// (unsupported) when the Expr applies a primitive to a dtype it does not take.
  explicit CpuGroupKernel(const Group& group, int threads = 0, Sharing sharing = Sharing::possible,
                          const std::vector<bool>& far = {});
  ~CpuGroupKernel();
  CpuGroupKernel(CpuGroupKernel&&) noexcept;
  CpuGroupKernel& operator=(CpuGroupKernel&&) noexcept;

  /// Runs the group on one pointer per load, then one per output. Allocates nothing; one caller at a time. The same
  /// operands and thread count give the same bits.
  void run(void* const* operands) const;

  /// How many threads run() uses.
  int threads() const;
  /// Whether some of its routines are one of machine code of their own.
  bool has_machine_code() const;
  /// The bytes that run() asks of tile_memory() in each of them.
  std::int64_t tile_bytes() const;
  /// Parallel regions that run() enters, one after the other. More than one when a group with reductions of its own
  /// has too few rows for its threads.
  int regions() const;

  /// run() of a kernel of one region, in two halves for a caller that has a region of its own: run_part() once for
  /// each thread in [0, threads()), at the same time if wanted, then finish() when all have returned.
  void run_part(int thread, void* const* operands) const;
  void finish(void* const* operands) const;

 private:
  struct Part;
  struct Running;
  std::unique_ptr<Running> running_;
};

/// Nanoseconds that one thread needs for the group, roughly.
double estimated_cost(const Group& group);
/// Nanoseconds until work that costs one thread `cost` is done by `threads`, including the cost of starting them.
double parallel_cost(double cost, int threads);
/// The number of threads with which that is least: one or all.
int useful_threads(double cost);

}  // namespace paoding
