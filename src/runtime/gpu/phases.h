// SPDX-License-Identifier: Apache-2.0
// Phases that a program's kernels add their time up by (gpu::TextLaunch::phases), for recordings.
#pragma once

#include <cuda.h>

#include <string>
#include <vector>

#include "gpu/driver/driver.h"
#include "profile/recorder.h"

namespace paoding {

class GpuPhases {
 public:
  explicit GpuPhases(const gpu::GpuDevice& device) : device_(device) {}
  ~GpuPhases();
  GpuPhases(const GpuPhases&) = delete;
  GpuPhases& operator=(const GpuPhases&) = delete;

  /// `at`: the words; they are 0 before the first run.
  void add(CUdeviceptr at, std::vector<std::string> names, profile::SiteId kernel);

  /// Starts the phases of all programs, which have ended their runs when a recording stops.
  static void start_recording();
  static void stop_recording();

 private:
  struct Kernel {
    CUdeviceptr at;
    std::vector<std::string> names;
    profile::SiteId site;
    std::vector<std::uint64_t> before;  // the recording
  };
  std::vector<std::uint64_t> read(const Kernel& kernel) const;
  void remember();
  void tell() const;

  const gpu::GpuDevice& device_;
  std::vector<Kernel> kernels_;
};

}  // namespace paoding
