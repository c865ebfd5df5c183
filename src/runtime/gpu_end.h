// SPDX-License-Identifier: Apache-2.0
// The end of a run that somebody waits for at once. The driver's wait takes a microsecond longer than it takes to see
// a word change in the host's memory, and a copy of a result seven: so where run after run is waited for before the
// next is started, one more kernel behind the run copies small results into the host's memory and then counts up a word
// there. It costs the GPU a microsecond, which a run that nobody waits for does not pay.
#pragma once

#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver.h"
#include "gpu/loaded_kernel.h"
#include "plan/plan.h"
#include "runtime/gpu_gate.h"
#include "runtime/gpu_joins.h"
#include "runtime/gpu_order.h"

namespace paoding {

class GpuEnd {
 public:
  GpuEnd() = default;
  /// Nothing but of a short run without choices. It also does the copies that `order` ends with, where nothing calls
  /// them off, joined ones if all are. `packs`: small fetches are copied to the host.
  GpuEnd(const gpu::GpuDevice& device, const Plan& plan, const std::vector<Launch>& launches,
         const std::vector<Started>& order, const GatePlan& gates, const GpuJoins& joins,
         const std::vector<CUdeviceptr>& bases, bool packs);

  std::vector<std::string> sources() const;
  /// Before the first run that tells its end.
  void prepare();
  /// Whether entry `k` of the order is launched in a run that tells its end: else start() does what it does.
  bool leaves(std::size_t k) const { return k < moved_from_; }
  /// Behind all others.
  void start(CUstream stream) const;

  /// Before a run: whether it had better tell its end.
  bool begin_run() {
    if (std::exchange(is_under_way_, true)) waited_ = 0;
    return text_ != nullptr && waited_ >= kWaited;
  }
  void launched(bool tells) {
    is_told_ = tells;
    if (tells) ++count_;
  }
  /// After a wait for the last run.
  void was_waited_for() {
    if (std::exchange(is_under_way_, false) && waited_ < kWaited) ++waited_;
  }

  /// Waits until the last run has ended, if that tells its end and is not long; false where the driver has to say so.
  bool has_come() const;
  /// The value as the last run left it, once that has been waited for; nullptr where it is not among what is there.
  const std::byte* find(const Operand& result) const;

 private:
  static constexpr int kWaited = 4;              // runs that were waited for one after the other: so will the next
  static constexpr std::int64_t kCounters = 64;  // bytes in front of the results

  const gpu::GpuDevice* device_ = nullptr;
  std::map<std::pair<int, std::int64_t>, std::int64_t> places_;  // of results, by slot and offset
  std::vector<void*> addresses_;                                 // of the launch
  std::vector<std::pair<std::size_t, std::int64_t>> packed_;     // which of these are in memory_, and where
  std::int64_t packed_bytes_ = 0;
  std::size_t moved_from_ = 0;
  gpu::PinnedMemory memory_;
  gpu::DeviceMemory ended_;
  std::unique_ptr<gpu::TextLaunch> text_;
  std::unique_ptr<gpu::LoadedKernel> kernel_;
  unsigned count_ = 0;  // runs that told their end
  int waited_ = 0;
  bool is_under_way_ = false, is_told_ = false;
};

}  // namespace paoding
