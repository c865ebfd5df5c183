// SPDX-License-Identifier: Apache-2.0
// The fault words of runs that nobody waits for: behind each run a copy to the host, in its stream.
#pragma once

#include <cstdint>
#include <functional>
#include <mutex>
#include <vector>

#include "gpu/driver/driver.h"

namespace paoding {

class FaultReads {
 public:
  /// So many runs may be under way: the one after them waits for the oldest.
  static constexpr std::size_t kMost = 64;
  using Check = std::function<void(const std::uint64_t* words)>;

  /// `bytes`: of a run's words.
  FaultReads(const gpu::GpuDevice& device, std::int64_t bytes);

  /// Has the words of the run that was enqueued last in the stream copied.
  void follow(const void* words, CUstream stream, const Check& check);
  /// Calls `check` with the words of runs that have ended, the oldest first; with `waits`, of all. Those of a run for
  /// which it throws are gone.
  void each_ended(bool waits, const Check& check);

 private:
  bool is_empty() const { return first_ == next_; }
  void take_oldest(const Check& check);

  std::mutex mutex_;
  const std::int64_t bytes_;
  const gpu::PinnedMemory words_;
  std::vector<gpu::Event> ended_;       // of each place
  std::uint64_t first_ = 0, next_ = 0;  // runs under way; place k has the runs k, k + kMost, ..
};

}  // namespace paoding
