// SPDX-License-Identifier: Apache-2.0
// Counters of a server, served at /metrics in Prometheus' text format.
#pragma once

#include <array>
#include <atomic>
#include <chrono>
#include <cstdint>
#include <string>

#include "cli/serve/request_batches.h"

namespace paoding::cli {

class ServeMetrics {
 public:
  /// A request was answered with this status, so long after it came; < 0: it was refused before it had come whole.
  void count(int status, std::chrono::nanoseconds latency);
  std::string text(const BatchCounts& batches, std::int64_t connections) const;
  std::int64_t answered() const { return total_; }

 private:
  static constexpr std::array kStatuses{200, 400, 404, 405, 408, 413, 414, 415, 417, 431, 500, 501, 503, 505};
  static constexpr std::array kBounds{0.0005, 0.001, 0.002, 0.005, 0.01, 0.02, 0.05, 0.1, 0.2, 0.5, 1.0, 5.0};  // s
  std::array<std::atomic<std::int64_t>, kStatuses.size()> statuses_{};
  std::array<std::atomic<std::int64_t>, kBounds.size() + 1> latencies_{};
  std::atomic<std::int64_t> total_ = 0, nanoseconds_ = 0;
};

}  // namespace paoding::cli
