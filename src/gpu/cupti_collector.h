// SPDX-License-Identifier: Apache-2.0
// What CUPTI saw between start and stop: kernels, copies, fills, with times of steady_clock. Which of a program's
// steps a kernel was is for others to find out.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <unordered_map>
#include <utility>
#include <vector>

#include "gpu/driver.h"

namespace paoding::gpu {

struct GpuActivity {
  enum class Kind : std::uint8_t { kernel, memcpy, memset };
  Kind kind = Kind::kernel;
  std::int64_t start_ns = 0;  // of steady_clock
  std::int64_t duration_ns = 0;
  std::uint32_t device = 0;
  std::uint32_t stream = 0;
  std::uint32_t correlation = 0;  // the same for everything one graph launch started
  std::uint32_t graph = 0;        // 0 when it was not part of a graph
  std::uint64_t node = 0;         // of the executable graph, as ClonedNodes knows it
  std::int64_t bytes = 0;         // copies and fills
  bool is_from_host = false;      // copies: host to device
  bool is_to_host = false;        // copies: device to host
  bool is_async = false;          // copies: the host did not wait for it
  std::string name;               // kernels
};

class CuptiCollector {
 public:
  /// Empty when CUPTI can be used; else why not.
  static const std::string& problem();
  /// Starts collecting. False, with the reason, when CUPTI refuses (another profiler has it).
  static bool start(std::string* why_not);
  /// What is not among the activities.
  struct Lost {
    std::uint64_t dropped = 0;   // by CUPTI
    std::uint64_t timeless = 0;  // records that CUPTI had no time for
  };
  /// Ends collecting, waits for what is under way, returns everything in order of start.
  static std::vector<GpuActivity> stop(Lost* lost);
  /// Between start and stop: empty when ClonedNodes can be used; else why not (an older CUPTI, another profiler).
  static std::string nodes_problem();
};

/// An executable graph has nodes of its own, which only CUPTI tells, when they are made. While one of these lives it
/// notes them, of the graphs that its thread instantiates.
class ClonedNodes {
 public:
  ClonedNodes();
  ~ClonedNodes();
  ClonedNodes(const ClonedNodes&) = delete;
  ClonedNodes& operator=(const ClonedNodes&) = delete;

  /// GpuActivity::node of what each of the graph's nodes has become, with the position among them. Those that CUPTI
  /// did not tell are missing.
  std::unordered_map<std::uint64_t, std::size_t> positions(std::span<const CUgraphNode> nodes) const;

 private:
  std::vector<std::pair<std::uint64_t, std::uint64_t>> clones_;  // from, made
};

}  // namespace paoding::gpu
