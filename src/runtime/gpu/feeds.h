// SPDX-License-Identifier: Apache-2.0
// Inputs on their way to the GPU. Small ones go together (packed_feeds.h); one that is larger is copied where the run
// stands in its stream. A large one is copied beside the run that is under way, into a second place, and moves to its
// own, at the speed of the device's memory, when the next run begins. The host's copy is pinned and there are two of
// it, so that nothing waits for the run before.
#pragma once

#include <deque>
#include <map>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/run_switches.h"
#include "gpu/driver/driver.h"
#include "paoding/tensor.h"
#include "runtime/device_tensor.h"
#include "runtime/gpu/packed_feeds.h"

namespace paoding {

class GpuFeeds {
 public:
  /// `stream` is where runs are enqueued.
  GpuFeeds(const gpu::GpuDevice& device, const gpu::Stream& stream, const Plan& plan)
      : device_(device), stream_(stream), packed_(device, plan) {}

  /// Where an input has to lie; 0 where it has memory of its own.
  CUdeviceptr packed_address(int slot) const { return packed_.address_of(slot); }

  /// Memory that an input of this size needs beside its own. PAODING_RUN may say so of all inputs, or of none.
  static std::int64_t more_bytes(std::int64_t bytes);
  void add(int slot, CUdeviceptr at, std::int64_t bytes);
  /// Later writes to it go elsewhere.
  void move(int slot, CUdeviceptr at) { feeds_.at(slot).at = at; }
  void write(int slot, const Tensor& tensor);
  /// Copies the value where the run stands in its stream, after the work that makes it; `stream` goes on after the
  /// copy.
  void write(int slot, const DeviceTensor& tensor, CUstream stream);
  /// Lets go of the callers' memory that has been read.
  void let_go();
  /// Moves new values to their places in front of a run.
  void take_over() {
    packed_.send(stream_.get());
    if (has_new_) move_new();
  }

 private:
  static constexpr std::int64_t kMostInline = std::int64_t{256} << 10;  // copied in the run's own stream
  static constexpr std::int64_t kMostPinned = std::int64_t{64} << 20;   // larger ones come from the caller's memory

  struct Staging {
    gpu::PinnedMemory memory;
    gpu::Event copied;
  };
  struct Feed {
    CUdeviceptr at = 0;
    Staging staging[2];
    int next = 0;
    gpu::DeviceMemory beside;
    gpu::Event arrived, taken;
    bool is_new = false;  // the value in `beside` is newer than the one at `at`
  };
  struct Held {
    gpu::Event read;
    std::shared_ptr<DeviceTensor::State> value;
  };
  bool is_pinned(std::int64_t bytes) const { return has_pinned_.value_or(bytes <= kMostPinned); }
  const void* staged(Staging& staging, const Tensor& tensor);
  void move_new();

  const std::optional<bool> has_pinned_ = run_switches().pinned_feeds;
  bool has_new_ = false;
  const gpu::GpuDevice& device_;
  const gpu::Stream& stream_;
  PackedFeeds packed_;
  gpu::Stream aside_;
  std::map<int, Feed> feeds_;  // by slot
  std::deque<Held> held_;      // memory that is being read, in the order of the stream
  std::vector<gpu::Event> spare_;
};

}  // namespace paoding
