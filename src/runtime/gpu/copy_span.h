// SPDX-License-Identifier: Apache-2.0
// A copy to, from or on a GPU as a span of the thread that asks for it. Where the host does not wait for the copy, the
// span is the time of the call, and stamps give the GPU's time. A copy that the host waits for keeps the GPU for as
// long as the call takes: a few us too long. Nothing is recorded where CUPTI is there, which sees the copy itself.
#pragma once

#include <cuda.h>

#include <optional>

#include "gpu/driver/driver.h"
#include "profile/recorder.h"
#include "runtime/gpu/trace.h"

namespace paoding {

class CopySpan {
 public:
  /// `stream`: of a copy that the host does not wait for.
  CopySpan(profile::Copy copy, const gpu::GpuDevice& device, CUstream stream) : device_(&device), stream_(stream) {
    if (profile::Recorder::active() && !GpuTrace::uses_cupti()) begin(copy, true);
  }
  /// A copy that the host waits for.
  CopySpan(profile::Copy copy, const gpu::GpuDevice& device) : device_(&device) {
    if (profile::Recorder::active() && !GpuTrace::uses_cupti()) begin(copy, false);
  }
  ~CopySpan() {
    if (start_ != 0) end();
  }
  CopySpan(const CopySpan&) = delete;
  CopySpan& operator=(const CopySpan&) = delete;

 private:
  static profile::SiteId site_of(profile::Copy copy, bool is_async);
  void begin(profile::Copy copy, bool is_async);
  void end();

  const gpu::GpuDevice* device_ = nullptr;
  CUstream stream_ = nullptr;
  std::optional<std::size_t> place_;  // of its stamps
  std::int64_t waited_from_ns_ = 0;   // of one that the host waits for, where GPUs are recorded
  profile::SiteId site_ = 0;
  profile::Ticks start_ = 0;  // 0: not wanted
};

}  // namespace paoding
