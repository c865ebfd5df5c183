// SPDX-License-Identifier: Apache-2.0
#include "runtime/gpu/phases.h"

#include "base/check.h"
#include "runtime/live_set.h"

namespace paoding {

GpuPhases::~GpuPhases() {
  LiveSet<GpuPhases>::get().erase(this);
  if (kernels_.empty() || !profile::Recorder::gpu_active()) return;
  try {
    tell();
  } catch (const Error&) {  // the device is gone, and its times with it
  }
}

void GpuPhases::add(CUdeviceptr at, std::vector<std::string> names, profile::SiteId kernel) {
  auto& live = LiveSet<GpuPhases>::get();
  live.insert(this);
  const std::size_t count = names.size();
  live.between_visits([&] {
    kernels_.push_back({at, std::move(names), kernel, std::vector<std::uint64_t>(count, 0)});
  });
}

std::vector<std::uint64_t> GpuPhases::read(const Kernel& kernel) const {
  std::vector<std::uint64_t> words(kernel.names.size());
  PD_CUDA(gpu::required_driver().cuMemcpyDtoH(words.data(), kernel.at, words.size() * sizeof(words[0])));
  return words;
}

void GpuPhases::remember() {
  device_.make_current();
  for (Kernel& kernel : kernels_) kernel.before = read(kernel);
}

void GpuPhases::tell() const {
  device_.make_current();
  for (const Kernel& kernel : kernels_) {
    const std::vector<std::uint64_t> now = read(kernel);
    for (std::size_t i = 0; i < now.size(); ++i) {
      // A run that failed begins at 0 again.
      const std::uint64_t ns = now[i] - (now[i] >= kernel.before[i] ? kernel.before[i] : 0);
      if (ns > 0) profile::Recorder::add_phase(kernel.site, kernel.names[i], static_cast<std::int64_t>(ns));
    }
  }
}

void GpuPhases::start_recording() {
  LiveSet<GpuPhases>::get().for_each([](GpuPhases& phases) { phases.remember(); });
}

void GpuPhases::stop_recording() {
  LiveSet<GpuPhases>::get().for_each([](const GpuPhases& phases) { phases.tell(); });
}

}  // namespace paoding
