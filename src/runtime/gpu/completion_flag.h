// SPDX-License-Identifier: Apache-2.0
// The completion flag of a run that somebody waits for at once. The driver's wait takes a microsecond longer than it
// takes to see a word change in the host's memory, and a copy of a result seven: so where run after run is waited for
// before the next is started, one more kernel after the run counts up a word there, and where results of all of them
// were read it copies the small ones into the host's memory in front of that. It costs the GPU a microsecond, which a
// run that nobody waits for does not pay.
#pragma once

#include <algorithm>
#include <map>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "gpu/driver/driver.h"
#include "gpu/driver/loaded_kernel.h"
#include "plan/plan.h"
#include "schedule/completion.h"

namespace paoding {

class CompletionFlag {
 public:
  CompletionFlag() = default;
  ~CompletionFlag();
  CompletionFlag(CompletionFlag&&) = default;
  CompletionFlag& operator=(CompletionFlag&&) = default;
  /// Does nothing where the run cannot signal. `bases`: the address of every slot.
  CompletionFlag(const gpu::GpuDevice& device, const Completion& planned, const Target& target,
                 const std::vector<CUdeviceptr>& bases);

  std::vector<gpu::KernelSource> sources() const;
  /// The signal that a run gives to a thread that waits for it.
  enum class Signals : std::uint8_t { nothing, completion, results };
  static constexpr std::size_t kKinds = 2;  // of graphs that tell something
  static std::size_t kind(Signals signals) { return signals == Signals::results ? 1 : 0; }
  /// Whether a run may.
  bool can(Signals signals) const { return signals != Signals::nothing && texts_[kind(signals)] != nullptr; }
  /// Called before the first start().
  void prepare();
  /// Whether entry `k` of the schedule is launched in a run that has a completion flag; start() does the work of the
  /// others.
  bool leaves(std::size_t k) const { return k < moved_from_; }
  /// Enqueued after all other entries.
  void start(Signals signals, CUstream stream) const;

  /// Before a run: the signal that pays for it.
  Signals begin_run() {
    if (std::exchange(is_under_way_, true)) waited_ = 0;
    read_ = std::exchange(is_read_, false) ? std::min(read_ + 1, kWaited) : 0;
    if (waited_ < kWaited || !can(Signals::completion)) return Signals::nothing;
    return read_ < kWaited || !can(Signals::results) ? Signals::completion : Signals::results;
  }
  void launched(Signals signalled) {
    signalled_ = signalled;
    if (signalled != Signals::nothing) ++count_;
  }
  /// Called after a wait for the last run.
  void was_waited_for() {
    if (std::exchange(is_under_way_, false) && waited_ < kWaited) ++waited_;
  }

  /// Waits until the last run has ended, if that has a completion flag, and for a millisecond at most; false where the
  /// driver has to say so.
  bool has_come() const;
  /// The value as the last run left it, once that has been waited for; nullptr where it is not among the copied
  /// results.
  const std::byte* find(const Operand& result);

 private:
  static constexpr int kWaited = 4;  // runs that were waited for one after the other: so will the next

  const gpu::GpuDevice* device_ = nullptr;
  std::map<std::pair<int, std::int64_t>, std::int64_t> places_;  // of results, by slot and offset
  std::vector<void*> addresses_;                                 // of the launch
  std::vector<std::pair<std::size_t, std::int64_t>> packed_;     // which of these are in memory_, and where
  std::int64_t packed_bytes_ = 0;
  std::size_t moved_from_ = 0;
  gpu::PinnedMemory memory_;
  gpu::DeviceMemory ended_;
  std::unique_ptr<gpu::TextLaunch> texts_[kKinds];  // one source, other sizes
  std::unique_ptr<gpu::LoadedKernel> kernels_[kKinds];
  unsigned count_ = 0;         // runs that set their completion flag
  int waited_ = 0, read_ = 0;  // runs one after the other, up to the last
  bool is_under_way_ = false, is_read_ = false;
  Signals signalled_ = Signals::nothing;  // by the last run
};

}  // namespace paoding
