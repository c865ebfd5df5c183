// SPDX-License-Identifier: Apache-2.0
// Records all that CUPTI saw between start and stop: kernels, copies, fills, with times of steady_ns(). Finding out
// which of a program's steps a kernel belongs to is left to others.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "gpu/driver/driver.h"

namespace paoding::gpu {

struct GpuActivity {
  enum class Kind : std::uint8_t { kernel, memcpy, memset };
  Kind kind = Kind::kernel;
  std::int64_t start_ns = 0;  // of steady_ns()
  std::int64_t duration_ns = 0;
  std::uint32_t device = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;  // the same for everything one graph launch started
  std::uint32_t graph = 0;        // 0 when it was not part of a graph
  std::uint64_t node = 0;         // of the executable graph: node_number()
  std::int64_t bytes = 0;         // copies and fills
  bool is_from_host = false;      // copies: host to device
  bool is_to_host = false;        // copies: device to host
  bool is_async = false;          // copies: the host did not wait for it
  std::string name;               // kernels
  std::int64_t registers = 0;     // kernels: of a thread
  std::int64_t shared_bytes = 0;  // kernels: of a CTA
  std::int64_t threads = 0, ctas = 0;
};

class CuptiCollector {
 public:
  /// Empty when CUPTI can be used; else why not.
  static const std::string& problem();
  /// Starts collecting. False, with the reason, when CUPTI refuses (another profiler has it) or is too old to number
  /// graphs.
  static bool start(std::string* why_not);
  /// Activities that are missing from the list, and why.
  struct Lost {
    std::uint64_t dropped = 0;      // by CUPTI
    std::uint64_t timeless = 0;     // records that CUPTI had no time for
    std::int64_t clock_set_ns = 0;  // by which the host's clock was set meanwhile; 0: by nothing that shows
  };
  /// Ends collecting, waits for work under way, returns everything in order of start.
  static std::vector<GpuActivity> stop(Lost* lost);
  /// Called after stop(): detaches CUPTI, so that launches of graphs are as fast as before. A graph that was launched
  /// while it was attached must not be launched again.
  static void leave();
};

/// GpuActivity::node of a node of an executable graph: nodes count in the order in which they were captured, those of
/// bodies after all others. Only while CUPTI collects. Error (device).
std::uint64_t node_number(CUgraphExec exec, std::uint32_t node);

}  // namespace paoding::gpu
