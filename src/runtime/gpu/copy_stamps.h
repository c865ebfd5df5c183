// SPDX-License-Identifier: Apache-2.0
// When copies that the host does not wait for began and ended on a GPU: a stamp's kernel in front of each and one
// after it, in its stream, for as many copies as may be without costing the program more than stamps may.
#pragma once

#include <cuda.h>

#include <cstdint>
#include <deque>
#include <map>
#include <memory>
#include <mutex>
#include <optional>

#include "gpu/profile/stamps.h"
#include "profile/recorder.h"

namespace paoding {

class CopyStamps {
 public:
  static CopyStamps& get();

  /// Right before a copy. Nothing where this one gets no stamps.
  std::optional<std::size_t> begin(const gpu::GpuDevice& device, CUstream stream);
  /// Right after it. `number`: that of the span which is the copy on the host.
  void end(const gpu::GpuDevice& device, CUstream stream, std::size_t place, profile::SiteId site,
           std::uint32_t number);

  void start();
  /// Tells StampTimes the stamps of all copies.
  void stop();

 private:
  struct Copy {
    std::size_t place;
    CUstream stream;
    profile::SiteId site;
    std::uint32_t number;
  };
  // A device's pairs of words, in the host's memory.
  struct Places {
    explicit Places(const gpu::GpuDevice& device);
    std::uint64_t* pair(std::size_t place) const;
    gpu::PinnedMemory words;
    gpu::TextLaunch text;
    gpu::LoadedKernel stamp;
    std::size_t next = 0;
    std::deque<Copy> copies;  // stamped and not read
  };

  void drain(int device, Places& places);
  void start_stamp(const Places& places, std::uint64_t* word, CUstream stream);

  std::mutex mutex_;
  std::map<int, std::unique_ptr<Places>> places_;
  std::int64_t started_ns_ = 0, spent_ns_ = 0;
  std::uint64_t without_ = 0;  // copies that got no stamps
};

}  // namespace paoding
