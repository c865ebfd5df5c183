// SPDX-License-Identifier: Apache-2.0
// A copy to, from or on a GPU as a span of the thread that asks for it: of one that the host does not wait for, what
// asking took. Nothing where CUPTI is there, which sees the copy itself.
#pragma once

#include "profile/recorder.h"
#include "runtime/gpu_trace.h"

namespace paoding {

class CopySpan {
 public:
  CopySpan(profile::Copy copy, bool is_async) {
    if (!profile::Recorder::active() || GpuTrace::uses_cupti()) return;
    site_ = site_of(copy, is_async);
    start_ = profile::Recorder::now();
  }
  ~CopySpan() {
    if (start_ != 0) profile::Recorder::complete(site_, start_, profile::Recorder::now());
  }
  CopySpan(const CopySpan&) = delete;
  CopySpan& operator=(const CopySpan&) = delete;

 private:
  static profile::SiteId site_of(profile::Copy copy, bool is_async);
  profile::SiteId site_ = 0;
  profile::Ticks start_ = 0;  // 0: not wanted
};

}  // namespace paoding
